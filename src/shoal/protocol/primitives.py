"""
Kafka's wire types, in pairs of ``read_x`` and ``write_x``.

A reader takes a buffer and a position, and returns the value and the position after it.
It raises :class:`~shoal.errors.ProtocolError` if the buffer ends too early or a length is out of bounds.
It never allocates memory for a length before it has checked that the bytes exist.
Strings, byte fields and arrays have two encodings: the old one has a length of fixed size, the compact one
(KIP-482) an unsigned varint that is one more than the length.
"""

from __future__ import annotations

import struct

from ..errors import ProtocolError

__all__ = [
    "INT16",
    "INT32",
    "INT64",
    "expect_end",
    "read_array_length",
    "read_nullable_string",
    "read_record_set",
    "read_string",
    "read_unsigned_varint",
    "skip_tagged_fields",
    "unpack",
    "write_array_length",
    "write_string",
    "write_unsigned_varint",
]

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


def unpack(layout: struct.Struct, buffer: memoryview, position: int) -> tuple[int, ...]:
    """Unpack fields of fixed size; the caller adds ``layout.size`` to its position."""
    try:
        return layout.unpack_from(buffer, position)
    except struct.error as error:
        raise ProtocolError(f"the message ends at {len(buffer)}: {error}") from error


def read_unsigned_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes."""
    value = shift = 0
    while True:
        if position >= len(buffer):
            raise ProtocolError(f"the message ends at {len(buffer)}, within a varint")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolError(f"a varint of more than 5 bytes at {position}")


def write_unsigned_varint(value: int) -> bytes:
    """Write an unsigned varint."""
    if 0x4000 <= value < 0x200000:  # the size of a batch: without the loop in a third of the time
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_length(buffer: memoryview, position: int, layout: struct.Struct, compact: bool) -> tuple[int, int]:
    """Read the length of a byte field or an array, of which each element has a byte or more; -1 is null."""
    if compact:
        length, position = read_unsigned_varint(buffer, position)
        length -= 1
    else:
        (length,) = unpack(layout, buffer, position)
        position += layout.size
    if not -1 <= length <= len(buffer) - position:
        raise ProtocolError(f"a length of {length} at {position}, with {len(buffer) - position} bytes left")
    return length, position


def read_nullable_string(buffer: memoryview, position: int, compact: bool) -> tuple[str | None, int]:
    """Read a string, or None for null."""
    length, position = _read_length(buffer, position, INT16, compact)
    if length < 0:
        return None, position
    try:
        return str(buffer[position : position + length], "utf-8"), position + length
    except UnicodeDecodeError as error:
        raise ProtocolError(f"no UTF-8 at {position}") from error


def read_string(buffer: memoryview, position: int, compact: bool) -> tuple[str, int]:
    """Read a string that may not be null."""
    value, position = read_nullable_string(buffer, position, compact)
    if value is None:
        raise ProtocolError(f"null at {position} instead of a string")
    return value, position


def write_string(value: str, compact: bool) -> bytes:
    """Write a string that is not null."""
    data = value.encode()
    return (write_unsigned_varint(len(data) + 1) if compact else INT16.pack(len(data))) + data


def read_record_set(buffer: memoryview, position: int, compact: bool) -> tuple[memoryview, int]:
    """Read a record set as a view of the buffer; null becomes an empty one."""
    length, position = _read_length(buffer, position, INT32, compact)
    end = position + max(length, 0)
    return buffer[position:end], end


def read_array_length(buffer: memoryview, position: int, compact: bool) -> tuple[int, int]:
    """Read the number of elements, at most one for each byte that is left; null is 0."""
    length, position = _read_length(buffer, position, INT32, compact)
    return max(length, 0), position


def write_array_length(length: int, compact: bool) -> bytes:
    """Write the number of elements that follow."""
    return write_unsigned_varint(length + 1) if compact else INT32.pack(length)


def skip_tagged_fields(buffer: memoryview, position: int) -> int:
    """Skip the tagged fields, which a newer version may have added (KIP-482)."""
    count, position = read_unsigned_varint(buffer, position)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        if size > len(buffer) - position:
            raise ProtocolError(f"a tagged field of {size} bytes at {position}")
        position += size
    return position


def expect_end(buffer: memoryview, position: int) -> None:
    """
    Check that a message and its frame end at the same position.

    If they do not, the two sides use different versions, or a frame's size was wrong.
    """
    if position != len(buffer):
        raise ProtocolError(f"a message of {len(buffer)} bytes, but its fields end at {position}")
