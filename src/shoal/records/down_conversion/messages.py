"""
One batch in an older format: Kafka's ``RecordsUtil.downConvert`` and ``MemoryRecordsBuilder``.

Without compression each record becomes a message; with it, all of them are
compressed again, into one wrapper, whose offset is that of the last. Inside
of it offsets are absolute in magic 0, and count from the first in magic 1.
Headers have no place in either, timestamps none in magic 0.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import UnsupportedBatch, UnsupportedCompression
from ..batch import LOG_APPEND_TIME, Codec, RecordBatch
from ..checksum import verify_crc
from ..compression import compress, compress_legacy_lz4
from ..legacy import NO_TIMESTAMP, Message, read_messages
from .values import read_values

__all__ = ["convert"]

_OFFSET_LENGTH_CRC = struct.Struct(">qiI")
_CRC_SIZE = 4
#: The first fields under the CRC: magic, attributes, in magic 1 the timestamp, and the length of the key.
_HEAD_0 = struct.Struct(">bbi")
_HEAD_1 = struct.Struct(">bbqi")
_INT32 = struct.Struct(">i")

#: The largest length of a message, less the fields before a wrapper's value.
_MOST_WRAPPED_BYTES = 2**31 - 1 - _CRC_SIZE - _HEAD_1.size - _INT32.size


def convert(batch: RecordBatch, magic: int, fetch_offset: int, limit_bytes: int) -> bytearray | memoryview:
    """
    Return the messages that hold a batch's records; a control batch is converted like any other.

    Args:
        batch: A batch of any magic.
        magic: The messages' magic, 0 or 1.
        fetch_offset: Uncompressed records before it are left out: each is a
            message by itself, and some clients rely on it (``RecordsUtil``).
            Compressed ones are included, unless there are no others.
        limit_bytes: The most that its records may expand to.

    Returns:
        Zero or more messages back to back; a view of the batch's own bytes,
        if it has that magic already, or an older one.

    Raises:
        CorruptBatch: The CRC is wrong, or the records do not match the header.
        UnsupportedCompression: The codec is zstd, or unknown.
        UnsupportedBatch: The records expand to more than ``limit_bytes``.

    """
    header = batch.header
    if header.codec_id > Codec.LZ4:
        name = "zstd" if header.codec_id == Codec.ZSTD else f"of codec {header.codec_id}"
        raise UnsupportedCompression(f"messages of magic {magic} cannot be {name}", header.base_offset)
    if header.magic <= magic:
        return batch.view
    verify_crc(batch)
    messages = (
        read_values(batch, limit_bytes) if header.magic == 2 else iter(read_messages(batch, limit_bytes))
    )
    attributes = LOG_APPEND_TIME if magic == 1 and header.is_log_append_time else 0
    if header.codec_id == Codec.NONE:
        if header.base_offset < fetch_offset:
            messages = (message for message in messages if message.offset >= fetch_offset)
        return _encode(messages, magic, attributes).data
    return _wrap(messages, magic, attributes, Codec(header.codec_id), fetch_offset)


def _wrap(
    messages: Iterator[Message], magic: int, attributes: int, codec: Codec, fetch_offset: int
) -> bytearray:
    """Write messages as one that wraps them, or nothing if all are before ``fetch_offset``."""
    first = next(messages, None)
    if first is None:
        return bytearray()
    inner = _encode(
        itertools.chain((first,), messages), magic, attributes, base_offset=first.offset if magic else 0
    )
    if inner.last_offset < fetch_offset:
        return bytearray()
    compressed = (
        compress_legacy_lz4(inner.data) if magic == 0 and codec is Codec.LZ4 else compress(codec, inner.data)
    )
    if len(compressed) > _MOST_WRAPPED_BYTES:
        raise UnsupportedBatch(f"{len(compressed)} bytes are too many for a message", first.offset)
    timestamp = first.timestamp if attributes & LOG_APPEND_TIME else inner.max_timestamp
    outer = Message(inner.last_offset, timestamp, None, compressed)
    return _encode((outer,), magic, attributes | codec).data


class _Encoded(NamedTuple):
    """Messages back to back; -1 stands for no offset or timestamp."""

    data: bytearray
    last_offset: int
    max_timestamp: int


def _encode(messages: Iterable[Message], magic: int, attributes: int, base_offset: int = 0) -> _Encoded:
    """Write messages, with offsets that count from ``base_offset``."""
    out = bytearray()
    offset, max_timestamp = -1, NO_TIMESTAMP
    # Names of the module are looked up twice: a tenth of the time.
    join, crc32 = b"".join, zlib.crc32
    front, head_0, head_1, int32 = _OFFSET_LENGTH_CRC.pack, _HEAD_0.pack, _HEAD_1.pack, _INT32.pack
    for offset, timestamp, key, value in messages:
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if key is None:
            key_length, key = -1, b""
        else:
            key_length = len(key)
        if value is None:
            value_length, value = -1, b""
        else:
            value_length = len(value)
        head = head_1(1, attributes, timestamp, key_length) if magic else head_0(0, attributes, key_length)
        covered = join((head, key, int32(value_length), value))
        out += front(offset - base_offset, len(covered) + _CRC_SIZE, crc32(covered))
        out += covered
    return _Encoded(out, offset, max_timestamp)
