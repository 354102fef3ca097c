"""Messages of magic 0 and 1: of Kafka 2.8.2, of other libraries, and malformed ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaMessage
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonMessage
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from shoal.errors import CorruptBatch, UnsupportedBatch
from shoal.protocol.fetch import FetchedPartition, decode_fetch_response
from shoal.records import Codec, Record, read_key_value_headers, read_records, split, verify_crc, write_batch
from tests.each_case import each_case
from tests.snapshots import Texts
from tests.strategies import INT64
from tests.vectors import Vector, old_vectors
from tests.world import batches
from tests.world.batches import LOG_APPEND_TIME, TIMESTAMP, message, wrapper
from tests.world.batches import view as view_of

LIMIT = 1 << 20
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def _recorded() -> Iterator[tuple[Vector, FetchedPartition]]:
    for vector in old_vectors():
        if vector.api == "Fetch" and vector.direction == "response":
            for partition in decode_fetch_response(memoryview(vector.frame), vector.version).partitions:
                yield vector, partition


RECORDED = [(vector, partition) for vector, partition in _recorded() if len(partition.record_set)]


def _name(recorded: tuple[Vector, FetchedPartition]) -> str:
    return recorded[0].name


def _values(record: Record) -> tuple[int, int, bytes | None, bytes | None]:
    key, value, _ = read_key_value_headers(record)
    return record.offset, record.timestamp, key, value


def _others_values(record: Any) -> tuple[int, int, bytes | None, bytes | None]:
    timestamp = -1 if record.timestamp is None else record.timestamp
    return record.offset, timestamp, record.key, record.value


def _readers(magic: int, codec_id: int) -> list[Callable[..., Any]]:
    """Return the other libraries that can read it: aiokafka has no lz4 for magic 0."""
    return (
        [KafkaPythonMessage] if (magic, codec_id) == (0, Codec.LZ4) else [AiokafkaMessage, KafkaPythonMessage]
    )


@each_case("recorded", RECORDED, _name)
def test_recorded_messages_are_read_as_by_kafka_s_tool_and_other_libraries(
    recorded: tuple[Vector, FetchedPartition],
) -> None:
    vector, partition = recorded
    dumped = vector.messages[f"{partition.topic}-{partition.partition}"]
    # The upgraded partition has batches of magic 2 as well; the dump has only messages.
    batches = [batch for batch in split(partition.record_set) if batch.header.magic != 2]
    assert len(batches) == len(dumped) > 0
    for batch, said in zip(batches, dumped, strict=True):
        header = batch.header
        verify_crc(batch)
        records = read_records(batch, LIMIT)
        assert [[record.offset, record.timestamp] for record in records] == said["records"]
        assert header.magic == said["magic"]
        assert Codec(header.codec_id).name.lower() == said["codec"]
        assert header.is_log_append_time == (said["timestamp_type"] == "LogAppendTime")
        assert header.base_offset == header.last_offset == said["offset"] == records[-1].offset
        assert not any(read_key_value_headers(record)[2] for record in records)
        for library in _readers(header.magic, header.codec_id):
            others = library(bytes(batch.view), header.magic)
            assert [_others_values(each) for each in others] == [_values(record) for record in records]


@each_case("recorded", RECORDED, _name)
def test_recorded_messages_are_rebuilt_as_one_batch(recorded: tuple[Vector, FetchedPartition]) -> None:
    _, partition = recorded
    records = [record for batch in split(partition.record_set) for record in read_records(batch, LIMIT)]
    again = read_records(write_batch(records, Codec.LZ4), LIMIT)
    assert [_values(each)[1:] for each in again] == [_values(each)[1:] for each in records]


@pytest.mark.parametrize(
    ("writer", "magic", "codec"),
    [
        (writer, magic, codec)
        for writer in (AiokafkaBuilder, KafkaPythonBuilder)
        for magic in (0, 1)
        for codec in (Codec.NONE, *CODECS)
        if (writer, magic, codec) != (AiokafkaBuilder, 0, Codec.LZ4)
    ],
)
def test_messages_of_other_libraries_are_read_as_by_them(
    writer: Callable[..., Any], magic: int, codec: Codec
) -> None:
    builder = writer(magic=magic, compression_type=codec, batch_size=1 << 20)
    expected = []
    for offset in range(300):
        key = None if offset % 3 == 0 else b"key %d" % offset
        value = None if offset % 7 == 0 else b"value " * offset
        builder.append(offset, TIMESTAMP + offset, key, value)
        expected.append((offset, TIMESTAMP + offset if magic else -1, key, value))
    data = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", data, 0, 299)  # as the broker does
    found = list(split(memoryview(data)))
    assert [_values(record) for batch in found for record in read_records(batch, LIMIT)] == expected
    for other in _readers(magic, codec):
        theirs = [_others_values(each) for batch in found for each in other(bytes(batch.view), magic)]
        assert theirs == expected


def _inner(magic: int, offsets: list[int]) -> list[bytearray]:
    return [message(magic, b"%d" % offset, offset=offset, timestamp=1000 + offset) for offset in offsets]


def _offsets_and_timestamps(data: bytes | bytearray) -> list[tuple[int, int]]:
    return [(record.offset, record.timestamp) for record in read_records(view_of(data), LIMIT)]


def test_lz4_checksum_is_wrong_only_in_wrappers_of_magic_0() -> None:
    old = wrapper(0, Codec.LZ4, _inner(0, [3, 4]), offset=4)
    assert _offsets_and_timestamps(old) == [(3, -1), (4, -1)]
    value = bytes(old[26:])
    with pytest.raises(CorruptBatch, match="not lz4"):
        read_records(view_of(message(1, value, offset=4, attributes=Codec.LZ4)), LIMIT)
    # The right one does for both.
    right = wrapper(1, Codec.LZ4, _inner(0, [3, 4]), offset=4)
    value = bytes(right[34:])
    for magic in (0, 1):
        assert len(read_records(view_of(message(magic, value, offset=4, attributes=Codec.LZ4)), LIMIT)) == 2


def _of_its_length(data: bytes | bytearray) -> bytes:
    """Return a message that names its own length, whatever those of its parts say."""
    return bytes(data[:8]) + (len(data) - 12).to_bytes(4) + data[12:]


GOOD = bytes(message(1, b"x"))
NESTED = wrapper(1, Codec.GZIP, [GOOD])


@pytest.mark.parametrize(
    "data",
    [
        message(1, None, offset=77, attributes=Codec.GZIP),
        message(0, None, offset=77, attributes=Codec.LZ4),
        message(1, b"", offset=77, attributes=Codec.GZIP),
        wrapper(1, Codec.GZIP, [], offset=77),
        wrapper(0, Codec.LZ4, [], offset=77),
        wrapper(1, Codec.ZSTD, [GOOD], offset=77),
        message(0, GOOD, offset=77, attributes=7),
        wrapper(1, Codec.GZIP, [NESTED], offset=77),
        message(1, b"no gzip", offset=77, attributes=Codec.GZIP),
        message(0, b"no lz4", offset=77, attributes=Codec.LZ4),
        wrapper(1, Codec.GZIP, [GOOD[:-1]], offset=77),
        wrapper(1, Codec.GZIP, [GOOD, GOOD[:11]], offset=77),
        wrapper(1, Codec.GZIP, [GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:]], offset=77),
        wrapper(1, Codec.GZIP, [bytes(12)], offset=77),
        wrapper(1, Codec.GZIP, [message(1, crc=1)], offset=77),
        wrapper(1, Codec.GZIP, [batches.batch(1)], offset=77),
        wrapper(1, Codec.GZIP, [struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8)], offset=77),
        wrapper(1, Codec.GZIP, _inner(1, [0, 0]), offset=77),
        wrapper(1, Codec.GZIP, _inner(1, [0, 2, 1]), offset=77),
        wrapper(0, Codec.GZIP, _inner(0, [77, 78]), offset=77),
        wrapper(0, Codec.GZIP, _inner(0, [-1]), offset=77),
        wrapper(1, Codec.GZIP, _inner(1, [0, 78]), offset=77),
        _of_its_length(message(1, b"x", offset=77)[:-1]),
    ],
)
def test_malformed_message_is_corrupt_with_reason_and_position(data: bytes, texts: Texts) -> None:
    with pytest.raises(CorruptBatch) as caught:
        read_records(view_of(data), LIMIT)
    texts(str(caught.value))
    assert caught.value.position == 77


@pytest.mark.parametrize(
    "data",
    [
        message(0, b"", offset=77) + b"?",
        message(0, b"", offset=77)[:-2],
        message(0, b"", key=b"1234", offset=77)[:-2],
        message(1, b"", offset=77)[:-8],
    ],
)
def test_inconsistent_lengths_are_corrupt(data: bytes, texts: Texts) -> None:
    with pytest.raises(CorruptBatch) as refused:
        read_records(view_of(_of_its_length(data)), LIMIT)
    texts(str(refused.value))


def test_wrapper_beyond_the_limit_is_refused() -> None:
    big = [message(1, bytes(1000), offset=offset) for offset in range(20)]
    size = sum(map(len, big))
    for codec in CODECS:
        for magic in (0, 1):
            found = view_of(wrapper(magic, codec, big, offset=77))
            with pytest.raises(UnsupportedBatch, match=rf"{size - 1}.*maximum"):
                read_records(found, size - 1)
        assert len(read_records(found, size)) == 20
    # 26 bytes each, and an object of ours for each of them.
    small = [message(0, b"", offset=offset) for offset in range(1000)]
    found = view_of(wrapper(0, Codec.GZIP, small, offset=999))
    with pytest.raises(UnsupportedBatch, match=r"1000.*records.*64"):
        read_records(found, 63_999)
    assert len(read_records(found, 64_000)) == 1000


@st.composite
def _message_sets(draw: st.DrawFn) -> bytes:
    """Draw a wrapper or a message that makes sense."""
    magic = draw(st.sampled_from((0, 1)))
    parts = st.none() | st.binary(max_size=20)
    codec = draw(st.sampled_from([Codec.NONE, *CODECS]))
    flags = draw(st.sampled_from((0, LOG_APPEND_TIME)))
    if codec == Codec.NONE:
        return bytes(message(magic, draw(parts), key=draw(parts), attributes=flags, timestamp=draw(INT64)))
    steps = draw(st.lists(st.integers(1, 3) | st.integers(1, 10**7), min_size=1, max_size=6))
    offset = -1
    inner = []
    for step in steps:
        offset += step
        inner.append(
            bytes(message(magic, draw(parts), key=draw(parts), offset=offset, timestamp=draw(INT64)))
        )
    last = offset + (draw(st.integers(0, 2**60)) if magic else 0)
    return bytes(wrapper(magic, codec, inner, offset=last, flags=flags, timestamp=draw(INT64)))


@given(_message_sets())
def test_arbitrary_messages_are_read_as_by_another_library(data: bytes) -> None:
    found = [_values(record) for record in read_records(view_of(data), LIMIT)]
    assert found == [_others_values(each) for each in KafkaPythonMessage(data, data[16])]
