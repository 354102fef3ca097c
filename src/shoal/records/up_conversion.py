"""The messages of producers of magic 0 and 1, converted to a batch of magic 2."""

from __future__ import annotations

from ..error_codes import ErrorCode
from ..errors import CorruptBatch, NotConvertible, UnsupportedBatch
from .batch import Codec, RecordBatch, split
from .checksum import verify_crc
from .compression import check_count
from .legacy import NO_TIMESTAMP, Message, read_messages
from .rebuild import write_batch
from .record import Record, write_body

__all__ = ["up_convert"]


def up_convert(record_set: memoryview, limit_bytes: int) -> RecordBatch | None:
    """
    Return the messages of one partition in a Produce request of v0 to v2 as a batch, with their codec.

    Args:
        record_set: The set as it came. A message that is cut short at its end is ignored, as by Kafka.
        limit_bytes: The limit for what a wrapper expands to, at 64 bytes or more for each message.

    Returns:
        A batch over a writable buffer of its own, with offsets from 0 on, of no producer; None if the set has
        no whole message.

    Raises:
        NotConvertible: With CORRUPT_MESSAGE for what is no message set, INVALID_TIMESTAMP for a negative
            time, MESSAGE_TOO_LARGE beyond the limit.

    """
    try:
        codec, messages = _read(record_set, limit_bytes)
    except CorruptBatch as error:
        raise NotConvertible(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    except UnsupportedBatch as error:
        raise NotConvertible(ErrorCode.MESSAGE_TOO_LARGE, error.reason) from error
    if any(message.timestamp < NO_TIMESTAMP for message in messages):
        raise NotConvertible(ErrorCode.INVALID_TIMESTAMP, "a negative timestamp")
    records = [
        Record(offset, message.timestamp, write_body(message.key, message.value))
        for offset, message in enumerate(messages)
    ]
    return write_batch(records, codec) if records else None


def _read(record_set: memoryview, limit_bytes: int) -> tuple[Codec, list[Message]]:
    """Return the codec of the one wrapper, if there is one, and the messages."""
    codec_id = 0
    messages: list[Message] = []
    for number, batch in enumerate(split(record_set, has_offsets=False)):
        check_count(number + 1, limit_bytes, 0)
        if batch.header.magic == 2:
            raise CorruptBatch("a batch of magic 2 in a set of messages")
        if number and (codec_id or batch.header.codec_id):
            raise CorruptBatch("a compressed message is not alone in its set")
        codec_id = batch.header.codec_id
        verify_crc(batch)
        messages += read_messages(batch, limit_bytes, check_offsets=False)
    return Codec(codec_id), messages
