"""
The two schemas of rows of ``format("shoal")``.

By reference (the default), a row is a run of offsets of one partition. The writer copies the records between
these offsets; the row has none of their bytes.

With bytes (option ``rows=bytes``), a row is one RecordBatch as in the source's log, for analysis and
archives. There are no rows for batches of aborted transactions, transaction markers and batches that
compaction emptied.
"""

from __future__ import annotations

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

__all__ = ["BYTES", "BY_REFERENCE", "is_by_reference"]


def _row(*fields: tuple[str, type]) -> StructType:
    return StructType([StructField(name, kind(), nullable=False) for name, kind in fields])


#: ``start_offset`` (inclusive) and ``end_offset`` (exclusive) are source offsets.
BY_REFERENCE = _row(
    ("topic", StringType),
    ("partition", IntegerType),
    ("start_offset", LongType),
    ("end_offset", LongType),
)

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


def is_by_reference(columns: list[str]) -> bool:
    """Whether rows with these columns are references. The writers accept both schemas."""
    return "batch" not in columns
