"""
Message sets of magic 0 and 1, from Produce before v3: checked, and stored as batches of magic 2.

The checks are Kafka 3.9's (``UnifiedLog.analyzeAndValidateRecords``, then
``LogValidator``); where Kafka's topics could still be of an older format,
ours are of magic 2, as all of Kafka 4's are.
"""

from __future__ import annotations

from ..converting import Direction, counted
from ..errors import NotConvertible
from ..records import RecordBatch
from ..records.batch import LOG_APPEND_TIME, MAGIC_OFFSET
from ..records.down_conversion import ConvertedCounts
from ..records.up_conversion import read_message_set, up_convert
from .config import TopicConfig
from .refusal import Refused
from .validate import MOST_DECOMPRESSED_BYTES, HeaderChange, check_records, check_size

__all__ = ["is_message_set", "validated_message_set"]


def is_message_set(record_set: memoryview) -> bool:
    """Whether a record set begins with a message of magic 0 or 1, or with nothing at all."""
    return len(record_set) <= MAGIC_OFFSET or record_set[MAGIC_OFFSET] != 2


def validated_message_set(
    record_set: memoryview, config: TopicConfig, now_ms: int
) -> tuple[RecordBatch, HeaderChange | None] | None:
    """
    Check a message set, and convert it.

    Returns:
        One batch, of the codec that the messages or the topic have, and what
        is to be changed in its header; None where there is no whole message,
        which is no error.

    Raises:
        Refused: The first that applies: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
            INVALID_RECORD, INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR; and
            MESSAGE_TOO_LARGE where it became too large.

    """
    try:
        with counted(Direction.PRODUCE) as tally:
            message_set = read_message_set(record_set, MOST_DECOMPRESSED_BYTES, config.max_message_bytes)
            if message_set is None:
                return None
            messages = message_set.messages
            check_records(
                [(each.key is not None, each.timestamp, each.is_append_time) for each in messages],
                config,
                now_ms,
            )
            batch = up_convert(messages, message_set.codec if config.codec is None else config.codec)
            tally.add(ConvertedCounts(1, len(messages), len(record_set), len(batch.view)))
    except NotConvertible as error:
        raise Refused(error.code, error.reason) from error
    check_size(batch.header, config)
    if config.log_append_time:
        return batch, HeaderChange(batch.header.attributes | LOG_APPEND_TIME, now_ms)
    return batch, None
