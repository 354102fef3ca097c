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
from typing import NamedTuple

from ..errors import CorruptBatch
from .batch import LOG_OVERHEAD, BatchHeader, Codec, RecordBatch, split
from .checksum import verify_crc
from .compression import check_count, decompress, decompress_legacy_lz4

__all__ = ["NO_TIMESTAMP", "Malformed", "Message", "read_messages", "read_timestamp"]

_CRC_MAGIC_ATTRIBUTES = struct.Struct(">Ibb")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

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
        outer = _read(batch)
        if not header.codec_id:
            return [outer]
        data = _decompressed(header, outer.value, limit_bytes)
        return _unwrap(header, outer.timestamp, data, limit_bytes, check_offsets=check_offsets)
    except (Malformed, CorruptBatch) as error:
        reason = error.reason if isinstance(error, CorruptBatch) else str(error)
        raise CorruptBatch(reason, header.base_offset) from None


def read_timestamp(batch: RecordBatch) -> int:
    """Return the timestamp of a message, -1 for magic 0; a wrapper has the newest of the messages in it."""
    position = LOG_OVERHEAD + _CRC_MAGIC_ATTRIBUTES.size
    if batch.header.magic == 0 or len(batch.view) < position + _INT64.size:
        return NO_TIMESTAMP
    return int(_INT64.unpack_from(batch.view, position)[0])


class Malformed(Exception):
    """A message or a record does not parse; the text has the reason, and the caller adds the place."""


def _decompressed(wrapper: BatchHeader, value: bytes | None, limit_bytes: int) -> memoryview:
    """Return the messages in a wrapper, back to back."""
    if wrapper.codec_id > Codec.LZ4:
        raise Malformed(f"codec {wrapper.codec_id} in a message of magic {wrapper.magic}")
    if value is None:
        raise Malformed("a compressed message without a value")
    # Only a wrapper of magic 0 may have the wrong checksum, whatever is in it.
    if wrapper.codec_id == Codec.LZ4 and wrapper.magic == 0:
        return memoryview(decompress_legacy_lz4(value, limit_bytes, wrapper.base_offset))
    return memoryview(decompress(Codec(wrapper.codec_id), value, limit_bytes, wrapper.base_offset))


def _unwrap(
    wrapper: BatchHeader, timestamp: int, data: memoryview, limit_bytes: int, *, check_offsets: bool
) -> list[Message]:
    """Read the messages in a wrapper, in Kafka's ``DeepRecordsIterator``'s steps."""
    messages: list[Message] = []
    left = len(data)
    for inner in split(data, has_offsets=False):
        check_count(len(messages) + 1, limit_bytes, wrapper.base_offset)
        if inner.header.magic == 2 or inner.header.codec_id:
            raise Malformed(f"inner message {len(messages)} is compressed itself, or of magic 2")
        verify_crc(inner)
        message = _read(inner)
        # Messages of magic 0 have no time, not even an append time.
        if wrapper.is_log_append_time and inner.header.magic:
            message = message._replace(timestamp=timestamp)
        messages.append(message)
        left -= len(inner.view)
    if left:
        raise Malformed("the last inner message is cut short")
    if not messages:
        raise Malformed("a compressed message with no message in it")
    if wrapper.magic:
        base_offset = wrapper.base_offset - messages[-1].offset
        messages = [each._replace(offset=base_offset + each.offset) for each in messages]
    previous = -1
    for number, each in enumerate(messages if check_offsets else ()):
        if not previous < each.offset <= wrapper.base_offset:
            raise Malformed(f"inner message {number} at offset {each.offset}, after {previous}")
        previous = each.offset
    return messages


def _read(batch: RecordBatch) -> Message:
    """Read a message, whose value may be compressed messages."""
    header, content = batch
    position = LOG_OVERHEAD + _CRC_MAGIC_ATTRIBUTES.size + (_INT64.size if header.magic else 0)
    key, position = _read_sized(content, position)
    value, position = _read_sized(content, position)
    if position != len(content):
        raise Malformed(f"{len(content) - position} bytes behind the value of a message")
    return Message(header.base_offset, read_timestamp(batch), key, value)


def _read_sized(content: memoryview, position: int) -> tuple[bytes | None, int]:
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
