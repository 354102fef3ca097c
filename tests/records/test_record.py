"""The records in a batch of magic 2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from shoal.errors import CorruptBatch, UnsupportedBatch
from shoal.protocol.fetch import FetchedPartition, decode_fetch_response
from shoal.records import (
    Codec,
    Record,
    RecordBatch,
    compress,
    read_key_value_headers,
    read_records,
    split,
    write_batch,
)
from tests.each_case import each_case
from tests.peak_memory import peak_below
from tests.snapshots import Texts
from tests.strategies import INT64
from tests.vectors import Vector, vectors
from tests.world.batches import LOG_APPEND_TIME, batch, payload, raw_batch
from tests.world.batches import Record as Written
from tests.world.batches import view as view_of

LIMIT = 1 << 20

# Three records, uncompressed, by hand: key "k" and value "v"; null key and empty value;
# null value and a header "h" whose value is null.
LITERAL_RECORDS = bytes.fromhex(
    "10 00 00 00 02 6b 02 76 00"  # length 8, attributes, time 0, offset 0, "k", "v", no headers.
    "0e 00 d0 0f 02 01 00 00"  # length 7, time 1000, offset 1, null, empty, no headers.
    "12 00 01 08 01 01 02 02 68 01"  # length 9, time -1, offset 4, null, null, one header.
)
LITERAL = raw_batch(LITERAL_RECORDS, base_offset=1000, last_offset_delta=4, records_count=3)
LITERAL_READ = [
    Record(1000, 1_600_000_000_000, bytes.fromhex("02 6b 02 76 00")),
    Record(1001, 1_600_000_001_000, bytes.fromhex("01 00 00")),
    Record(1004, 1_599_999_999_999, bytes.fromhex("01 01 02 02 68 01")),
]


def test_literal_records_are_read() -> None:
    found = read_records(view_of(LITERAL), LIMIT)
    assert found == LITERAL_READ
    assert [read_key_value_headers(record) for record in found] == [
        (b"k", b"v", []),
        (None, b"", []),
        (None, None, [(b"h", None)]),
    ]


@pytest.mark.parametrize("codec", Codec)
def test_compressed_records_are_read_like_uncompressed_ones(codec: Codec) -> None:
    compressed = raw_batch(
        compress(codec, LITERAL_RECORDS),
        base_offset=1000,
        last_offset_delta=4,
        records_count=3,
        attributes=codec,
    )
    assert read_records(view_of(compressed), LIMIT) == LITERAL_READ


def _recorded() -> Iterator[tuple[Vector, FetchedPartition]]:
    """Every partition that a real broker answered with, and the response that it was in."""
    for vector in vectors():
        if vector.api == "Fetch" and vector.direction == "response":
            response = decode_fetch_response(memoryview(vector.frame), vector.version, vector.names)
            for partition in response.partitions:
                yield vector, partition


RECORDED = [(vector, partition) for vector, partition in _recorded() if len(partition.record_set)]


def _name(recorded: tuple[Vector, FetchedPartition]) -> str:
    vector, partition = recorded
    return f"{vector.name}-{partition.topic}-{partition.partition}"


def _values(record: Any) -> tuple[Any, ...]:
    """Return another library's record as ours."""
    key, value, headers = read_key_value_headers(record)
    return record.offset, record.timestamp, key, value, headers


@each_case("recorded", RECORDED, _name)
def test_recorded_batches_are_read_as_by_other_libraries(recorded: tuple[Vector, FetchedPartition]) -> None:
    _, partition = recorded
    for stored in split(partition.record_set):
        found = [_values(record) for record in read_records(stored, LIMIT)]
        assert len(found) == stored.header.records_count
        for library in (AiokafkaBatch, KafkaPythonBatch):
            if stored.header.is_log_append_time:
                continue  # they put the append time in place of the create times; see below
            others = [
                (
                    each.offset,
                    each.timestamp,
                    each.key,
                    each.value,
                    [(name.encode(), value) for name, value in each.headers],
                )
                for each in library(bytes(stored.view))
            ]
            assert found == others


def test_batch_with_log_append_time_keeps_create_times() -> None:
    found = view_of(batch(3, flags=LOG_APPEND_TIME, base_timestamp=5000))
    assert [record.timestamp for record in read_records(found, LIMIT)] == [5000, 5001, 5002]
    (recorded,) = [
        partition for vector, partition in _recorded() if vector.name == "fetch-v12-log-append-time.response"
    ]
    for each in split(recorded.record_set):
        # These are the producer's times, not the broker's in the header.
        timestamps = [record.timestamp for record in read_records(each, LIMIT)]
        assert timestamps[0] == each.header.base_timestamp
        assert each.header.max_timestamp not in timestamps


@pytest.mark.parametrize(
    ("records", "fields"),
    [
        (b"", {}),
        (LITERAL_RECORDS, {"records_count": 2}),
        (LITERAL_RECORDS, {"records_count": 4}),
        (LITERAL_RECORDS[:-1], {"records_count": 3}),
        (LITERAL_RECORDS, {"records_count": 0}),
        (LITERAL_RECORDS, {"records_count": 3, "last_offset_delta": 3}),
        (b"\x01", {}),
        (b"\xff\xff\xff\xff\x0f", {}),
        (b"\x80\x80\x80\x80\x80\x01", {}),
        (b"\xff\xff\xff\xff\x1f", {}),
        (b"\xfe\xff\xff\xff\x0f" + bytes(100), {}),
        (b"\x20\0" + b"\x80" * 10 + b"\1\0\1\1\0", {}),
        (b"\x1e\0" + b"\xff" * 9 + b"\3\0\1\1\0", {}),
        (b"\x0c\0\0\1\1\1\0", {}),
        (b"\x0c\0\0\0\1\1\0" * 2, {"records_count": 2}),
        (b"\x0c\0\0\2\1\1\0\x0c\0\0\0\1\1\0", {"records_count": 2}),
        (b"\x0a\0\0\0\1\1", {}),
        (b"\0", {}),
        (b"\2\0\0\0", {}),
        (b"\2\0\xff\xff\xff\xff\xff\xff\1\0\1\1\0", {}),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_malformed_records_are_corrupt_with_reason_and_position(
    codec: Codec, records: bytes, fields: dict[str, int], texts: Texts
) -> None:
    fields = {"records_count": 1, "last_offset_delta": 10, "base_offset": 77, **fields}
    found = view_of(raw_batch(compress(codec, records), attributes=codec, **fields))
    with pytest.raises(CorruptBatch) as caught:
        read_records(found, LIMIT)
    texts(str(caught.value))
    assert caught.value.position == 77


def test_payload_that_does_not_decompress_is_corrupt_with_its_offset() -> None:
    found = view_of(raw_batch(b"no gzip", attributes=Codec.GZIP, base_offset=77))
    with pytest.raises(CorruptBatch, match=r"corrupt.*77"):
        read_records(found, LIMIT)


def test_unknown_codec_is_unsupported() -> None:
    with pytest.raises(UnsupportedBatch, match=r"6.*unknown") as caught:
        read_records(view_of(raw_batch(b"?", attributes=6, base_offset=77)), LIMIT)
    assert caught.value.base_offset == 77


def test_limit_applies_to_compressed_batches_alone() -> None:
    values = [b"x" * 1000] * 20
    plain = view_of(batch(values, base_offset=77))
    assert len(read_records(plain, 0)) == 20
    size = len(plain.payload)
    for codec in Codec:
        if codec:
            found = view_of(batch(values, base_offset=77, codec=codec))
            assert len(read_records(found, size)) == 20
            with pytest.raises(UnsupportedBatch) as caught:
                read_records(found, size - 1)
            assert re.search(r"offset.*77", str(caught.value))
            assert f"{size - 1} bytes" in str(caught.value)
            assert re.search(r"maximum.*decompressed", str(caught.value))


def test_bomb_of_many_empty_records_is_refused() -> None:
    """200,000 records of 7 to 9 bytes each would take 40 MB as objects; zstd has them in 0.2 MB."""
    count = 200_000
    written = write_batch([Record(0, 0, b"\1\1\0")] * count, Codec.ZSTD)
    refused = pytest.raises(UnsupportedBatch, match=r"200000.*records.*64")
    with peak_below(1 << 20), refused:
        read_records(written, 4 << 20)
    assert len(read_records(written, 16 << 20)) == count


def test_count_of_billions_is_refused_at_once() -> None:
    claimed = raw_batch(LITERAL_RECORDS, records_count=2**31 - 1, last_offset_delta=2**31 - 2)
    with pytest.raises(CorruptBatch, match=r"3.*instead.*2147483647"):
        read_records(view_of(claimed), LIMIT)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\1",
        b"\1\1",
        b"\1\1\1",
        b"\1\1\2",
        b"\1\1\2\1\1",
        b"\1\1\0\0",
        b"\4k\0\0",
        b"\x08k\1\0",
        b"\1\xfe\xff\xff\xff\x0f",
        b"\1\1\xfe\xff\xff\xff\x0f\0\0",
        b"\1\1\x80\x80\x80\x80\x80\0",
    ],
)
def test_malformed_record_body_is_corrupt(body: bytes, texts: Texts) -> None:
    with pytest.raises(CorruptBatch) as caught:
        read_key_value_headers(Record(77, -1, body))
    texts(str(caught.value))
    assert caught.value.position == 77


_BODIES = st.builds(
    Written,
    value=st.none() | st.binary(max_size=20),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3),
    timestamp_delta=st.integers(-(2**40), 2**40) | st.integers(-100, 100),
)


@st.composite
def _batches(draw: st.DrawFn) -> bytes:
    """Draw a batch whose records make sense, with or without holes."""
    records = draw(st.lists(_BODIES, min_size=1, max_size=8))
    steps = draw(st.lists(st.integers(1, 3) | st.integers(1, 10**7), min_size=len(records), max_size=8))
    delta = -1
    numbered = []
    for record, step in zip(records, steps, strict=False):
        delta += step
        numbered.append(record._replace(offset_delta=delta))
    codec = draw(st.sampled_from(Codec))
    return bytes(
        raw_batch(
            payload(numbered, codec),
            base_offset=draw(st.integers(0, 2**60)),
            last_offset_delta=delta + draw(st.integers(0, 5)),
            base_timestamp=draw(INT64),
            records_count=len(numbered),
            attributes=codec,
        )
    )


@given(_batches())
def test_arbitrary_records_are_read_as_by_another_library(data: bytes) -> None:
    found = [_values(record) for record in read_records(view_of(data), LIMIT)]
    others = [
        (
            each.offset,
            (each.timestamp + 2**63) % 2**64 - 2**63,
            each.key,
            each.value,
            [(name.encode(), value) for name, value in each.headers],
        )
        for each in KafkaPythonBatch(data)
    ]
    assert found == others


def test_records_outlive_the_buffer_of_their_view() -> None:
    buffer = bytearray(LITERAL)
    found = read_records(RecordBatch(view_of(LITERAL).header, memoryview(buffer)), LIMIT)
    buffer[:] = bytes(len(buffer))
    assert found == LITERAL_READ
