"""Rows with bytes for Arrow. In this package, ``RecordBatch`` alone is Kafka's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shoal.records import Codec, RecordBatch

__all__ = ["ARROW_SCHEMA", "to_row"]

_TIMESTAMP = pa.timestamp("us", tz="UTC")

#: The same columns as ``rows.BYTES``.
ARROW_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64(), nullable=False),
        pa.field("records_count", pa.int32(), nullable=False),
        pa.field("codec", pa.string(), nullable=False),
        pa.field("timestamp_type", pa.string(), nullable=False),
        pa.field("base_timestamp", _TIMESTAMP, nullable=False),
        pa.field("max_timestamp", _TIMESTAMP, nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("transactional", pa.bool_(), nullable=False),
        pa.field("batch", pa.binary(), nullable=False),
    ]
)


def to_row(topic: str, partition: int, batch: RecordBatch) -> dict[str, Any]:
    """Return a batch as a row, with a copy of its bytes."""
    header = batch.header
    codec = header.codec_id
    return {
        "topic": topic,
        "partition": partition,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "codec": Codec(codec).name.lower() if codec <= Codec.ZSTD else f"unknown ({codec})",
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp * 1000,
        "max_timestamp": header.max_timestamp * 1000,
        "producer_id": header.producer_id,
        "transactional": header.is_transactional,
        "batch": bytes(batch.view),
    }
