"""
The schemas of rows of ``format("shoal")``.

With bytes (option ``rows=bytes``, the default), a row is one RecordBatch as in the source's log, for analysis
and archives. There are no rows for batches of aborted transactions, transaction markers and batches that
compaction emptied.

As headers (option ``rows=headers``), a row is the header of one batch, without its records. There is a row
for each batch of the log, transaction markers and aborted batches included.
"""

from __future__ import annotations

import enum

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

__all__ = ["BYTES", "HEADERS", "RowKind"]


def _row(*fields: tuple[str, type], may_be_null: str = "") -> StructType:
    return StructType([StructField(name, kind(), nullable=name == may_be_null) for name, kind in fields])


#: ``codec`` is ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``. ``batch`` is the whole batch: header and
#: compressed records. ``timestamp_type`` is ``CreateTime`` or ``LogAppendTime``.
BYTES = _row(
    ("topic", StringType),
    ("partition", IntegerType),
    ("base_offset", LongType),
    ("last_offset", LongType),
    ("records_count", IntegerType),
    ("codec", StringType),
    ("timestamp_type", StringType),
    ("base_timestamp", TimestampType),
    ("max_timestamp", TimestampType),
    ("producer_id", LongType),
    ("transactional", BooleanType),
    ("batch", BinaryType),
)

#: ``size_bytes`` is that of the whole batch. The times are milliseconds since 1970, also those beyond the
#: calendar. ``control`` is ``commit`` or ``abort``, a number for another type, ``emptied`` if compaction
#: removed the record, and null for a batch of records.
HEADERS = _row(
    ("topic", StringType),
    ("partition", IntegerType),
    ("base_offset", LongType),
    ("last_offset", LongType),
    ("records_count", IntegerType),
    ("size_bytes", IntegerType),
    ("magic", IntegerType),
    ("codec", StringType),
    ("timestamp_type", StringType),
    ("base_timestamp_ms", LongType),
    ("max_timestamp_ms", LongType),
    ("producer_id", LongType),
    ("producer_epoch", IntegerType),
    ("base_sequence", IntegerType),
    ("transactional", BooleanType),
    ("control", StringType),
    ("leader_epoch", IntegerType),
    may_be_null="control",
)


class RowKind(enum.Enum):
    """The meaning of a row. The value is that of the option ``rows``."""

    BYTES = "bytes"
    HEADERS = "headers"

    @property
    def schema(self) -> StructType:
        """The columns."""
        return _SCHEMAS[self]


_SCHEMAS = {
    RowKind.BYTES: BYTES,
    RowKind.HEADERS: HEADERS,
}
