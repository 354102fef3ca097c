"""The messages of producers of magic 0 and 1, converted to a batch of magic 2."""

from __future__ import annotations

from ..error_codes import ErrorCode
from ..errors import CorruptBatch, NotConvertible, UnsupportedBatch
from .batch import RecordBatch
from .legacy import NO_TIMESTAMP, read_sent
from .rebuild import BatchWriter
from .record import write_body

__all__ = ["up_convert"]

#: More than any batch: its length is an int32.
_ANY_SIZE = 1 << 32


def up_convert(record_set: memoryview, limit_bytes: int) -> RecordBatch | None:
    """
    Return the messages of one partition in a Produce request of v0 to v2 as a batch, with their codec.

    Args:
        record_set: The set as it came.
        limit_bytes: The limit for what a wrapper expands to, at 64 bytes or more for each message.

    Returns:
        A batch over a writable buffer of its own, with offsets from 0 on, of no producer; None if the set has
        no whole message.

    Raises:
        NotConvertible: With CORRUPT_MESSAGE for what is no message set, INVALID_TIMESTAMP for a negative
            time, MESSAGE_TOO_LARGE beyond the limit.

    """
    try:
        codec, messages = read_sent(record_set, limit_bytes)
        writer = BatchWriter(codec, _ANY_SIZE)
        for message in messages:
            if message.timestamp < NO_TIMESTAMP:
                raise NotConvertible(ErrorCode.INVALID_TIMESTAMP, "a negative timestamp")
            body = write_body(message.key, message.value)
            writer.begin_record(message.timestamp, len(body))
            writer.write_body(body)
    except CorruptBatch as error:
        raise NotConvertible(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    except UnsupportedBatch as error:
        raise NotConvertible(ErrorCode.MESSAGE_TOO_LARGE, error.reason) from error
    return writer.finish() if writer.count else None
