"""
The rows of ``format("shoal")``, each column declared once, for Spark and for Arrow.

With bytes (option ``rows=bytes``, the default), a row is one RecordBatch as in the source's log, for analysis
and archives. There are no rows for batches of aborted transactions, transaction markers and batches that
compaction emptied.

As headers (option ``rows=headers``), a row is the header of one batch, without its records. There is a row
for each batch of the log, transaction markers and aborted batches included.

As records (option ``rows=records``), a row is a record (:mod:`.record_rows`).

In this package, ``RecordBatch`` alone is Kafka's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shoal.inspect.facts import codec_name
from shoal.inspect.reading import marker_of
from shoal.records import RecordBatch
from shoal.records.aborted import Marker
from shoal.spark.record_rows import RECORDS, record_rows
from shoal.topic_partition import TopicPartition

__all__ = ["BYTES", "HEADERS", "RowKind"]

#: Rows go to the JVM in pieces of about so many bytes.
_PIECE_BYTES = 4 * 1024 * 1024

#: About the size of a row without the batch.
_ROW_BYTES = 256

_MARKERS = {Marker.COMMIT.value: "commit", Marker.ABORT.value: "abort"}

_ARROW: Mapping[type, pa.DataType] = {
    StringType: pa.string(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    BooleanType: pa.bool_(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    BinaryType: pa.binary(),
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
_COLUMNS: Mapping[str, tuple[type, Callable[[RecordBatch], Any]]] = {
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

_PARTITION = {"topic": StringType, "partition": IntegerType}

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
    kinds = _PARTITION | {name: _COLUMNS[name][0] for name in names}
    return StructType([StructField(name, kind(), name == "control") for name, kind in kinds.items()])


BYTES, HEADERS = _schema(_OF_BYTES), _schema(_OF_HEADERS)


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
        """Yield the rows of batches of a partition, some at a time; records only if they have the offsets."""
        if self is RowKind.RECORDS:
            yield from record_rows(partition, batches, offsets)
            return
        columns = [(name, *_COLUMNS[name]) for name in self.schema.names if name in _COLUMNS]
        schema = pa.schema(
            [pa.field(each.name, _ARROW[type(each.dataType)], each.nullable) for each in self.schema.fields]
        )
        rows: list[dict[str, Any]] = []
        size = 0
        for batch in batches:
            rows.append({**partition._asdict(), **{name: get(batch) for name, _, get in columns}})
            size += _ROW_BYTES + len(rows[-1].get("batch", b""))
            if size >= _PIECE_BYTES:
                yield pa.RecordBatch.from_pylist(rows, schema=schema)
                rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
