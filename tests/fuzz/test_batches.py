"""Record sets of any bytes: split, decided, opened and written again, or refused, at a bounded cost."""

from __future__ import annotations

import contextlib
import random
import struct
import zlib
from collections.abc import Iterator, Sequence

import pytest
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptBatch, NotConvertible, UnsupportedBatch
from shoal.protocol.fetch import decode_fetch_response
from shoal.records import (
    ENTRY,
    HEADER_SIZE,
    AbortedTransactions,
    BatchHeader,
    Codec,
    Record,
    RecordBatch,
    compress,
    decide,
    decompress,
    decompress_legacy_lz4,
    fingerprint,
    read_key_value_headers,
    read_records,
    split,
    stamp,
    stamp_plain,
    verify_crc,
    write_batches,
)
from shoal.records.aborted import read_marker
from shoal.records.down_conversion import DownConversion
from shoal.records.up_conversion import up_convert
from tests.fuzz.damage import HUGE_NUMBERS, garbage, mutated
from tests.fuzz.effort import bounded, effort
from tests.vectors import old_vectors, vectors
from tests.world.batches import batch, marker, message, wrapper

LIMIT_BYTES = 1 << 20
#: "About six times that is the most memory that this takes", and a written batch or two besides.
MEMORY_BYTES = 12 * LIMIT_BYTES

CODECS = sorted(Codec)


def _recorded() -> list[bytes]:
    """Return the record sets that real brokers sent."""
    found = {
        bytes(fetched.record_set)
        for vector in [*vectors(), *old_vectors()]
        if vector.api == "Fetch" and vector.direction == "response"
        for fetched in decode_fetch_response(
            memoryview(vector.frame), vector.version, vector.names
        ).partitions
    }
    return sorted(each for each in found if 0 < len(each) < 20_000)


BUILT = [
    *(bytes(batch(4, codec=codec, base_offset=7)) for codec in CODECS),
    bytes(batch(9, holes=[0, 3, 8])),
    bytes(batch(2, holes=[0, 1])),
    bytes(marker(0, 5)),
    *(bytes(message(magic, b"value", key=b"key")) for magic in (0, 1)),
    *(
        bytes(wrapper(magic, codec, [message(magic, b"x" * 30, offset=each) for each in range(3)], offset=9))
        for magic in (0, 1)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    ),
]
RECORD_SETS = [*_recorded(), *BUILT]


def open_all(record_set: bytes | bytearray) -> None:
    """Apply every operation to a record set; if one fails, it must raise one of shoal's errors."""
    view = memoryview(bytearray(record_set))
    aborted = AbortedTransactions([(5, 0), (-1, 3)])
    found: list[RecordBatch] = []
    try:
        for each in split(view):
            found.append(each)
            header = each.header
            struct.pack(">qq", header.next_offset, header.last_offset)  # to request next, and to commit
            decide(header, 3, aborted, keep_append_time=True)
            if header.is_control and header.magic == 2:
                with contextlib.suppress(CorruptBatch):
                    aborted.see_marker(each)
                with contextlib.suppress(CorruptBatch):
                    read_marker(each)
    except CorruptBatch as error:
        assert error.position == sum(len(each.view) for each in found)  # noqa: PT017
    assert sum(len(each.view) for each in found) <= len(view)
    stamp_all_runs(bytearray(record_set), [each.header for each in found])
    for each in found:
        with contextlib.suppress(CorruptBatch):
            verify_crc(each)
        read_and_write(each)
        if each.header.magic == 2:
            fingerprint(each)
            stamp(each, 1, 0, 0)
    for magic in (0, 1):
        down_convert(view, magic)
    with contextlib.suppress(NotConvertible):
        up_convert(memoryview(bytes(record_set)), LIMIT_BYTES)


@contextlib.contextmanager
def corrupt_at(position: int) -> Iterator[None]:
    """Let a batch be corrupt if the error has this position."""
    try:
        yield
    except CorruptBatch as error:
        assert error.position == position  # noqa: PT017


def read_and_write(each: RecordBatch) -> None:
    header = each.header
    records: list[Record] = []
    with contextlib.suppress(UnsupportedBatch), corrupt_at(header.base_offset):
        records = read_records(each, LIMIT_BYTES)
        assert header.magic < 2 or len(records) == header.records_count
    previous = header.base_offset - 1 if header.magic == 2 else -1
    for record in records:
        assert previous < record.offset <= header.last_offset
        assert -(2**63) <= record.timestamp < 2**63
        previous = record.offset
        with corrupt_at(record.offset):
            read_key_value_headers(record)
    if records:
        written = [batch for _, batch in write_batches(records, Codec(header.codec_id), 1000)]
        again = [record for batch in written for record in read_records(batch, LIMIT_BYTES)]
        assert [(r.timestamp, r.body) for r in again] == [(r.timestamp, r.body) for r in records]


def down_convert(record_set: memoryview, magic: int) -> None:
    """Convert for an old client: as many bytes as announced, or an error before the first."""
    with contextlib.suppress(NotConvertible):
        found = DownConversion(
            record_set,
            magic=magic,
            fetch_offset=2,
            chunk_bytes=100,
            aborted=[(5, 0), (-1, 3)],
            limit_bytes=LIMIT_BYTES,
        )
        assert sum(map(len, found.chunks())) == found.size
        struct.pack(">q", found.next_offset)  # to request next


def stamp_all_runs(record_set: bytearray, headers: Sequence[BatchHeader]) -> None:
    """Begin a run at each batch; only batches that were found are taken, and nothing else changes."""
    position = 0
    for number, header in enumerate(headers):
        copy = memoryview(bytearray(record_set))
        end, count, rows = stamp_plain(
            copy,
            position,
            first_offset=header.base_offset,
            end_offset=2**62,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=False,
            append_time=False,
        )
        entries = list(ENTRY.iter_unpack(rows))
        taken = headers[number : number + len(entries)]
        size = end - position
        assert entries == [
            (each.size, each.records_count, each.max_timestamp, each.leader_epoch) for each in taken
        ]
        assert size == sum(each.size for each in taken)
        assert count == sum(each.records_count for each in taken)
        assert bytes(copy[:position]) == record_set[:position]
        assert bytes(copy[position + size :]) == record_set[position + size :]
        position += header.size


def rechecked(record_set: bytes) -> bytearray:
    """Correct the first batch's length and CRC, so that parsers read the bytes after them."""
    data = bytearray(record_set)
    if len(data) <= HEADER_SIZE:
        return data
    data[8:12] = struct.pack(">i", len(data) - 12)
    if data[16] == 2:
        data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    else:
        data[12:16] = struct.pack(">I", zlib.crc32(data[16:]))
    return data


@given(st.data(), st.booleans())
@effort(125)
def test_damaged_record_set_is_read_or_refused(data: st.DataObject, repair: bool) -> None:
    record_set = data.draw(mutated(data.draw(st.sampled_from(RECORD_SETS))))
    damaged = rechecked(record_set) if repair else bytearray(record_set)
    with bounded(len(damaged), more_bytes=MEMORY_BYTES):
        open_all(damaged)


@pytest.mark.parametrize("whole", BUILT, ids=range(len(BUILT)))
def test_batch_cut_or_with_any_number_anywhere_is_read_or_refused(whole: bytes) -> None:
    draw = random.Random(len(whole))
    for position in range(len(whole)):
        open_all(whole[:position])
        open_all(rechecked(whole[:position]))
        number = draw.choice(HUGE_NUMBERS)
        changed = whole[:position] + number + whole[position + len(number) :]
        open_all(changed)
        open_all(rechecked(changed))


@given(garbage())
@effort(75)
def test_garbage_as_record_set_is_refused(data: bytes) -> None:
    with bounded(len(data)):
        open_all(data)


@given(st.sampled_from(CODECS), garbage(), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
@effort(100)
def test_garbage_after_a_valid_header_is_refused(
    codec: Codec, payload: bytes, last_offset_delta: int, count: int
) -> None:
    header = bytearray(batch(0, codec=codec))[:HEADER_SIZE]
    header[23:27] = struct.pack(">i", last_offset_delta)
    header[57:61] = struct.pack(">i", min(count, last_offset_delta + 1, 2**31 - 1))
    for records in (payload, compress(codec, payload)):
        with bounded(len(records), more_bytes=MEMORY_BYTES):
            open_all(rechecked(bytes(header) + records))


@given(st.sampled_from([0, 1]), st.sampled_from(CODECS[:4]), garbage())
@effort(75)
def test_garbage_in_an_old_message_is_refused(magic: int, codec: Codec, payload: bytes) -> None:
    for value in (payload, compress(codec, payload)):
        with bounded(len(value), more_bytes=MEMORY_BYTES):
            open_all(message(magic, value, attributes=codec, offset=5))


@given(st.sampled_from(CODECS[1:]), st.data())
@effort(100)
def test_damaged_stream_expands_within_its_limit_or_is_refused(codec: Codec, data: st.DataObject) -> None:
    plain = data.draw(st.sampled_from([b"", b"x" * 100_000, bytes(range(256)) * 20, b"abc"]))
    stream = data.draw(mutated(compress(codec, plain)) | garbage())
    with bounded(len(stream), more_bytes=MEMORY_BYTES), contextlib.suppress(CorruptBatch, UnsupportedBatch):
        assert len(decompress(codec, stream, LIMIT_BYTES)) <= LIMIT_BYTES
    with bounded(len(stream), more_bytes=MEMORY_BYTES), contextlib.suppress(CorruptBatch, UnsupportedBatch):
        assert len(decompress_legacy_lz4(stream, LIMIT_BYTES)) <= LIMIT_BYTES
