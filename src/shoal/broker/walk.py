"""
The records of an uncompressed batch, one by one.

Wire layout of a record (``DefaultRecord``; every number but the attributes is
a zigzag varint)::

    length, attributes (one byte), timestamp delta, offset delta,
    key length, key, value length, value,
    header count, and for each: key length, key, value length, value

A compressed batch is never opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..records import BatchHeader

__all__ = ["MalformedRecord", "WalkedRecord", "walk"]


class MalformedRecord(Exception):
    """The records do not fill the batch exactly, or one of them is cut short."""


class WalkedRecord(NamedTuple):
    """What the broker looks at in a record; the timestamp in milliseconds, -1 for none."""

    timestamp: int
    offset_delta: int
    has_key: bool


def walk(header: BatchHeader, payload: memoryview) -> Iterator[WalkedRecord]:
    """
    Yield each record of an uncompressed batch.

    Raises:
        MalformedRecord: Where Kafka's reader throws InvalidRecordException:
            a length out of bounds, or bytes before or after the last record's end.

    """
    position = 0
    try:
        for _ in range(header.records_count):
            length, position = _varint(payload, position)
            end = position + length
            if length < 0 or end > len(payload):
                raise MalformedRecord(f"a record of {length} bytes at {position}")
            record, position = _record(header, payload, position + 1)
            if position != end:
                raise MalformedRecord(f"a record's fields end at {position}, its length says {end}")
            yield record
    except IndexError:
        raise MalformedRecord(f"the records end within a record, at {position}") from None
    if position != len(payload):
        raise MalformedRecord(f"{len(payload) - position} bytes after the last record")


def _record(header: BatchHeader, payload: memoryview, position: int) -> tuple[WalkedRecord, int]:
    timestamp_delta, position = _varint(payload, position)
    offset_delta, position = _varint(payload, position)
    key_length, position = _varint(payload, position)
    value_length, position = _varint(payload, position + max(key_length, 0))
    header_count, position = _varint(payload, position + max(value_length, 0))
    if header_count < 0:
        raise MalformedRecord(f"{header_count} headers at {position}")
    for _ in range(header_count):
        name_length, position = _varint(payload, position)
        if name_length < 0:
            raise MalformedRecord(f"a header without a name at {position}")
        header_length, position = _varint(payload, position + name_length)
        position += max(header_length, 0)
    # With LogAppendTime the batch's one timestamp is that of each record.
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return WalkedRecord(timestamp, offset_delta, key_length >= 0), position


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > 63:
            raise MalformedRecord(f"a varint of more than 10 bytes at {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), position
