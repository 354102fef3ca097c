"""
The rows of ``format("shoal")``, each column declared once, for Spark and for Arrow.

With bytes (option ``rows=bytes``, the default), a row is one RecordBatch as in the source's log, for analysis
and archives. There are no rows for batches of aborted transactions, transaction markers and batches that
compaction emptied.

As headers (option ``rows=headers``), a row is the header of one batch, without its records. There is a row
for each batch of the log, transaction markers and aborted batches included.

As records (option ``rows=records``), a row is a record, with the columns of Spark's own Kafka source. A key,
a value or headers that a record does not have are null. So is a time that Spark's timestamps cannot hold.

In this package, ``RecordBatch`` alone is Kafka's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shoal.inspect.facts import codec_name
from shoal.inspect.reading import marker_of
from shoal.records import RecordBatch, read_key_value_headers, read_records, verify_crc
from shoal.records.aborted import Marker
from shoal.records.compression import DEFAULT_LIMIT_BYTES
from shoal.topic_partition import TopicPartition

__all__ = ["BYTES", "HEADERS", "RECORDS", "RowKind"]

#: Rows go to the JVM in pieces of about so many bytes.
_PIECE_BYTES = 4 * 1024 * 1024

#: About the size of a row without the bytes of a batch or record.
_ROW_BYTES = 256

#: The values of a row in the order of its columns, and the number of its bytes.
_Row: TypeAlias = tuple[tuple[Any, ...], int]

_MARKERS = {Marker.COMMIT.value: "commit", Marker.ABORT.value: "abort"}

#: As Kafka's ``TimestampType`` numbers them.
_NO_TIMESTAMP_TYPE, _CREATE_TIME, _LOG_APPEND_TIME = -1, 0, 1

#: Beyond them, microseconds have more than 64 bits.
_LARGEST_MS = (2**63 - 1) // 1000

_HEADERS_OF_RECORD = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_ARROW: Mapping[type, pa.DataType] = {
    StringType: pa.string(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    BooleanType: pa.bool_(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    BinaryType: pa.binary(),
    ArrayType: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def _control(batch: RecordBatch) -> str | None:
    if not batch.header.is_control:
        return None
    marker = marker_of(batch)
    return "emptied" if marker is None else _MARKERS.get(marker, str(marker))


def _of_header(name: str) -> Callable[[RecordBatch], Any]:
    get = attrgetter(name)
    return lambda batch: get(batch.header)


#: The type of each column and its value of a batch. ``codec`` is ``none``, ``gzip``, ``snappy``, ``lz4`` or
#: ``zstd``. ``timestamp_type`` is ``CreateTime`` or ``LogAppendTime``. ``batch`` is the whole batch: header
#: and compressed records. Times in milliseconds may be beyond the calendar. ``control`` is ``commit`` or
#: ``abort``, a number for another type, ``emptied`` if compaction removed the record, and null for a batch
#: of records.
_COLUMNS: Mapping[str, tuple[type[DataType], Callable[[RecordBatch], Any]]] = {
    "base_offset": (LongType, _of_header("base_offset")),
    "last_offset": (LongType, _of_header("last_offset")),
    "records_count": (IntegerType, _of_header("records_count")),
    "size_bytes": (IntegerType, _of_header("size")),
    "magic": (IntegerType, _of_header("magic")),
    "codec": (StringType, lambda batch: codec_name(batch.header.codec_id)),
    "timestamp_type": (
        StringType,
        lambda batch: "LogAppendTime" if batch.header.is_log_append_time else "CreateTime",
    ),
    "base_timestamp": (TimestampType, lambda batch: batch.header.base_timestamp * 1000),
    "max_timestamp": (TimestampType, lambda batch: batch.header.max_timestamp * 1000),
    "base_timestamp_ms": (LongType, _of_header("base_timestamp")),
    "max_timestamp_ms": (LongType, _of_header("max_timestamp")),
    "producer_id": (LongType, _of_header("producer_id")),
    "producer_epoch": (IntegerType, _of_header("producer_epoch")),
    "base_sequence": (IntegerType, _of_header("base_sequence")),
    "transactional": (BooleanType, _of_header("is_transactional")),
    "control": (StringType, _control),
    "leader_epoch": (IntegerType, _of_header("leader_epoch")),
    "batch": (BinaryType, lambda batch: bytes(batch.view)),
}

_OF_BYTES = (
    *("base_offset", "last_offset", "records_count", "codec", "timestamp_type", "base_timestamp"),
    *("max_timestamp", "producer_id", "transactional", "batch"),
)
_OF_HEADERS = (
    *("base_offset", "last_offset", "records_count", "size_bytes", "magic", "codec", "timestamp_type"),
    *("base_timestamp_ms", "max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence"),
    *("transactional", "control", "leader_epoch"),
)


def _schema(names: Iterable[str]) -> StructType:
    kinds = {"topic": StringType, "partition": IntegerType} | {name: _COLUMNS[name][0] for name in names}
    return StructType([StructField(name, kind(), name == "control") for name, kind in kinds.items()])


BYTES, HEADERS = _schema(_OF_BYTES), _schema(_OF_HEADERS)
RECORDS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", _HEADERS_OF_RECORD),
    ]
)


class RowKind(enum.Enum):
    """The meaning of a row. The value is that of the option ``rows``."""

    BYTES = "bytes"
    HEADERS = "headers"
    RECORDS = "records"

    @property
    def schema(self) -> StructType:
        """The columns."""
        return {RowKind.BYTES: BYTES, RowKind.HEADERS: HEADERS, RowKind.RECORDS: RECORDS}[self]

    def to_arrow(
        self, partition: TopicPartition, batches: Iterable[RecordBatch], offsets: range
    ) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows of batches of a partition, some at a time.

        Args:
            partition: The partition.
            batches: The batches that have a row, or whose records have. Each is looked at before the next is
                taken.
            offsets: Records with other offsets have no row.

        Raises:
            CorruptBatch: A batch whose records are read is damaged.
            UnsupportedBatch: Its records expand to more than 64 MiB, or its codec is unknown.

        """
        schema = pa.schema(
            [pa.field(each.name, _ARROW[type(each.dataType)], each.nullable) for each in self.schema.fields]
        )
        rows: list[tuple[Any, ...]] = []
        size = 0
        for batch in batches:
            for row, row_bytes in self._rows(partition, batch, offsets):
                rows.append(row)
                size += _ROW_BYTES + row_bytes
                if size >= _PIECE_BYTES:
                    yield _piece(schema, rows)
                    rows, size = [], 0
        if rows:
            yield _piece(schema, rows)

    def _rows(self, partition: TopicPartition, batch: RecordBatch, offsets: range) -> Iterator[_Row]:
        if self is RowKind.RECORDS:
            yield from _record_rows(partition, batch, offsets)
        else:
            names = _OF_BYTES if self is RowKind.BYTES else _OF_HEADERS
            row = (*partition, *(_COLUMNS[name][1](batch) for name in names))
            yield row, batch.header.size if self is RowKind.BYTES else 0


def _piece(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=each.type) for column, each in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _record_rows(partition: TopicPartition, batch: RecordBatch, offsets: range) -> Iterator[_Row]:
    verify_crc(batch)
    kind, append_time = _timestamp_type(batch), batch.header.append_time
    for record in read_records(batch, DEFAULT_LIMIT_BYTES):
        if record.offset not in offsets:
            continue
        key, value, headers = read_key_value_headers(record)
        at_ms = record.timestamp if append_time is None else append_time
        microseconds = at_ms * 1000 if -_LARGEST_MS <= at_ms <= _LARGEST_MS else None
        names = [(name.decode(errors="replace"), content) for name, content in headers]
        row = (key, value, *partition, record.offset, microseconds, kind, names or None)
        yield row, sum(len(each or b"") for each in (key, value, *chain.from_iterable(headers)))


def _timestamp_type(batch: RecordBatch) -> int:
    if batch.header.magic == 0:
        return _NO_TIMESTAMP_TYPE
    return _LOG_APPEND_TIME if batch.header.is_log_append_time else _CREATE_TIME
