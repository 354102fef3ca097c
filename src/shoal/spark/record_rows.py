"""
The rows of ``rows=records``: one for each record, with the columns of Spark's own Kafka source.

A key, a value or headers that a record does not have are null. So is a time that Spark's timestamps cannot
hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shoal.records import Record, RecordBatch, read_key_value_headers, read_records, verify_crc
from shoal.records.compression import DEFAULT_LIMIT_BYTES
from shoal.topic_partition import TopicPartition

__all__ = ["RECORDS", "record_rows"]

RECORDS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)

#: Rows go to the JVM in pieces of about so many bytes, or of so many rows.
_PIECE_BYTES = 4 * 1024 * 1024
_PIECE_ROWS = 16 * 1024

#: As Kafka's ``TimestampType`` numbers them.
_NO_TIMESTAMP_TYPE, _CREATE_TIME, _LOG_APPEND_TIME = -1, 0, 1

#: Beyond them, microseconds have more than 64 bits.
_LARGEST_MS = (2**63 - 1) // 1000


class _Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    offset: int
    microseconds: int | None
    timestamp_type: int
    headers: list[tuple[str, bytes | None]] | None


def record_rows(
    partition: TopicPartition, batches: Iterable[RecordBatch], offsets: range
) -> Iterator[pa.RecordBatch]:
    """
    Yield the rows of a partition's records, some at a time.

    Args:
        batches: Batches of records, without control batches. Each is looked at before the next is taken.
        offsets: Records with other offsets have no row.

    Raises:
        CorruptBatch: A batch is damaged.
        UnsupportedBatch: The records of a batch expand to more than 64 MiB, or its codec is unknown.

    """
    rows: list[_Row] = []
    size = 0
    for batch in batches:
        for row in _rows(batch, offsets):
            rows.append(row)
            size += len(row.key or b"") + len(row.value or b"")
            size += sum(len(name) + len(value or b"") for name, value in row.headers or ())
            if size >= _PIECE_BYTES or len(rows) >= _PIECE_ROWS:
                yield _piece(partition, rows)
                rows, size = [], 0
    if rows:
        yield _piece(partition, rows)


def _rows(batch: RecordBatch, offsets: range) -> Iterator[_Row]:
    verify_crc(batch)
    kind, append_time = _timestamp_type(batch), batch.header.append_time
    for record in read_records(batch, DEFAULT_LIMIT_BYTES):
        if record.offset in offsets:
            yield _row(record, record.timestamp if append_time is None else append_time, kind)


def _timestamp_type(batch: RecordBatch) -> int:
    if batch.header.magic == 0:
        return _NO_TIMESTAMP_TYPE
    return _LOG_APPEND_TIME if batch.header.is_log_append_time else _CREATE_TIME


def _row(record: Record, milliseconds: int, kind: int) -> _Row:
    key, value, headers = read_key_value_headers(record)
    is_held = -_LARGEST_MS <= milliseconds <= _LARGEST_MS
    names = [(name.decode(errors="replace"), content) for name, content in headers]
    return _Row(key, value, record.offset, milliseconds * 1000 if is_held else None, kind, names or None)


def _piece(partition: TopicPartition, rows: list[_Row]) -> pa.RecordBatch:
    keys, values, offsets, times, kinds, headers = zip(*rows, strict=True)
    columns: dict[str, Any] = {
        "key": keys,
        "value": values,
        "topic": [partition.topic] * len(rows),
        "partition": [partition.partition] * len(rows),
        "offset": offsets,
        "timestamp": times,
        "timestampType": kinds,
        "headers": headers,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[each.name], type=each.type) for each in _ARROW], schema=_ARROW
    )
