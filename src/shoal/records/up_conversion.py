"""
The messages of producers of magic 0 and 1, converted to a batch of magic 2.

A message set is either messages back to back, or one wrapper with compressed
messages in it. This module accepts and refuses the same sets as Kafka 3.9's
``LogValidator`` with its legacy record classes, with the same error codes. Like
these it ignores a message that is cut short at the end of a set or wrapper, and
bytes behind a message's value. Unlike there, nothing may follow the stream in a
wrapper of LZ4.

The caller checks the rules that depend on the topic: keys and timestamps.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..error_codes import ErrorCode
from ..errors import CorruptBatch, NotConvertible, UnsupportedBatch
from .batch import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC_OFFSET, Codec, RecordBatch
from .compression import Bytes, check_count, decompress, decompress_legacy_lz4
from .legacy import NO_TIMESTAMP, Malformed, read_sized
from .rebuild import BatchWriter
from .record import write_body

__all__ = ["MessageSet", "SentMessage", "read_message_set", "up_convert"]

_OVERHEAD = struct.Struct(">qi")
_CRC_MAGIC_ATTRIBUTES = struct.Struct(">Ibb")
_INT64 = struct.Struct(">q")

#: CRC, magic, attributes and two lengths (``LegacyRecord.RECORD_OVERHEAD_V0``).
_SMALLEST_LENGTH = 14
_CRC_COVERS_FROM = 4
#: Kept, since to look for it took a fifth of the time of a small message.
_LAST_CODEC = max(Codec)
#: More than any batch: its length is an int32.
_ANY_SIZE = 1 << 32


class SentMessage(NamedTuple):
    """
    A message as its producer means it, without an offset: that is the broker's to give.

    Attributes:
        timestamp: In milliseconds; -1 for magic 0, and for none.
        is_append_time: Whether the producer says that this is the broker's
            time, which it may not.
        key: None for null.
        value: None for null.

    """

    timestamp: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None


class MessageSet(NamedTuple):
    """
    The messages of a message set.

    Attributes:
        codec: The wrapper's codec, if there is a wrapper.
        messages_count: How many there are, at least one.
        messages: In order, read one by one: a million of the smallest takes a hundred times its bytes.
            Raises :class:`NotConvertible` if one does not parse.

    """

    codec: Codec
    messages_count: int
    messages: Iterator[SentMessage]


def read_message_set(record_set: memoryview, limit_bytes: int) -> MessageSet | None:
    """
    Read the messages of one partition in a Produce request of v0 to v2.

    Args:
        record_set: As it came.
        limit_bytes: The most that a wrapper may expand to.

    Returns:
        The messages, to be read once; None if there is no whole one.

    Raises:
        NotConvertible: With CORRUPT_MESSAGE for a wrong CRC and for lengths
            and magics that cannot be; MESSAGE_TOO_LARGE; INVALID_RECORD for
            formats that are mixed, or not in the form of a message set;
            UNKNOWN_SERVER_ERROR where Kafka's code runs into an exception
            that has no code.

    """
    first_magic = codec = None
    has_mixed_magic = False
    count = 0
    for each in _counted(_checked(record_set), limit_bytes):
        count += 1
        codec = codec if each.codec is Codec.NONE else each.codec
        first_magic = each.magic if first_magic is None else first_magic
        has_mixed_magic = has_mixed_magic or each.magic != first_magic
    if not count:
        return None
    if codec is not None and count > 1:
        raise NotConvertible(ErrorCode.INVALID_RECORD, "a wrapper is not alone in its message set")
    if has_mixed_magic:
        raise NotConvertible(ErrorCode.INVALID_RECORD, "the magic of the messages is not the same")
    again = map(_WholeMessage.read, _checked(record_set, crc_is_known=True))
    if codec is None:
        messages = (SentMessage(each.timestamp, each.is_append_time, each.key, each.value) for each in again)
        return MessageSet(Codec.NONE, count, messages)
    return _unwrapped(next(again), limit_bytes)


def up_convert(messages: Iterable[SentMessage], codec: Codec, most_bytes: int = _ANY_SIZE) -> RecordBatch:
    """
    Return messages as a batch of magic 2 with offsets from 0 on, of no producer.

    Args:
        messages: At least one; each is written before the next is read.
        codec: Their compression.
        most_bytes: The most that the batch may take.

    Returns:
        A batch over a buffer of its own, which is writable.

    Raises:
        NotConvertible: With UNKNOWN_SERVER_ERROR for a negative timestamp,
            which ``MemoryRecordsBuilder`` does not take; MESSAGE_TOO_LARGE
            for a larger batch; and as ``messages`` does.

    """
    writer = BatchWriter(codec, most_bytes)
    has_negative = False
    for message in messages:
        has_negative = has_negative or message.timestamp < NO_TIMESTAMP
        body = write_body(message.key, message.value)
        writer.begin_record(message.timestamp, len(body))
        writer.write_body(body)
    if has_negative:
        raise NotConvertible(ErrorCode.UNKNOWN_SERVER_ERROR, "a negative timestamp")
    batch = writer.finish()
    if batch is None:
        raise NotConvertible(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {writer.size} bytes, but only {most_bytes} are allowed"
        )
    return batch


class _SetEntry(NamedTuple):
    """A message or a wrapper in a set, from its CRC on, of which only the start was looked at."""

    offset: int
    content: Bytes
    magic: int
    attributes: int

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    def has_right_crc(self) -> bool:
        content = self.content
        return zlib.crc32(content[_CRC_COVERS_FROM:]) == int.from_bytes(content[:_CRC_COVERS_FROM])


class _WholeMessage(NamedTuple):
    """All of a message or a wrapper."""

    offset: int
    magic: int
    codec: Codec
    timestamp: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None

    @classmethod
    def read(cls, stored: _SetEntry) -> _WholeMessage:
        """
        Read key, value and timestamp.

        Raises:
            NotConvertible: A length leads out of the message.

        """
        position = _CRC_MAGIC_ATTRIBUTES.size
        timestamp = NO_TIMESTAMP
        try:
            if stored.magic == 1:
                (timestamp,) = _INT64.unpack_from(stored.content, position)
                position += _INT64.size
            key, position = read_sized(stored.content, position)
            value, _ = read_sized(stored.content, position)
        except (struct.error, Malformed) as error:
            # An IndexOutOfBounds- or IllegalArgumentException there.
            raise NotConvertible(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"a message of magic {stored.magic} does not parse: {error}"
            ) from None
        is_append_time = stored.magic == 1 and bool(stored.attributes & LOG_APPEND_TIME)
        return cls(stored.offset, stored.magic, stored.codec, timestamp, is_append_time, key, value)


def _checked(record_set: memoryview, *, crc_is_known: bool = False) -> Iterator[_SetEntry]:
    """Yield each whole message: ``ByteBufferLogInputStream`` and ``analyzeAndValidateRecords``."""
    position, end = 0, len(record_set)
    while end - position >= LOG_OVERHEAD:
        offset, length = _OVERHEAD.unpack_from(record_set, position)
        if length < _SMALLEST_LENGTH:
            raise NotConvertible(ErrorCode.CORRUPT_MESSAGE, f"a message of length {length}")
        if end - position <= MAGIC_OFFSET:
            return
        magic = record_set[position + MAGIC_OFFSET]
        if magic > 2:
            raise NotConvertible(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is not 0, 1 or 2")
        position += LOG_OVERHEAD
        if length > end - position:
            return
        if magic == 2:
            raise NotConvertible(ErrorCode.INVALID_RECORD, "a batch of magic 2 among messages")
        yield _outer(offset, record_set[position : position + length], crc_is_known)
        position += length


def _outer(offset: int, content: memoryview, crc_is_known: bool) -> _SetEntry:
    _, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(content)
    stored = _SetEntry(offset, content, magic, attributes)
    if not crc_is_known and not stored.has_right_crc():
        raise NotConvertible(ErrorCode.CORRUPT_MESSAGE, "the CRC of a message is wrong")
    _check_codec(attributes)
    return stored


def _check_codec(attributes: int) -> None:
    if attributes & CODEC_MASK > _LAST_CODEC:
        # CompressionType.forId throws an IllegalArgumentException, which has no code of its own.
        raise NotConvertible(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type id: {attributes & CODEC_MASK}"
        )


def _unwrapped(wrapper: _WholeMessage, limit_bytes: int) -> MessageSet:
    """
    Read the messages in a wrapper: ``DeepRecordsIterator`` and ``LogValidator.validateRecord``.

    Twice, as Kafka does: what is wrong with the first one's content counts for less than a wrong length
    in the last.
    """
    data = _decompressed(wrapper, limit_bytes)
    count, last_offset = 0, 0
    for each in _counted(_inner(data), limit_bytes):
        count += 1
        last_offset = each.offset
    if not count:
        raise NotConvertible(ErrorCode.INVALID_RECORD, "a wrapper with no message in it")
    # An offset of 0 is of certain versions of librdkafka, which count inside only.
    if wrapper.magic == 1 and 0 != wrapper.offset < last_offset:
        raise NotConvertible(
            ErrorCode.INVALID_RECORD,
            f"a wrapper at offset {wrapper.offset} with a last message at {last_offset}",
        )
    return MessageSet(wrapper.codec, count, _inner_messages(wrapper, data))


def _inner_messages(wrapper: _WholeMessage, data: bytes) -> Iterator[SentMessage]:
    has_other_magic = False
    for each in _inner(data):
        _check_codec(each.attributes)
        if each.codec is not Codec.NONE:
            raise NotConvertible(ErrorCode.INVALID_RECORD, "a message in a wrapper is compressed itself")
        if each.magic != wrapper.magic:
            has_other_magic = True
            continue
        if not each.has_right_crc():
            raise NotConvertible(ErrorCode.CORRUPT_MESSAGE, "the CRC of a message in a wrapper is wrong")
        message = _WholeMessage.read(each)
        timestamp = wrapper.timestamp if wrapper.is_append_time else message.timestamp
        yield SentMessage(timestamp, wrapper.is_append_time, message.key, message.value)
    if has_other_magic:
        raise NotConvertible(ErrorCode.INVALID_RECORD, "a message in a wrapper is of another magic")


def _decompressed(wrapper: _WholeMessage, limit_bytes: int) -> bytes:
    if wrapper.value is None or wrapper.codec is Codec.ZSTD:
        what = "without a value" if wrapper.value is None else "of zstd"
        raise NotConvertible(ErrorCode.INVALID_RECORD, f"a wrapper {what}")
    try:
        if not wrapper.value:
            raise CorruptBatch(f"the empty value is not a {wrapper.codec.name.lower()} stream")
        if wrapper.codec is Codec.LZ4 and wrapper.magic == 0:
            return bytes(decompress_legacy_lz4(wrapper.value, limit_bytes))
        return bytes(decompress(wrapper.codec, wrapper.value, limit_bytes))
    except CorruptBatch as error:
        # Kafka wraps the codec's exception in one that has no code of its own.
        raise NotConvertible(ErrorCode.UNKNOWN_SERVER_ERROR, error.reason) from error
    except UnsupportedBatch as error:
        raise NotConvertible(ErrorCode.MESSAGE_TOO_LARGE, error.reason) from error


def _counted(messages: Iterator[_SetEntry], limit_bytes: int) -> Iterator[_SetEntry]:
    """Yield all messages; stop at the first that is too many, since each takes more time than its bytes."""
    try:
        for count, each in enumerate(messages, 1):
            check_count(count, limit_bytes, 0)
            yield each
    except UnsupportedBatch as error:
        raise NotConvertible(ErrorCode.MESSAGE_TOO_LARGE, error.reason) from error


def _inner(data: bytes) -> Iterator[_SetEntry]:
    """Yield each whole message in a wrapper, as ``DataLogInputStream`` finds them."""
    position, end = 0, len(data)
    while end - position >= LOG_OVERHEAD:
        offset, length = _OVERHEAD.unpack_from(data, position)
        position += LOG_OVERHEAD
        if length < _SMALLEST_LENGTH:
            raise NotConvertible(ErrorCode.CORRUPT_MESSAGE, f"a message of length {length} in a wrapper")
        if length > end - position:
            return
        _, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(data, position)
        yield _SetEntry(offset, data[position : position + length], magic, attributes)
        position += length
