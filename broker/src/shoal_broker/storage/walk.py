"""
The records of a batch one by one, with all fields checked.

The broker reads batches that it validates or recompresses with :func:`walk`. It parses every field, and its
errors are those of Kafka's broker. :func:`~shoal.records.record.read_heads` is faster: it trusts the length
of a record, and does not parse the body.

The layout of a record (``DefaultRecord``; every number but the attributes is a
zigzag varint)::

    length, attributes (one byte), timestamp delta, offset delta,
    key length, key, value length, value,
    header count, and for each: key length, key, value length, value

The part after the offset delta does not depend on the batch: it is the
record's *body* (as in :mod:`shoal.records.record`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shoal.records import Record
from shoal.records.batch import BatchHeader
from shoal.records.record import as_int64

__all__ = ["MalformedLength", "MalformedRecord", "WalkedRecord", "walk"]

#: Beyond this distance from 0, a timestamp may not fit into 64 bits.
_FAR = 1 << 63


class MalformedRecord(Exception):
    """The records do not fill the batch exactly, or one of them is incomplete."""


class MalformedLength(MalformedRecord):
    """A record's length does not end, for which Kafka has another exception in uncompressed batches."""


class WalkedRecord(NamedTuple):
    """
    The fields of a record that the broker checks.

    Attributes:
        timestamp: In milliseconds, -1 for none.
        offset_delta: Its own offset delta.
        has_key: Whether its key is not null.

    """

    timestamp: int
    offset_delta: int
    has_key: bool


def walk(
    header: BatchHeader,
    pieces: Iterable[bytes],
    *,
    with_lengths: bool = True,
    copy_to: list[Record] | None = None,
) -> Iterator[WalkedRecord]:
    """
    Yield each record of a batch.

    Args:
        pieces: The decompressed records, cut anywhere. If an error ends them, the records before it are
            yielded first.
        with_lengths: Compare each record's length with the end of its fields.
            Kafka does not if it skips keys and values.
        copy_to: Gets each record before it is yielded; needs ``with_lengths``.

    Raises:
        MalformedRecord: At the first one that is malformed. Errors of ``pieces`` pass through.

    """
    data, end_error = _gathered(pieces)
    append_time = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for _ in range(header.records_count):
        try:
            length, start = _varint(data, position, too_long=MalformedLength)
            timestamp_delta, position = _varint(data, start + 1, bits=64)  # behind the attributes
            offset_delta, body_start = _varint(data, position)
            key_length, position = _varint(data, body_start)
            value_length, position = _varint(data, position + max(key_length, 0))
            position = _skip_headers(data, position + max(value_length, 0))
        except IndexError:
            raise end_error or MalformedRecord(f"the records end within a record, at {len(data)}") from None
        if with_lengths and position != start + length:
            raise MalformedRecord(f"a record's fields end at {position}, its length says {start + length}")
        # With LogAppendTime the batch's one timestamp is that of each record.
        timestamp = _timestamp(header.base_timestamp, timestamp_delta) if append_time is None else append_time
        if copy_to is not None:
            copy_to.append(Record(len(copy_to), timestamp, data[body_start:position]))
        yield WalkedRecord(timestamp, offset_delta, key_length >= 0)
    if position < len(data):
        raise MalformedRecord("bytes after the last record")
    if end_error is not None:
        raise end_error


def _gathered(pieces: Iterable[bytes]) -> tuple[bytes, Exception | None]:
    """Return the pieces together, and the error that ends them, if there is one."""
    data = bytearray()
    try:
        for piece in pieces:
            data += piece
    except Exception as error:
        return bytes(data), error
    return bytes(data), None


def _skip_headers(data: bytes, position: int) -> int:
    count, position = _varint(data, position)
    if count < 0:
        raise MalformedRecord(f"{count} headers at {position}")
    for _ in range(count):
        name_length, position = _varint(data, position)
        if name_length < 0:
            raise MalformedRecord(f"a header without a name at {position}")
        value_length, position = _varint(data, position + name_length)
        position += max(value_length, 0)
    if position > len(data):
        raise IndexError  # as a read there would
    return position


def _timestamp(base_timestamp: int, delta: int) -> int:
    timestamp = base_timestamp + delta
    # Java's wraps around.
    return timestamp if -_FAR < timestamp < _FAR else as_int64(timestamp)


def _varint(
    data: bytes, position: int, *, bits: int = 32, too_long: type[MalformedRecord] = MalformedRecord
) -> tuple[int, int]:
    """Read a zigzag varint; return it with the position after it."""
    value = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position
    raise too_long(f"a number of more than {bits} bits at {position}")
