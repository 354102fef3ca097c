"""Batches of magic 2, and messages of magic 1, for clients that read no more than magic 1 or 0."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch, Disconnected, NotConvertible, UnsupportedBatch
from shoal.protocol.fetch import decode_fetch_response
from shoal.records import Codec, decompress, read_key_value_headers, read_records, split
from shoal.records.down_conversion import DownConversion, convert
from tests.batches import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TIMESTAMP,
    TRANSACTIONAL,
    Record,
    batch,
    compressed,
    marker,
    message,
    patched,
    payload,
    raw_batch,
    whole_messages,
    wrapper,
)
from tests.each_case import each_case
from tests.strategies import INT64, damaged
from tests.vectors import Vector, old_vectors, vectors

LIMIT = 1 << 22
OLD_MAGICS = (0, 1)
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
OVERFLOW_OFFSET = b"\xff" * 8

EVERY_MAGIC = pytest.mark.parametrize("magic", OLD_MAGICS)
EVERY_CODEC = pytest.mark.parametrize("codec", OLD_CODECS)

Values = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key and value."""


def conversion(
    record_set: bytes | bytearray, magic: int = 1, *, fetch_offset: int = 0, **options: Any
) -> DownConversion:
    """Convert a whole record set that is in memory."""
    options.setdefault("source_bytes", len(record_set))
    return DownConversion([memoryview(record_set)], magic=magic, fetch_offset=fetch_offset, **options)


def converted(record_set: bytes | bytearray, magic: int = 1, **options: Any) -> bytes:
    """Return the bytes for the client, after a check that they have the announced size."""
    under_way = conversion(record_set, magic, **options)
    data = b"".join(under_way.chunks())
    assert len(data) == under_way.size == len(under_way)
    return data


def messages_and_padding(data: bytes) -> tuple[bytes, bytes]:
    whole = b"".join(whole_messages(data))
    return whole, data[len(whole) :]


def read(data: bytes | bytearray | memoryview) -> list[Values]:
    """Read a record set of any magic with shoal's own reader, which checks the inner CRCs."""
    return [
        (record.offset, record.timestamp, *read_key_value_headers(record)[:2])
        for whole in whole_messages(bytes(data))
        for each in split(memoryview(whole))
        for record in read_records(each, LIMIT)
    ]


def read_by_kafka_python(data: bytes) -> list[Values]:
    """Read a record set with a client that had magic 0 and 1 when they were new."""
    found: list[Values] = []
    records = MemoryRecords(data)
    while (each := records.next_batch()) is not None:
        assert each.validate_crc()
        for record in each:
            timestamp = -1 if record.timestamp is None else record.timestamp
            found.append((record.offset, timestamp, record.key, record.value))
    return found


def data_records(source: bytes) -> Iterator[Values]:
    """Read the records of a log in magic 2, with their append time if they have one."""
    for each in split(memoryview(source)):
        if each.header.is_control:
            continue
        for offset, timestamp, key, value in read(each.view):
            appended = each.header.max_timestamp if each.header.is_log_append_time else timestamp
            yield offset, appended, key, value


def as_seen(values: Iterable[Values], magic: int) -> list[Values]:
    """Without the timestamps that magic 0 has no place for."""
    return [(offset, timestamp if magic else -1, key, value) for offset, timestamp, key, value in values]


def of(records: Sequence[Record], codec: Codec = Codec.NONE, *, base_offset: int = 0, **fields: int) -> bytes:
    """Build a batch of these records; its last offset and newest timestamp are theirs, unless given."""
    fields.setdefault("last_offset_delta", max((record.offset_delta for record in records), default=0))
    newest = max((record.timestamp_delta for record in records), default=0)
    fields.setdefault("max_timestamp", TIMESTAMP + newest)
    flags = fields.pop("flags", 0)
    return bytes(
        raw_batch(
            payload(records, codec) if records else b"",
            base_offset=base_offset,
            attributes=codec | flags,
            records_count=len(records),
            **fields,
        )
    )


MIXED = (
    Record(b"value", b"key", timestamp_delta=30),
    Record(None, b"tombstone", offset_delta=1, timestamp_delta=10),
    Record(b"no key", None, offset_delta=2, timestamp_delta=40),
    Record(b"", b"", (("name", b"header"), ("null", None)), offset_delta=3, timestamp_delta=-5),
    Record(b"long " * 1000, b"k" * 100, offset_delta=4, timestamp_delta=300_000),
)


def as_messages(records: Sequence[Record], magic: int, *, base: int, **fields: int) -> list[bytes]:
    """Build each record as a message, with offsets from ``base`` on."""
    return [
        bytes(
            message(
                magic,
                record.value,
                key=record.key,
                offset=base + record.offset_delta,
                timestamp=fields.get("timestamp", TIMESTAMP + record.timestamp_delta),
                attributes=fields.get("attributes", 0),
            )
        )
        for record in records
    ]


# The conversion of one batch, byte by byte.


@EVERY_MAGIC
def test_uncompressed_records_become_one_message_each(magic: int) -> None:
    expected = b"".join(as_messages(MIXED, magic, base=1000))
    assert messages_and_padding(converted(of(MIXED, base_offset=1000), magic, fetch_offset=1000)) == (
        expected,
        b"",
    )


def test_messages_have_literal_bytes() -> None:
    """As kafka-python's builder of the time writes them."""
    source = of([Record(b"v", b"k")], base_offset=5)
    assert whole_messages(converted(source, 0)) == [
        bytes.fromhex("0000000000000005 00000010 1fecd70a 00 00 00000001 6b 00000001 76")
    ]
    assert whole_messages(converted(source, 1)) == [
        bytes.fromhex("0000000000000005 00000018 5eaf63dc 01 00 00000174876e8000 00000001 6b 00000001 76")
    ]


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_compressed_records_in_magic_1_have_relative_offsets(codec: Codec) -> None:
    (wrapping,) = whole_messages(converted(of(MIXED, codec, base_offset=1000), 1))
    inner = wrapping[34:]
    assert decompress(codec, inner, LIMIT) == b"".join(as_messages(MIXED, 1, base=0))
    assert wrapping == message(1, inner, offset=1004, attributes=codec, timestamp=TIMESTAMP + 300_000)


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_compressed_records_in_magic_0_have_absolute_offsets(codec: Codec) -> None:
    (wrapping,) = whole_messages(converted(of(MIXED, codec, base_offset=1000), 0))
    plain = b"".join(as_messages(MIXED, 0, base=1000))
    if codec is Codec.LZ4:
        # The header's checksum as old clients compute it, and insist on: over the frame's magic too.
        assert wrapping[26:33] == bytes.fromhex("04224d18 60 40 1a")
        stream = wrapping[26:32] + b"\x82" + wrapping[33:]
    else:
        stream = wrapping[26:]
    assert decompress(codec, stream, LIMIT) == plain
    assert wrapping == message(0, wrapping[26:], offset=1004, attributes=codec)


@EVERY_MAGIC
@EVERY_CODEC
def test_converted_records_read_by_kafka_python_are_the_same(magic: int, codec: Codec) -> None:
    source = of(MIXED, codec, base_offset=2**40)
    assert read_by_kafka_python(converted(source, magic)) == as_seen(read(source), magic)


@EVERY_CODEC
def test_log_append_time_is_that_of_every_message(codec: Codec) -> None:
    source = of(MIXED, codec, base_offset=7, flags=LOG_APPEND_TIME, max_timestamp=1_700_000_000_000)
    data = converted(source, 1)
    if codec is Codec.NONE:
        inner = b"".join(whole_messages(data))
        first_offset = 7
    else:
        (wrapping,) = whole_messages(data)
        assert wrapping[17] == codec | LOG_APPEND_TIME
        assert int.from_bytes(wrapping[18:26]) == 1_700_000_000_000
        inner = bytes(decompress(codec, wrapping[34:], LIMIT))
        first_offset = 0
    assert inner == b"".join(
        as_messages(MIXED, 1, base=first_offset, attributes=LOG_APPEND_TIME, timestamp=1_700_000_000_000)
    )
    assert {timestamp for _, timestamp, _, _ in read_by_kafka_python(data)} == {1_700_000_000_000}


@EVERY_CODEC
def test_magic_0_has_neither_timestamp_nor_append_time(codec: Codec) -> None:
    source = of(MIXED, codec, flags=LOG_APPEND_TIME, max_timestamp=1_700_000_000_000)
    data = converted(source, 0)
    assert data[17] == codec
    assert {timestamp for _, timestamp, _, _ in read_by_kafka_python(data)} == {-1}


def test_missing_timestamp_stays_minus_one() -> None:
    source = of([Record(), Record(offset_delta=1)], Codec.GZIP, base_timestamp=-1, max_timestamp=-1)
    data = converted(source, 1)
    assert data[18:26] == b"\xff" * 8
    assert [timestamp for _, timestamp, _, _ in read_by_kafka_python(data)] == [-1, -1]


@pytest.mark.parametrize("base_timestamp", [-(2**63), -(2**63) + 9, 2**63 - 10, 2**63 - 1])
def test_timestamps_wrap_around_at_64_bits_as_they_do_for_a_consumer(base_timestamp: int) -> None:
    records = [Record(timestamp_delta=-10), Record(offset_delta=1, timestamp_delta=10)]
    source = of(records, base_timestamp=base_timestamp, max_timestamp=0)
    assert read(converted(source, 1)) == read(source)


@EVERY_MAGIC
@EVERY_CODEC
def test_offsets_of_compacted_batches_are_kept(magic: int, codec: Codec) -> None:
    """At the begin, in the middle and at the end; the end's are lost, as there is nothing to show them."""
    source = batch(9, base_offset=100, codec=codec, flags=DELETE_HORIZON, holes=(0, 1, 4, 7, 8))
    data = converted(source, magic, fetch_offset=100)
    assert [offset for offset, *_ in read_by_kafka_python(data)] == [102, 103, 105, 106]
    assert read_by_kafka_python(data) == as_seen(read(source), magic)


# Unchanged messages, and messages of magic 1.


def _recorded(magic: int) -> Iterator[tuple[Vector, bytes]]:
    for vector in old_vectors():
        if vector.api == "Fetch" and vector.direction == "response" and vector.version == 12:
            response = decode_fetch_response(memoryview(vector.frame), vector.version)
            record_set = bytes(response.partitions[0].record_set)
            if {each.header.magic for each in split(memoryview(record_set))} == {magic}:
                yield vector, record_set


@pytest.mark.parametrize(("stored", "magic"), [(0, 0), (0, 1), (1, 1)])
def test_messages_readable_by_the_client_are_unchanged(stored: int, magic: int) -> None:
    found = list(_recorded(stored))
    assert len(found) >= 8
    for _, record_set in found:
        whole = b"".join(bytes(each.view) for each in split(memoryview(record_set)))
        assert converted(record_set, magic)[: len(whole)] == whole


@each_case("recorded", _recorded(1), lambda each: each[0].name)
def test_messages_of_magic_1_become_messages_of_magic_0(recorded: tuple[Vector, bytes]) -> None:
    _, record_set = recorded
    data = converted(record_set, 0)
    assert {whole[16] for whole in whole_messages(data)} == {0}
    assert read_by_kafka_python(data) == as_seen(read(record_set), 0)
    kinds = {each.header.codec_id for each in split(memoryview(record_set))}
    assert {whole[17] for whole in whole_messages(data)} == kinds


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_wrapper_of_magic_1_gets_absolute_offsets_in_magic_0(codec: Codec) -> None:
    source = wrapper(1, codec, as_messages(MIXED, 1, base=0), offset=1004)
    assert converted(source, 0)[:8] == (1004).to_bytes(8)
    assert [offset for offset, *_ in read_by_kafka_python(converted(source, 0))] == [*range(1000, 1005)]


def test_log_with_all_three_formats_is_converted_to_one() -> None:
    parts = [
        bytes(message(0, b"zero", offset=0)),
        bytes(wrapper(1, Codec.GZIP, as_messages(MIXED, 1, base=0), offset=5)),
        bytes(batch(3, base_offset=6, codec=Codec.LZ4)),
    ]
    source = b"".join(parts)
    for magic in OLD_MAGICS:
        assert read(converted(source, magic, limit_bytes=LIMIT))[: 1 + 5] == as_seen(read(source), magic)[:6]
    assert converted(source, 1).startswith(parts[0] + parts[1])


def _fetched() -> Iterator[tuple[str, bytes]]:
    for vector in vectors():
        if vector.api == "Fetch" and vector.direction == "response" and vector.codec != "zstd":
            response = decode_fetch_response(memoryview(vector.frame), vector.version, vector.names)
            for partition in response.partitions:
                record_set = bytes(partition.record_set)
                found = list(split(memoryview(record_set)))
                if any(each.header.records_count and not each.header.is_control for each in found) and all(
                    each.header.codec_id != Codec.ZSTD for each in found
                ):
                    yield f"{vector.name}-{partition.topic}-{partition.partition}", record_set


@EVERY_MAGIC
@each_case("fetched", _fetched(), itemgetter(0))
def test_recorded_batches_are_converted_to_the_end(fetched: tuple[str, bytes], magic: int) -> None:
    """Read to its end as a client does: the next fetch begins behind the last whole message."""
    _, record_set = fetched
    expected = as_seen(data_records(record_set), magic)
    assert expected
    assert list(_read_on(record_set, magic)) == expected


def _read_on(record_set: bytes, magic: int) -> Iterator[Values]:
    """Fetch, from the batch with the next offset on, until there is nothing more."""
    offset = 0
    while True:
        rest = b"".join(
            bytes(each.view) for each in split(memoryview(record_set)) if each.header.next_offset > offset
        )
        found = [
            values
            for values in read_by_kafka_python(converted(rest, magic, fetch_offset=offset))
            if values[0] >= offset
        ]
        if not found:
            return
        yield from found
        offset = found[-1][0] + 1


# Dropped batches and records.


@EVERY_MAGIC
def test_transaction_markers_and_emptied_batches_are_dropped(magic: int) -> None:
    empty = of([], base_offset=3, last_offset_delta=1)
    source = (
        marker(1, 5, base_offset=0)
        + batch(2, base_offset=1)
        + empty
        + marker(0, 5, base_offset=5)
        + batch(1, base_offset=6)
    )
    assert read_by_kafka_python(converted(source, magic)) == as_seen(
        read(batch(2, base_offset=1) + batch(1, base_offset=6)), magic
    )


def _transactions() -> bytearray:
    """Producer 7 aborts offsets 0 to 2 and commits 5 and 6; producer 8 commits 3."""

    def data(base_offset: int, count: int, producer_id: int) -> bytearray:
        return batch(count, base_offset=base_offset, flags=TRANSACTIONAL, producer_id=producer_id)

    return (
        data(0, 2, 7)
        + data(2, 1, 7)
        + data(3, 1, 8)
        + marker(0, 7, base_offset=4)
        + data(5, 2, 7)
        + marker(1, 7, base_offset=7)
        + marker(1, 8, base_offset=8)
    )


def _offsets(data: bytes) -> list[int]:
    return [offset for offset, *_ in read_by_kafka_python(data)]


def test_aborted_records_are_dropped_if_transactions_are_given() -> None:
    assert _offsets(converted(_transactions(), aborted=[(7, 0)])) == [3, 5, 6]
    assert _offsets(converted(_transactions(), aborted=[])) == [0, 1, 2, 3, 5, 6]


def test_aborted_records_are_kept_if_no_transactions_are_given() -> None:
    assert _offsets(converted(_transactions())) == [0, 1, 2, 3, 5, 6]


@EVERY_MAGIC
def test_uncompressed_records_before_the_fetch_offset_are_dropped(magic: int) -> None:
    """Some clients take each message for one that they asked for."""
    source = batch(5, base_offset=10) + batch(5, base_offset=15)
    data = converted(source, magic, fetch_offset=13, source_bytes=1000)
    assert _offsets(data) == [13, 14, *range(15, 20)]


@EVERY_MAGIC
@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_compressed_records_before_the_fetch_offset_are_kept(magic: int, codec: Codec) -> None:
    source = of(MIXED, codec, base_offset=10)
    assert converted(source, magic, fetch_offset=13) == converted(source, magic, fetch_offset=10)


@EVERY_MAGIC
@EVERY_CODEC
def test_batch_without_records_from_the_fetch_offset_is_dropped(magic: int, codec: Codec) -> None:
    """Compaction took its last records: given the others, a client would ask for the same again."""
    holed = batch(5, base_offset=10, codec=codec, holes=(3, 4))
    assert conversion(holed, magic, fetch_offset=13).size == 0
    assert conversion(holed, magic, fetch_offset=13).next_offset == 15
    behind = batch(5, base_offset=15, codec=codec)
    assert converted(holed + behind, magic, fetch_offset=13).startswith(
        whole_messages(converted(behind, magic, fetch_offset=15))[0]
    )


@pytest.mark.parametrize(
    ("record_set", "next_offset"),
    [
        (b"", 4),
        (b"\0" * 7, 4),
        (batch(3, base_offset=4)[:-1], 4),
        (marker(1, 5, base_offset=4), 5),
        (of([], base_offset=4, last_offset_delta=6), 11),
        (marker(1, 5, base_offset=4) + of([], base_offset=5, last_offset_delta=1), 7),
        (marker(1, 5, base_offset=4) + batch(3, base_offset=5)[:-1], 5),
    ],
)
def test_record_set_without_convertible_records_has_only_a_next_offset(
    record_set: bytes, next_offset: int
) -> None:
    found = conversion(record_set, fetch_offset=4)
    assert found.size == 0
    assert found.next_offset == next_offset
    assert list(found.chunks()) == []


def test_aborted_transaction_alone_converts_to_no_bytes() -> None:
    source = batch(5, flags=TRANSACTIONAL, producer_id=7) + marker(0, 7, base_offset=5)
    found = conversion(source, aborted=[(7, 0)])
    assert (found.size, found.next_offset) == (0, 6)


# The size and the padding.


def test_announced_size_is_that_of_the_source() -> None:
    source = of([Record(b"x", None, (("name", b"header" * 100),))])
    found = conversion(source)
    assert found.size == len(source)


def test_announced_size_includes_a_larger_first_batch() -> None:
    source = of([Record(b"", None, offset_delta=delta) for delta in range(100)])
    data = converted(source)
    assert len(data) == 100 * 34 > len(source)


@pytest.mark.parametrize("missing", [*range(1, 14), 60, 61, 62, 1000])
def test_remaining_bytes_are_the_front_of_a_longer_batch(missing: int) -> None:
    source = of(MIXED, Codec.SNAPPY)
    (wrapping,) = whole_messages(converted(source))
    found = DownConversion(
        [memoryview(source)], magic=1, fetch_offset=0, source_bytes=len(wrapping) + missing
    )
    data = b"".join(found.chunks())
    length = max(missing + 1, 61)
    padding = (OVERFLOW_OFFSET + length.to_bytes(4)).ljust(missing, b"\0")[:missing]
    assert data == wrapping + padding
    assert read_by_kafka_python(data) == read(wrapping)


def test_padding_larger_than_a_chunk_is_split_into_chunks() -> None:
    """Each with a front of its own, as from Kafka; a client skips them with the first."""
    source = of([Record(b"x")])
    first = converted(source)[: 12 + int.from_bytes(converted(source)[8:12])]
    found = DownConversion(
        [memoryview(source)], magic=1, fetch_offset=0, source_bytes=len(first) + 250, chunk_bytes=100
    )
    chunks = [bytes(chunk) for chunk in found.chunks()]
    assert chunks == [
        first,
        (OVERFLOW_OFFSET + (251).to_bytes(4)).ljust(100, b"\0"),
        (OVERFLOW_OFFSET + (151).to_bytes(4)).ljust(100, b"\0"),
        (OVERFLOW_OFFSET + (61).to_bytes(4)).ljust(50, b"\0"),
    ]
    assert whole_messages(b"".join(chunks)) == [first]


def test_messages_beyond_the_announced_size_are_cut() -> None:
    batches = [batch(10, base_offset=10 * number) for number in range(4)]
    source = b"".join(bytes(each) for each in batches)
    all_messages = b"".join(b"".join(whole_messages(converted(each))) for each in batches)
    assert len(all_messages) > len(source)
    for chunk_bytes in (0, 1, len(batches[0]), 3 * len(batches[0]), 1 << 20):
        assert converted(source, chunk_bytes=chunk_bytes) == all_messages[: len(source)]


def test_conversion_ends_at_a_cut_batch() -> None:
    whole = batch(3, base_offset=5)
    for cut in (1, 11, 20, 61, len(whole) - 1):
        source = whole + whole[:cut]
        assert messages_and_padding(converted(source, 1))[0] == messages_and_padding(converted(whole, 1))[0]
        assert len(converted(source, 1)) == max(len(source), len(converted(whole, 1)))
    views = [memoryview(whole), memoryview(whole[:-1]), memoryview(whole)]
    found = DownConversion(views, magic=1, fetch_offset=5, source_bytes=10_000)
    assert _offsets(b"".join(found.chunks())) == [5, 6, 7]


# Chunks.


def _source(count: int, codec: Codec = Codec.NONE, records: int = 5) -> list[bytearray]:
    return [batch(records, base_offset=records * number, codec=codec) for number in range(count)]


def test_chunks_have_whole_batches_of_at_most_chunk_bytes() -> None:
    batches = _source(12)
    size = len(batches[0])
    taken = 0

    def read_one_by_one() -> Iterator[memoryview]:
        nonlocal taken
        for each in batches:
            taken += 1
            yield memoryview(each)

    found = DownConversion(
        read_one_by_one(), magic=1, fetch_offset=0, source_bytes=10_000, chunk_bytes=3 * size + 1
    )
    assert taken == 1
    chunks = []
    read_for_each = []
    for chunk in found.chunks():
        chunks.append(bytes(chunk))
        read_for_each.append(taken)
    # The first batch, converted before; then three by three. The batch that did not fit was looked at.
    assert read_for_each[:5] == [1, 5, 8, 11, 12]
    counts = [len(whole_messages(chunk)) for chunk in chunks]
    assert counts[:5] == [5, 15, 15, 15, 10]
    assert _offsets(b"".join(chunks)) == [*range(60)]


def test_batch_larger_than_a_chunk_is_its_own_chunk() -> None:
    small, large = batch(1), batch([b"x" * 5000], base_offset=1)
    source = small + large + batch(1, base_offset=2) + batch(1, base_offset=3)
    found = DownConversion(
        [memoryview(source)], magic=1, fetch_offset=0, source_bytes=len(source) + 500, chunk_bytes=1000
    )
    chunks = [len(whole_messages(bytes(chunk))) for chunk in found.chunks()]
    assert chunks[:3] == [1, 1, 2]


def test_chunks_are_alive_one_at_a_time() -> None:
    batches = [batch([b"x" * 15_000], base_offset=number) for number in range(300)]
    source_bytes = sum(map(len, batches))

    def peak(chunk_bytes: int) -> int:
        found = DownConversion(
            map(memoryview, batches),
            magic=1,
            fetch_offset=0,
            source_bytes=source_bytes,
            chunk_bytes=chunk_bytes,
        )
        tracemalloc.start()
        try:
            assert sum(len(chunk) for chunk in found.chunks()) == source_bytes
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # A batch, the copy of its records, the record and the message: each at most 16 KiB.
    # Other threads of this process allocate meanwhile, which is in some of the measurements.
    assert min(peak(16 * 1024) for _ in range(5)) < 7 * 16 * 1024
    assert peak(1 << 30) > source_bytes


def test_source_may_reuse_one_buffer() -> None:
    batches = _source(10, Codec.GZIP)
    buffer = bytearray(max(map(len, batches)))

    def read_into_it() -> Iterator[memoryview]:
        for each in batches:
            buffer[:] = b"\xaa" * len(buffer)
            buffer[: len(each)] = each
            yield memoryview(buffer)[: len(each)]

    for chunk_bytes in (0, 300, 1 << 20):
        found = DownConversion(
            read_into_it(), magic=0, fetch_offset=0, source_bytes=10_000, chunk_bytes=chunk_bytes
        )
        assert _offsets(b"".join(found.chunks())) == [*range(50)]


def test_source_is_read_only_as_far_as_announced() -> None:
    batches = [
        of([Record(b"", None, offset_delta=d) for d in range(50)], base_offset=50 * n) for n in range(40)
    ]
    source_bytes = sum(map(len, batches))
    left = iter(batches)
    found = DownConversion(
        map(memoryview, left), magic=1, fetch_offset=0, source_bytes=source_bytes, chunk_bytes=1000
    )
    assert sum(len(chunk) for chunk in found.chunks()) == source_bytes
    assert len(list(left)) > 20
    assert found.next_offset < 20 * 50


def test_next_offset_follows_the_last_read_batch() -> None:
    found = DownConversion(
        map(memoryview, _source(4)), magic=1, fetch_offset=0, source_bytes=10_000, chunk_bytes=0
    )
    chunks = found.chunks()
    assert found.next_offset == 5
    assert [found.next_offset for _ in itertools.islice(chunks, 4)] == [5, 10, 15, 20]


def test_release_of_a_rereadable_source_drops_the_first_batch() -> None:
    source = bytes(_transactions()) + bytes(batch(50, base_offset=9, codec=Codec.LZ4))
    for aborted in (None, [(7, 0)]):
        expected = converted(source, aborted=aborted)
        found = conversion(source, aborted=aborted)
        found.release()
        assert b"".join(found.chunks()) == expected


def test_release_of_an_iterator_raises() -> None:
    found = DownConversion(map(memoryview, _source(2)), magic=1, fetch_offset=0, source_bytes=1000)
    with pytest.raises(ValueError, match="cannot be read again"):
        found.release()
    assert _offsets(b"".join(found.chunks())) == [*range(10)]


# Inconvertible batches.


def _with_wrong_crc(base_offset: int = 0) -> bytearray:
    wrong = batch(3, base_offset=base_offset)
    wrong[-1] ^= 1
    return wrong


def _with_a_flipped_control_bit(base_offset: int = 0) -> bytearray:
    """Return a batch that would be dropped if its CRC was not checked."""
    wrong = batch(3, base_offset=base_offset)
    wrong[22] ^= CONTROL
    return wrong


def _bomb(base_offset: int = 0) -> bytearray:
    return batch([b"\0" * 100_000] * 50, base_offset=base_offset, codec=Codec.GZIP)


def _zstd(base_offset: int = 0) -> bytearray:
    return batch(3, base_offset=base_offset, codec=Codec.ZSTD)


def _unknown_codec(base_offset: int = 0) -> bytes:
    return bytes(raw_batch(b"x", base_offset=base_offset, attributes=5))


def _not_gzip(base_offset: int = 0) -> bytes:
    return bytes(raw_batch(b"no gzip", base_offset=base_offset, attributes=Codec.GZIP))


def _impossible_length(base_offset: int = 0) -> bytes:
    return bytes(raw_batch(base_offset=base_offset, batch_length=-1))


Build = Callable[[int], bytes | bytearray]

REFUSED: list[tuple[Build, ErrorCode]] = [
    (_zstd, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (_with_wrong_crc, ErrorCode.CORRUPT_MESSAGE),
    (_with_a_flipped_control_bit, ErrorCode.CORRUPT_MESSAGE),
    (_not_gzip, ErrorCode.CORRUPT_MESSAGE),
    (_impossible_length, ErrorCode.CORRUPT_MESSAGE),
    (_bomb, ErrorCode.MESSAGE_TOO_LARGE),
    (_unknown_codec, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
]
EVERY_REFUSAL = pytest.mark.parametrize(
    ("build", "code"), REFUSED, ids=lambda each: getattr(each, "__name__", "")
)


@EVERY_MAGIC
@EVERY_REFUSAL
def test_inconvertible_first_batch_raises_with_error_code(build: Build, code: ErrorCode, magic: int) -> None:
    for before in (b"", bytes(marker(1, 5)), of([])):
        source = before + bytes(build(5)) + bytes(batch(2, base_offset=100))
        with pytest.raises(NotConvertible) as refused:
            conversion(source, magic, limit_bytes=1 << 20)
        assert refused.value.code == code
        assert isinstance(refused.value.__cause__, (CorruptBatch, UnsupportedBatch))


@EVERY_MAGIC
@EVERY_REFUSAL
@pytest.mark.parametrize("chunk_bytes", [0, 16 * 1024])
def test_inconvertible_later_batch_is_padded_and_raises_in_the_next_fetch(
    build: Build, code: ErrorCode, magic: int, chunk_bytes: int
) -> None:
    readable = b"".join(bytes(each) for each in _source(3, Codec.LZ4, 4))
    refused = bytes(build(12))
    source = readable + refused + bytes(batch(2, base_offset=100))
    data = converted(source, magic, limit_bytes=1 << 20, chunk_bytes=chunk_bytes)
    assert _offsets(data) == [*range(12)]
    with pytest.raises(NotConvertible) as error:
        conversion(source[len(readable) :], magic, fetch_offset=12, limit_bytes=1 << 20)
    assert error.value.code == code


def test_old_messages_with_newer_codecs_are_refused() -> None:
    for codec in (4, 5, 7):
        with pytest.raises(NotConvertible) as refused:
            conversion(message(1, attributes=codec), 1)
        assert refused.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_source_error_is_raised() -> None:
    def failing() -> Iterator[memoryview]:
        yield memoryview(batch(2))
        raise Disconnected("kafka:9092", "it closed the connection")

    found = DownConversion(failing(), magic=1, fetch_offset=0, source_bytes=1000)
    chunks = found.chunks()
    next(chunks)
    with pytest.raises(Disconnected):
        next(chunks)


def test_conversion_to_other_magics_raises() -> None:
    with pytest.raises(ValueError, match="magic 2"):
        conversion(batch(), 2)


# Whatever the records.


PARTS = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=140)


@st.composite
def _logs(draw: st.DrawFn) -> bytes:
    """Draw batches as a log has them: of any codec, with holes and headers, of markers too."""
    found = bytearray()
    offset = draw(st.integers(0, 2**50))
    for _ in range(draw(st.integers(1, 5))):
        records = []
        delta = 0
        for _ in range(draw(st.integers(0, 6))):
            delta += draw(st.integers(0, 3))
            headers = draw(st.lists(st.tuples(st.text(max_size=3), PARTS), max_size=2))
            timestamp_delta = draw(st.integers(-100, 20_000) | INT64)
            records.append(Record(draw(PARTS), draw(PARTS), headers, delta, timestamp_delta))
            delta += 1
        last = delta + draw(st.integers(0, 3))
        flags = draw(st.sampled_from((0, 0, LOG_APPEND_TIME, CONTROL | TRANSACTIONAL)))
        found += of(
            records,
            Codec.NONE if flags & CONTROL else draw(st.sampled_from(OLD_CODECS)),
            base_offset=offset,
            last_offset_delta=last,
            base_timestamp=draw(INT64),
            max_timestamp=draw(INT64),
            flags=flags,
        )
        offset += last + 1
    return bytes(found)


@given(_logs(), st.sampled_from(OLD_MAGICS), st.integers(0, 400))
def test_arbitrary_records_are_converted_unchanged(source: bytes, magic: int, chunk_bytes: int) -> None:
    expected = as_seen(data_records(source), magic)
    found = DownConversion(
        [memoryview(source)], magic=magic, fetch_offset=0, source_bytes=1 << 16, chunk_bytes=chunk_bytes
    )
    data = b"".join(found.chunks())
    assert read_by_kafka_python(data) == expected
    assert read(data) == expected
    assert bool(found.size) == bool(expected)


@given(_logs(), st.sampled_from(OLD_MAGICS), st.integers(0, 400), st.data())
def test_client_with_any_limit_reads_to_the_end(
    source: bytes, magic: int, chunk_bytes: int, data: st.DataObject
) -> None:
    """A response may announce less than all; the client fetches the rest."""
    expected = as_seen(data_records(source), magic)
    found: list[Values] = []
    offset = 0
    while True:
        rest = b"".join(
            bytes(each.view) for each in split(memoryview(source)) if each.header.next_offset > offset
        )
        under_way = DownConversion(
            [memoryview(rest)],
            magic=magic,
            fetch_offset=offset,
            source_bytes=data.draw(st.integers(0, len(rest))),
            chunk_bytes=chunk_bytes,
        )
        if not under_way.size:
            break
        sent = b"".join(under_way.chunks())
        assert len(sent) == under_way.size
        new = [values for values in read_by_kafka_python(sent) if values[0] >= offset]
        assert new
        found += new
        offset = new[-1][0] + 1
    assert found == expected


@given(damaged(_logs()), st.sampled_from(OLD_MAGICS), st.integers(0, 400))
def test_damaged_batches_are_converted_or_refused(data: bytes, magic: int, chunk_bytes: int) -> None:
    try:
        found = conversion(data, magic, chunk_bytes=chunk_bytes)
    except NotConvertible:
        return
    sent = b"".join(found.chunks())
    assert len(sent) == found.size
    for whole in whole_messages(sent):
        assert whole[16] <= magic


RECORDS = st.tuples(PARTS, PARTS).map(lambda parts: Record(*parts))


@given(damaged(st.lists(RECORDS, min_size=1, max_size=4).map(payload)), st.data())
def test_damaged_records_are_converted_or_refused(data: bytes, drawn: st.DataObject) -> None:
    """Behind a right CRC, as from a client that wrote them so."""
    codec = drawn.draw(st.sampled_from(OLD_CODECS))
    source = raw_batch(
        compressed(data, codec),
        attributes=codec,
        records_count=drawn.draw(st.integers(0, 5)),
        last_offset_delta=5,
    )
    (found,) = split(memoryview(source))
    magic = drawn.draw(st.sampled_from(OLD_MAGICS))
    try:
        messages = bytes(convert(found, magic, 0, LIMIT))
    except CorruptBatch as error:
        assert error.position == 0  # noqa: PT017
        return
    assert len(read_by_kafka_python(messages)) == found.header.records_count


def test_false_header_fields_are_detected() -> None:
    good = of(MIXED, Codec.NONE)
    for position, replacement in (
        (57, (4).to_bytes(4)),  # fewer records than there are
        (57, (6).to_bytes(4)),  # more
        (23, (3).to_bytes(4)),  # an offset behind the last
    ):
        lying = patched(good, position, replacement)
        with pytest.raises(NotConvertible) as refused:
            conversion(lying)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
