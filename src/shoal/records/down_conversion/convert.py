"""
One batch in an older format: Kafka's ``RecordsUtil.downConvert`` and ``MemoryRecordsBuilder``.

Without compression each record becomes a message; with it, all of them are
compressed again, into one wrapper, whose offset is that of the last. Inside
of it offsets are absolute in magic 0, and count from the first in magic 1.
Headers have no place in either, timestamps none in magic 0.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

from ...errors import UnsupportedBatch, UnsupportedCompression
from ..batch import CODEC_MASK, LOG_APPEND_TIME, Codec, RecordBatch
from ..checksum import verify_crc
from ..compression import compress, compress_legacy_lz4
from ..legacy import NO_TIMESTAMP, Message, read_messages
from ..record import read_key_value_headers, read_records

__all__ = ["convert"]

_OFFSET_LENGTH_CRC = struct.Struct(">qiI")
_CRC_SIZE = 4
#: What the CRC covers begins with magic, attributes, in magic 1 the timestamp, and the length of the key.
_HEAD_0 = struct.Struct(">bbi")
_HEAD_1 = struct.Struct(">bbqi")
_INT32 = struct.Struct(">i")
_NULL = -1

_MOST_MESSAGE_BYTES = 2**31 - 1


def convert(batch: RecordBatch, magic: int, fetch_offset: int, limit_bytes: int) -> bytes | memoryview:
    """
    Return the messages that hold a batch's records, as long as it is a data batch.

    Args:
        batch: Of any magic.
        magic: Of the messages, 0 or 1.
        fetch_offset: Records before it are left out where they are not
            compressed, since each is a message by itself and some clients
            rely on it (``RecordsUtil``); where they are, they come with the
            others, unless there are no others.
        limit_bytes: The most that its records may expand to.

    Returns:
        Zero or more messages back to back; the batch's own bytes, as a view,
        where it has that magic already, or an older one.

    Raises:
        CorruptBatch: Its CRC is wrong, or it is not what its header says.
        UnsupportedCompression: It is compressed with zstd.
        UnsupportedBatch: It expands to more than ``limit_bytes``, or its
            codec is none that we know.

    """
    header = batch.header
    if header.codec_id == Codec.ZSTD:
        raise UnsupportedCompression(f"messages of magic {magic} cannot be zstd", header.base_offset)
    if header.codec_id > max(Codec):
        raise UnsupportedBatch(f"its codec {header.codec_id} is unknown", header.base_offset)
    if header.magic <= magic:
        return batch.view
    verify_crc(batch)
    messages = _messages(batch, limit_bytes)
    if not messages or messages[-1].offset < fetch_offset:
        return b""
    codec = Codec(header.codec_id)
    attributes = LOG_APPEND_TIME if magic == 1 and header.is_log_append_time else 0
    if codec is Codec.NONE:
        wanted = (message for message in messages if message.offset >= fetch_offset)
        return bytes(_encode(wanted, magic, attributes, 0))
    return _wrapper(messages, magic, attributes, codec)


def _messages(batch: RecordBatch, limit_bytes: int) -> Sequence[Message]:
    header = batch.header
    if header.magic != 2:
        return read_messages(batch, limit_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    messages = []
    for record in read_records(batch, limit_bytes):
        key, value, _ = read_key_value_headers(record)
        timestamp = record.timestamp if append_time is None else append_time
        messages.append(Message(record.offset, timestamp, key, value))
    return messages


def _wrapper(messages: Sequence[Message], magic: int, attributes: int, codec: Codec) -> bytes:
    inner = _encode(messages, magic, attributes, messages[0].offset if magic == 1 else 0)
    compressed = compress_legacy_lz4(inner) if magic == 0 and codec is Codec.LZ4 else compress(codec, inner)
    last_offset = messages[-1].offset
    if len(compressed) > _MOST_MESSAGE_BYTES - _OFFSET_LENGTH_CRC.size - _HEAD_1.size - _INT32.size:
        raise UnsupportedBatch(f"{len(compressed)} bytes are no message", last_offset)
    timestamp = max(message.timestamp for message in messages) if magic == 1 else NO_TIMESTAMP
    outer = Message(last_offset, max(timestamp, NO_TIMESTAMP), None, compressed)
    return bytes(_encode([outer], magic, attributes | codec & CODEC_MASK, 0))


def _encode(messages: Iterable[Message], magic: int, attributes: int, base_offset: int) -> bytearray:
    """Write messages back to back, with offsets that count from ``base_offset``."""
    out = bytearray()
    crc32, prefix, head_0, head_1, int32 = (
        zlib.crc32,
        _OFFSET_LENGTH_CRC.pack,
        _HEAD_0.pack,
        _HEAD_1.pack,
        _INT32.pack,
    )
    for offset, timestamp, key, value in messages:
        key_length = _NULL if key is None else len(key)
        head = head_1(1, attributes, timestamp, key_length) if magic else head_0(0, attributes, key_length)
        value_length = int32(_NULL if value is None else len(value))
        covered = b"%b%b%b%b" % (head, key or b"", value_length, value or b"")
        out += prefix(offset - base_offset, len(covered) + _CRC_SIZE, crc32(covered))
        out += covered
    return out
