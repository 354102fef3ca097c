"""Conversions to old messages, records for them, and readers of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from kafka.record.memory_records import MemoryRecords

from shoal.records import Codec, read_key_value_headers, read_records, split
from shoal.records.down_conversion import DownConversion
from tests.world.batches import (
    TIMESTAMP,
    TRANSACTIONAL,
    Record,
    batch,
    marker,
    payload,
    raw_batch,
    whole_messages,
)

LIMIT = 1 << 22
OLD_MAGICS = (0, 1)
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
OVERFLOW_OFFSET = b"\xff" * 8

EVERY_MAGIC = pytest.mark.parametrize("magic", OLD_MAGICS)
EVERY_CODEC = pytest.mark.parametrize("codec", OLD_CODECS)

#: Offset, timestamp, key and value.
Values = tuple[int, int, bytes | None, bytes | None]


def conversion(
    record_set: bytes | bytearray, magic: int = 1, *, fetch_offset: int = 0, **options: Any
) -> DownConversion:
    """Convert a whole record set that is in memory."""
    return DownConversion(memoryview(record_set), magic=magic, fetch_offset=fetch_offset, **options)


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


def transactions() -> bytearray:
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


def offsets_of(data: bytes) -> list[int]:
    return [offset for offset, *_ in read_by_kafka_python(data)]
