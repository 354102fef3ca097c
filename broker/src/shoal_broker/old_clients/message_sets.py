"""
Message sets of magic 0 and 1, from Produce before v3: checked, and stored as batches of magic 2.

The checks are Kafka 3.9's (``UnifiedLog.analyzeAndValidateRecords``, then
``LogValidator``). Kafka 3.9's topics could have an older format; here all topics
have magic 2, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.errors import NotConvertible
from shoal.net.converting import ConvertedApi, turn
from shoal.records import RecordBatch
from shoal.records.batch import LOG_APPEND_TIME, MAGIC_OFFSET
from shoal.records.compression import DEFAULT_LIMIT_BYTES
from shoal.records.down_conversion import ConvertedCounts
from shoal.records.up_conversion import SentMessage, read_message_set, up_convert

from ..api_error import ApiError
from ..config import TopicConfig
from ..storage.validate import HeaderChange, RecordErrors

__all__ = ["is_message_set", "validated_message_set"]

#: The largest expansion of a wrapper, and at 64 bytes each of its messages: as much as is converted back for
#: old consumers. All of it is in memory during a turn.
_MOST_DECOMPRESSED_BYTES = DEFAULT_LIMIT_BYTES


def is_message_set(record_set: memoryview) -> bool:
    """Return whether a record set begins with a message of magic 0 or 1, or is empty."""
    return len(record_set) <= MAGIC_OFFSET or record_set[MAGIC_OFFSET] != 2


def validated_message_set(
    record_set: memoryview, config: TopicConfig, now_ms: int
) -> tuple[RecordBatch, HeaderChange | None] | None:
    """
    Check a message set, and convert it.

    Returns:
        One batch, with the codec of the messages or the topic, and the changes to its header; None if there
        is no whole message, which is not an error.

    Raises:
        ApiError: The first that applies: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
            INVALID_RECORD, INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR; and
            MESSAGE_TOO_LARGE if it became too large.

    """
    try:
        with turn(ConvertedApi.PRODUCE) as tally:
            message_set = read_message_set(record_set, _MOST_DECOMPRESSED_BYTES, config.max_message_bytes)
            if message_set is None:
                return None
            codec = message_set.codec if config.codec is None else config.codec
            messages = _checked(message_set.messages, RecordErrors(config, now_ms))
            batch = up_convert(messages, codec, config.max_message_bytes)
            tally.add(ConvertedCounts(1, message_set.messages_count, len(record_set), len(batch.view)))
    except NotConvertible as error:
        raise ApiError(error.code, error.reason) from error
    if config.log_append_time:
        return batch, HeaderChange(batch.header.attributes | LOG_APPEND_TIME, now_ms)
    return batch, None


def _checked(messages: Iterator[SentMessage], errors: RecordErrors) -> Iterator[SentMessage]:
    """Pass messages on, and raise their errors after the last one."""
    for message in messages:
        errors.check(message.key is not None, message.timestamp, message.is_append_time)
        yield message
    errors.raise_any()
