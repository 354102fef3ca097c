"""
The records of a batch one by one, from pieces of any size, with all fields checked.

The broker reads batches that it validates or recompresses with :func:`walk`. It
parses every field, and its errors are those of Kafka's broker. For a payload in
memory, :func:`~shoal.records.record.read_heads` is faster: it trusts the length of
a record, and does not parse the body.

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

from shoal.records.batch import BatchHeader
from shoal.records.rebuild import BatchWriter
from shoal.records.record import as_int64

__all__ = ["MalformedLength", "MalformedRecord", "WalkedRecord", "walk"]

_new = tuple.__new__

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
    copy_to: BatchWriter | None = None,
) -> Iterator[WalkedRecord]:
    """
    Yield each record of a batch of which only one piece at a time is in memory.

    Varints of one byte are read inline, since every produced batch goes through
    this loop. If a record continues in the next piece, :class:`_Cursor` reads it
    again from its start.

    Args:
        pieces: The decompressed records, cut anywhere.
        with_lengths: Compare each record's length with the end of its fields.
            Kafka does not if it skips keys and values.
        copy_to: Gets each record before it is yielded; needs ``with_lengths``.

    Raises:
        MalformedRecord: At the first one that is malformed. Errors of ``pieces`` pass through.

    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    cursor = _Cursor(pieces, copy_to)
    data, position = cursor.data, 0
    for _ in range(header.records_count):
        start = position
        try:
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _rest(data, number, position, too_long=MalformedLength)
            if with_lengths and number & 1:
                raise MalformedRecord(f"a record of {_signed(number)} bytes")
            end = position + (number >> 1)
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
                raise MalformedRecord(f"a record's fields end {position - end} bytes after its length")
            timestamp = _timestamp(base_timestamp, timestamp_delta)
            if copy_to is not None:
                copy_to.begin_record(timestamp if append_time is None else append_time, position - body_start)
                copy_to.write_body(data[body_start:position])
        except IndexError:
            cursor.data, cursor.position = data, start
            timestamp, offset_delta, key_length = _read_across(
                cursor, base_timestamp, append_time, with_lengths=with_lengths
            )
            data, position = cursor.data, cursor.position
        # With LogAppendTime the batch's one timestamp is that of each record.
        yield _new(
            WalkedRecord,
            (timestamp if append_time is None else append_time, _signed(offset_delta), not key_length & 1),
        )
    cursor.data, cursor.position = data, position
    cursor.expect_end()


class _Cursor:
    """The position in the pieces, for a record that continues in the next piece."""

    def __init__(self, pieces: Iterable[bytes], copy_to: BatchWriter | None) -> None:
        self.data = b""
        self.position = 0
        self._pieces = iter(pieces)
        self._before = 0
        self._copy_to = copy_to
        self._copied_to: int | None = None

    @property
    def total(self) -> int:
        """The number of bytes read from all pieces."""
        return self._before + self.position

    def byte(self) -> int:
        while self.position >= len(self.data):
            self._next_piece()
        byte = self.data[self.position]
        self.position += 1
        return byte

    def skip(self, count: int) -> None:
        while count > (left := len(self.data) - self.position):
            count -= left
            self.position += left
            self._next_piece()
        self.position += count

    def unsigned(self, bits: int = 32, too_long: type[MalformedRecord] = MalformedRecord) -> int:
        value = 0
        for shift in range(0, bits, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise too_long(f"a number of more than {bits} bits at {self.total}")

    def signed(self) -> int:
        return _signed(self.unsigned())

    def begin_body(self, timestamp: int, body_bytes: int) -> None:
        """Copy the bytes from here to :meth:`end_body`, if there is a writer."""
        if self._copy_to is not None:
            self._copy_to.begin_record(timestamp, body_bytes)
            self._copied_to = self.position

    def end_body(self) -> None:
        self._copy()
        self._copied_to = None

    def _copy(self) -> None:
        if self._copied_to is not None and self._copy_to is not None:
            self._copy_to.write_body(self.data[self._copied_to : self.position])
            self._copied_to = 0

    def _next_piece(self) -> None:
        """Continue in the next piece; the position is at the end of this one."""
        piece = next(self._pieces, None)
        if piece is None:
            raise MalformedRecord(f"the records end within a record, at {self.total}")
        self._copy()
        self._before += len(self.data)
        self.data, self.position = piece, 0

    def expect_end(self) -> None:
        left = len(self.data) - self.position
        if left or any(self._pieces):
            raise MalformedRecord("bytes after the last record")


def _read_across(
    cursor: _Cursor, base_timestamp: int, append_time: int | None, *, with_lengths: bool
) -> tuple[int, int, int]:
    """Read a record as :func:`walk` does; return timestamp, and unsigned offset delta and key length."""
    number = cursor.unsigned(too_long=MalformedLength)
    if with_lengths and number & 1:
        raise MalformedRecord(f"a record of {_signed(number)} bytes at {cursor.total}")
    end = cursor.total + (number >> 1)
    cursor.skip(1)
    timestamp = _timestamp(base_timestamp, cursor.unsigned(64))
    offset_delta = cursor.unsigned()
    cursor.begin_body(timestamp if append_time is None else append_time, end - cursor.total)
    key_length = cursor.unsigned()
    cursor.skip(max(_signed(key_length), 0))
    cursor.skip(max(cursor.signed(), 0))
    header_count = cursor.signed()
    if header_count < 0:
        raise MalformedRecord(f"{header_count} headers at {cursor.total}")
    for _ in range(header_count):
        name_length = cursor.signed()
        if name_length < 0:
            raise MalformedRecord(f"a header without a name at {cursor.total}")
        cursor.skip(name_length)
        cursor.skip(max(cursor.signed(), 0))
    if cursor.total != end and with_lengths:
        raise MalformedRecord(f"a record's fields end at {cursor.total}, its length says {end}")
    cursor.end_body()
    return timestamp, offset_delta, key_length


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
    if position > len(data):
        raise IndexError  # as a read there would
    return position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number, position = _rest(data, data[position], position + 1)
    return _signed(number), position


def _timestamp(base_timestamp: int, unsigned_delta: int) -> int:
    timestamp = base_timestamp + _signed(unsigned_delta)
    # Java's wraps around.
    return timestamp if -_FAR < timestamp < _FAR else as_int64(timestamp)


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
    """Read a varint after its first byte; return it unsigned, with the position after it."""
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
