"""
The records of a batch, one by one.

Wire layout of a record (``DefaultRecord``; every number but the attributes is
a zigzag varint)::

    length, attributes (one byte), timestamp delta, offset delta,
    key length, key, value length, value,
    header count, and for each: key length, key, value length, value

What stands behind the offset delta says nothing of the batch, and is a
record's *body* (as in :mod:`shoal.records.record`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..records import BatchHeader

__all__ = ["MalformedLength", "MalformedRecord", "WalkedRecord", "walk"]

_new = tuple.__new__


class MalformedRecord(Exception):
    """The records do not fill the batch exactly, or one of them is cut short."""


class MalformedLength(MalformedRecord):
    """A record's length does not end: outside of streams Kafka's exception is of another class there."""


class WalkedRecord(NamedTuple):
    """
    What the broker looks at in a record.

    Attributes:
        timestamp: In milliseconds, -1 for none.
        offset_delta: As it says.
        has_key: Whether its key is not null.
        body_start: Where its body begins in the data.
        end: Where it ends.

    """

    timestamp: int
    offset_delta: int
    has_key: bool
    body_start: int
    end: int


def walk(header: BatchHeader, data: bytes, *, with_lengths: bool = True) -> Iterator[WalkedRecord]:
    """
    Yield each record of a batch.

    Varints of one byte are read in line: this is the loop that every batch
    that is produced goes through.

    Args:
        header: Its count and timestamps.
        data: The records, decompressed; bytes, since those are read faster
            than a memoryview.
        with_lengths: Hold each record's length against its fields. Kafka does
            not where it skips keys and values in a stream.

    Raises:
        MalformedLength: A record's length is a varint without end.
        MalformedRecord: Where Kafka's reader throws InvalidRecordException:
            a length out of bounds, or bytes before or after the last record's end.

    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    size = len(data)
    position = 0
    try:
        for _ in range(header.records_count):
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _rest(data, number, position, too_long=MalformedLength)
            end = position + (number >> 1)
            if with_lengths and (number & 1 or end > size):
                raise MalformedRecord(f"a record of {_signed(number)} bytes at {position}")
            timestamp_delta = data[position + 1]  # position is that of the attributes
            position += 2
            if timestamp_delta >= 0x80:
                timestamp_delta, position = _rest(data, timestamp_delta, position, bits=64)
            offset_delta = data[position]
            position += 1
            if offset_delta >= 0x80:
                offset_delta, position = _rest(data, offset_delta, position)
            body_start = position
            key_length = data[position]
            position += 1
            if key_length >= 0x80:
                key_length, position = _rest(data, key_length, position)
            if not key_length & 1:
                position += key_length >> 1
            value_length = data[position]
            position += 1
            if value_length >= 0x80:
                value_length, position = _rest(data, value_length, position)
            if not value_length & 1:
                position += value_length >> 1
            header_count = data[position]
            position += 1
            if header_count:
                position = _skip_headers(data, header_count, position)
            if position != end and with_lengths:
                raise MalformedRecord(f"a record's fields end at {position}, its length says {end}")
            # With LogAppendTime the batch's one timestamp is that of each record.
            timestamp = base_timestamp + _signed(timestamp_delta) if append_time is None else append_time
            yield _new(
                WalkedRecord, (timestamp, _signed(offset_delta), not key_length & 1, body_start, position)
            )
    except IndexError:
        raise MalformedRecord(f"the records end within a record, at {position}") from None
    if position != size:
        raise MalformedRecord(f"{size - position} bytes after the last record")


def _skip_headers(data: bytes, count: int, position: int) -> int:
    if count >= 0x80:
        count, position = _rest(data, count, position)
    if count & 1:
        raise MalformedRecord(f"{_signed(count)} headers at {position}")
    for _ in range(count >> 1):
        name_length, position = _varint(data, position)
        if name_length < 0:
            raise MalformedRecord(f"a header without a name at {position}")
        value_length, position = _varint(data, position + name_length)
        position += max(value_length, 0)
    return position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number, position = _rest(data, data[position], position + 1)
    return _signed(number), position


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _rest(
    data: bytes,
    byte: int,
    position: int,
    *,
    bits: int = 32,
    too_long: type[MalformedRecord] = MalformedRecord,
) -> tuple[int, int]:
    """Read what follows a varint's first byte; return it unsigned, and the position after it."""
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift >= bits:
            raise too_long(f"a number of more than {bits} bits at {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, position
