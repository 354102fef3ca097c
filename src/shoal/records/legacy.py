"""
Messages of magic 0 and 1, as old clusters keep them.

=====  =====  ================  ==========================================
 at     len   field
=====  =====  ================  ==========================================
   0      8   offset            of a wrapper: that of its last message
   8      4   length            of the following fields
  12      4   crc               CRC-32 of everything from 16 on
  16      1   magic
  17      1   attributes        codec; of magic 1 bit 3 is LogAppendTime
  18      8   timestamp         magic 1 only
 18/26    4   key length, key   negative for null
  ..      4   value length, value
=====  =====  ================  ==========================================

A message with a codec is a *wrapper*: its value is a compressed sequence of
messages, each with its offset and length as above. In a wrapper of magic 1
their offsets are relative: the last of them stands for the wrapper's own.
If a producer wrote absolute ones, the same subtraction gives 0 as the base, and
they stay unchanged. In a wrapper of magic 0 they are absolute.
A wrapper of either magic may hold messages of the other.

Kafka's ``AbstractLegacyRecordBatch.DeepRecordsIterator`` and ``LegacyRecord``
are the specification. This module also refuses two kinds of wrappers that Kafka
accepts, because records would be lost or get the offsets of another batch. One
ends with an inner message that is cut short. The other has offsets that do not
ascend up to the wrapper's. (Kafka ignores an offset of 0 in a wrapper, because
some producers send it. A log has no such wrapper.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import CorruptBatch
from .batch import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD, Codec, RecordBatch
from .compression import Bytes, check_count, decompress, decompress_legacy_lz4

__all__ = ["NO_TIMESTAMP", "Malformed", "Message", "read_messages", "read_timestamp"]

_OVERHEAD = struct.Struct(">qi")
_CRC_MAGIC_ATTRIBUTES = struct.Struct(">Ibb")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
#: CRC, magic, attributes and two lengths; magic 1 has a timestamp too.
_SMALLEST = {0: 14, 1: 22}
_CRC_COVERS_FROM = 4

NO_TIMESTAMP = -1
"""Of messages of magic 0, and of those whose producer gave none."""


class Message(NamedTuple):
    """
    A message, as a consumer reads it.

    Attributes:
        offset: Its offset in the partition.
        timestamp: In milliseconds; -1 for magic 0, and for none.
            A wrapper's append time is that of all messages in it.
        key: None for null.
        value: None for null.

    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_messages(batch: RecordBatch, limit_bytes: int, *, check_offsets: bool = True) -> list[Message]:
    """
    Return the message that ``batch`` is, or those that are in it.

    Args:
        limit_bytes: The limit for what a wrapper expands to, at 64 bytes or more for each message.
        check_offsets: False if the offsets are those of a producer, which mean nothing.

    The outer CRC is not verified, those of the inner messages are.

    Raises:
        CorruptBatch: The bytes do not match the header.
        UnsupportedBatch: The messages expand to more than ``limit_bytes``.

    """
    header = batch.header
    try:
        outer = _read(batch.view[LOG_OVERHEAD:])
        if not outer.codec_id:
            return [Message(header.base_offset, outer.timestamp, outer.key, outer.value)]
        data = _decompressed(outer, limit_bytes, header.base_offset)
        return _unwrap(outer, header.base_offset, data, limit_bytes, check_offsets=check_offsets)
    except Malformed as error:
        raise CorruptBatch(str(error), header.base_offset) from None


def read_timestamp(batch: RecordBatch) -> int:
    """Return the timestamp of a message, -1 for magic 0; a wrapper has the newest of the messages in it."""
    position = LOG_OVERHEAD + _CRC_MAGIC_ATTRIBUTES.size
    if batch.header.magic == 0 or len(batch.view) < position + _INT64.size:
        return NO_TIMESTAMP
    return int(_INT64.unpack_from(batch.view, position)[0])


class Malformed(Exception):
    """A message or a record does not parse; the text has the reason, and the caller adds the place."""


class _Stored(NamedTuple):
    """A message as it is stored, without its offset."""

    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and bool(self.attributes & LOG_APPEND_TIME)


def _decompressed(wrapper: _Stored, limit_bytes: int, offset: int) -> bytes:
    """Return the messages in a wrapper, back to back."""
    if wrapper.codec_id > Codec.LZ4:
        raise Malformed(f"codec {wrapper.codec_id} in a message of magic {wrapper.magic}")
    if wrapper.value is None:
        raise Malformed("a compressed message without a value")
    # Only a wrapper of magic 0 may have the wrong checksum, whatever is in it.
    if wrapper.codec_id == Codec.LZ4 and wrapper.magic == 0:
        return bytes(decompress_legacy_lz4(wrapper.value, limit_bytes, offset))
    return bytes(decompress(Codec(wrapper.codec_id), wrapper.value, limit_bytes, offset))


def _unwrap(
    wrapper: _Stored, last_offset: int, data: bytes, limit_bytes: int, *, check_offsets: bool
) -> list[Message]:
    """Read the messages in a wrapper, in Kafka's ``DeepRecordsIterator``'s steps."""
    offsets = [offset for offset, _ in _entries(data)]
    if not offsets:
        raise Malformed("a compressed message with no message in it")
    check_count(len(offsets), limit_bytes, last_offset)
    base_offset = last_offset - offsets[-1] if wrapper.magic == 1 else 0
    append_time = wrapper.timestamp if wrapper.is_log_append_time else None

    messages: list[Message] = []
    previous = -1
    for inner_offset, content in _entries(data):
        inner = _read(content)
        if inner.codec_id:
            raise Malformed(f"inner message {len(messages)} is compressed itself")
        if not _has_right_crc(content):
            raise Malformed(f"the CRC of inner message {len(messages)} is wrong")
        offset = base_offset + inner_offset
        if check_offsets and not previous < offset <= last_offset:
            raise Malformed(f"inner message {len(messages)} at offset {offset}, after {previous}")
        previous = offset
        # Messages of magic 0 have no time, not even an append time.
        timestamp = inner.timestamp if append_time is None or inner.magic == 0 else append_time
        messages.append(Message(offset, timestamp, inner.key, inner.value))
    return messages


def _entries(data: Bytes) -> Iterator[tuple[int, Bytes]]:
    """Yield the stored offset and the content of each message, from its CRC on."""
    position, end = 0, len(data)
    while position < end:
        if end - position < LOG_OVERHEAD:
            raise Malformed("the last inner message is cut short")
        offset, length = _OVERHEAD.unpack_from(data, position)
        position += LOG_OVERHEAD
        if not 0 <= length <= end - position:
            raise Malformed(f"an inner message of {length} bytes, but only {end - position} are left")
        yield offset, data[position : position + length]
        position += length


def _has_right_crc(content: Bytes) -> bool:
    return zlib.crc32(content[_CRC_COVERS_FROM:]) == int.from_bytes(content[:_CRC_COVERS_FROM])


def _read(content: Bytes) -> _Stored:
    """Read a message from its CRC on; the CRC itself is not looked at."""
    if len(content) < _SMALLEST[0]:
        raise Malformed(f"a message of {len(content)} bytes")
    _, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(content)
    position = _CRC_MAGIC_ATTRIBUTES.size
    if magic not in _SMALLEST:
        raise Malformed(f"a message of magic {magic}")
    if len(content) < _SMALLEST[magic]:
        raise Malformed(f"a message of {len(content)} bytes")
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _INT64.unpack_from(content, position)
        position += _INT64.size
    key, position = _read_sized(content, position)
    value, position = _read_sized(content, position)
    if position != len(content):
        raise Malformed(f"{len(content) - position} bytes behind the value of a message")
    return _Stored(magic, attributes, timestamp, key, value)


def _read_sized(content: Bytes, position: int) -> tuple[bytes | None, int]:
    """Read bytes behind their length, and return the position after them; a negative one is null."""
    if len(content) - position < _INT32.size:
        raise Malformed("a message is cut short")
    length = _INT32.unpack_from(content, position)[0]
    position += _INT32.size
    if length < 0:
        return None, position
    if length > len(content) - position:
        raise Malformed(f"{length} bytes, but only {len(content) - position} are left")
    return bytes(content[position : position + length]), position + length
