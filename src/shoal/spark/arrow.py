"""Rows with bytes, and rows with headers, for Arrow. In this package, ``RecordBatch`` alone is Kafka's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shoal.inspect.facts import codec_name
from shoal.inspect.reading import marker_of
from shoal.records import RecordBatch
from shoal.records.aborted import Marker

__all__ = ["ARROW_SCHEMA", "HEADER_SCHEMA", "to_header_row", "to_row"]

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


#: The same columns as ``rows.HEADERS``.
HEADER_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64(), nullable=False),
        pa.field("records_count", pa.int32(), nullable=False),
        pa.field("size_bytes", pa.int32(), nullable=False),
        pa.field("magic", pa.int32(), nullable=False),
        pa.field("codec", pa.string(), nullable=False),
        pa.field("timestamp_type", pa.string(), nullable=False),
        pa.field("base_timestamp_ms", pa.int64(), nullable=False),
        pa.field("max_timestamp_ms", pa.int64(), nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int32(), nullable=False),
        pa.field("base_sequence", pa.int32(), nullable=False),
        pa.field("transactional", pa.bool_(), nullable=False),
        pa.field("control", pa.string()),
        pa.field("leader_epoch", pa.int32(), nullable=False),
    ]
)

_MARKERS = {Marker.COMMIT.value: "commit", Marker.ABORT.value: "abort"}


def to_row(topic: str, partition: int, batch: RecordBatch) -> dict[str, Any]:
    """Return a batch as a row, with a copy of its bytes."""
    header = batch.header
    return {
        **_in_both(topic, partition, batch),
        "base_timestamp": header.base_timestamp * 1000,
        "max_timestamp": header.max_timestamp * 1000,
        "batch": bytes(batch.view),
    }


def to_header_row(topic: str, partition: int, batch: RecordBatch) -> dict[str, Any]:
    """Return the header of a batch as a row."""
    header = batch.header
    return {
        **_in_both(topic, partition, batch),
        "size_bytes": header.size,
        "magic": header.magic,
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "control": _control(batch),
        "leader_epoch": header.leader_epoch,
    }


def _in_both(topic: str, partition: int, batch: RecordBatch) -> dict[str, Any]:
    header = batch.header
    return {
        "topic": topic,
        "partition": partition,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "codec": codec_name(header.codec_id),
        "timestamp_type": _timestamp_type(batch),
        "producer_id": header.producer_id,
        "transactional": header.is_transactional,
    }


def _timestamp_type(batch: RecordBatch) -> str:
    return "LogAppendTime" if batch.header.is_log_append_time else "CreateTime"


def _control(batch: RecordBatch) -> str | None:
    if not batch.header.is_control:
        return None
    marker = marker_of(batch)
    return "emptied" if marker is None else _MARKERS.get(marker, str(marker))
