"""New batches from records."""

from __future__ import annotations

import math
import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from shoal.records import (
    HEADER_SIZE,
    Codec,
    Record,
    read_key_value_headers,
    read_records,
    split,
    stamp,
    verify_crc,
    write_batch,
    write_batches,
)
from tests.strategies import INT64
from tests.world.batches import batch
from tests.world.batches import view as view_of

LIMIT = 1 << 24

NONE_BODY = bytes.fromhex("01 01 00")


def test_written_batch_has_literal_bytes() -> None:
    records = [
        Record(1000, 1_600_000_000_000, bytes.fromhex("02 6b 02 76 00")),
        Record(1001, 1_600_000_001_000, NONE_BODY),
        Record(1004, 1_599_999_999_999, bytes.fromhex("01 01 02 02 68 01")),
    ]
    written = write_batch(records, Codec.NONE)
    assert written.view == bytes.fromhex(
        "0000000000000000"  # base_offset
        "0000004c"  # batch_length 76
        "ffffffff"  # leader_epoch
        "02"  # magic
        "8bb9a2b0"  # crc
        "0000"  # attributes
        "00000002"  # last_offset_delta
        "00000174876e8000"  # base_timestamp: the first record's
        "00000174876e83e8"  # max_timestamp: the second's
        "ffffffffffffffff"  # producer_id
        "ffff"  # producer_epoch
        "ffffffff"  # base_sequence
        "00000003"  # records_count
        "10 00 00 00 02 6b 02 76 00"
        "0e 00 d0 0f 02 01 01 00"
        "12 00 01 04 01 01 02 02 68 01"
    )
    assert (written.header,) == tuple(each.header for each in split(written.view))
    assert not written.view.readonly


@pytest.mark.parametrize("codec", Codec)
def test_written_batch_is_read_alike_by_other_libraries(codec: Codec) -> None:
    source = view_of(batch([b"value " * n for n in range(300)], base_offset=1000, holes=(0, 5, 6, 200)))
    records = read_records(source, LIMIT)
    written = write_batch(records, codec)
    verify_crc(written)
    header = written.header
    assert (header.base_offset, header.records_count, header.last_offset_delta) == (0, 296, 295)
    assert header.codec_id == codec
    assert not header.has_holes
    expected = []
    for index, record in enumerate(records):
        key, value, headers = read_key_value_headers(record)
        expected.append((index, record.timestamp, key, value, headers))
    again = read_records(written, LIMIT)
    assert [each.body for each in again] == [each.body for each in records]
    for library in (AiokafkaBatch, KafkaPythonBatch):
        found = library(bytes(written.view))
        assert found.validate_crc()
        assert [
            (each.offset, each.timestamp, each.key, each.value, list(each.headers)) for each in found
        ] == expected
    stamp(written, 7, 1, 12)
    (stamped,) = split(written.view)
    verify_crc(stamped)
    assert stamped.header.producer_id == 7


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("most_bytes", [61, 200, 1000, 5000, 10**6])
def test_records_that_do_not_fit_are_written_in_parts_that_are_half_full(
    codec: Codec, most_bytes: int
) -> None:
    records = [
        Record(5 + n, 1_600_000_000_000 + n * 7, b"\1\x10" + b"%08d" % (n * 7919 % 10**8) + b"\0")
        for n in range(500)
    ]
    found = list(write_batches(records, codec, most_bytes))
    assert [record for taken, _ in found for record in taken] == records
    assert found == list(write_batches(records, codec, most_bytes))
    for taken, written in found:
        assert written == write_batch(taken, codec)
        assert written.header.size <= most_bytes or len(taken) == 1
    if any(len(taken) > 1 for taken, _ in found):
        payload_bytes = sum(len(written.payload) for _, written in found)
        assert len(found) <= 2 * math.ceil(payload_bytes / (most_bytes - HEADER_SIZE))


@pytest.mark.parametrize("codec", Codec)
def test_oversized_record_is_written_in_its_own_batch(codec: Codec) -> None:
    noise = random.Random(1).randbytes(5000)
    large = b"\1" + b"\x90\x4e" + noise + b"\0"
    records = [Record(n, 5, large if n == 7 else NONE_BODY) for n in range(15)]
    found = list(write_batches(records, codec, 1000))
    assert [record.offset for taken, _ in found for record in taken] == [*range(15)]
    (alone,) = [(taken, written) for taken, written in found if written.header.size > 1000]
    assert [record.offset for record in alone[0]] == [7]
    assert read_key_value_headers(read_records(alone[1], LIMIT)[0])[1] == noise


def test_varints_of_any_size_are_written_as_they_are_read() -> None:
    timestamps = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**40, 2**63 - 1, -(2**63)]
    for base in (0, -1, 2**63 - 1, -(2**63), 1_600_000_000_000):
        bodies = [b"\1" + length + bytes(size) + b"\0" for length, size in ((b"\0", 0), (b"\xe8\x07", 500))]
        records = [
            Record(n, timestamp, bodies[n % 2]) for n, timestamp in enumerate([base, *timestamps, base])
        ]
        written = write_batch(records, Codec.NONE)
        assert written.header.max_timestamp == max(record.timestamp for record in records)
        assert read_records(written, LIMIT) == records
    # Offset deltas and lengths of one, two and three bytes.
    records = [Record(n, 0, NONE_BODY) for n in range(20_000)]
    assert read_records(write_batch(records, Codec.NONE), LIMIT) == records
    for size in (*range(50, 70), *range(8170, 8200), 100_000):
        (record,) = [Record(0, 0, bytes(size))]
        assert read_records(write_batch([record], Codec.NONE), LIMIT) == [record]
    for step in (1, 63, 64, 8191, 8192, 2**20):
        records = [Record(n, n * step, NONE_BODY) for n in range(5)]
        assert read_records(write_batch(records, Codec.NONE), LIMIT) == records


_RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=INT64 | st.integers(-1, 10_000),
        body=st.binary(min_size=3, max_size=30) | st.integers(3, 3000).map(bytes),
    ),
    min_size=1,
    max_size=30,
)


@given(_RECORDS, st.sampled_from(Codec), st.integers(0, 3000))
def test_written_batches_have_the_given_records(records: list[Record], codec: Codec, most_bytes: int) -> None:
    found = list(write_batches(records, codec, most_bytes))
    assert [record for taken, _ in found for record in taken] == records
    for taken, written in found:
        verify_crc(written)
        assert (written.header,) == tuple(each.header for each in split(written.view))
        assert written.header.size <= most_bytes or len(taken) == 1
        again = read_records(written, LIMIT)
        assert [(each.timestamp, each.body) for each in again] == [
            (each.timestamp, each.body) for each in taken
        ]
        assert [each.offset for each in again] == [*range(len(taken))]
