"""The records of a batch of magic 2 as the messages that they become."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import CorruptBatch
from ..batch import RecordBatch
from ..legacy import Message
from ..record import Malformed, read_heads, read_payload, read_sized

__all__ = ["read_values"]


def read_values(batch: RecordBatch, limit_bytes: int) -> Iterator[Message]:
    """
    Yield the records of a batch of magic 2, without their headers, which are not looked into.

    Unlike :func:`~shoal.records.read_records` it keeps no more than one of
    them at a time beside the payload. The CRC is not verified.

    Args:
        batch: A batch of magic 2.
        limit_bytes: The most that its records may expand to.

    Yields:
        The values of each record. In a LogAppendTime batch the append time is their timestamp.

    Raises:
        CorruptBatch: The records do not match the header; raised at the first that does not.
        UnsupportedBatch: The records expand to more than ``limit_bytes``, or
            the codec is unknown.

    """
    header = batch.header
    data = read_payload(batch, limit_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    try:
        for offset, timestamp, position, end in read_heads(data, header):
            key, position = read_sized(data, position)
            value, position = read_sized(data, position)
            if position >= end:
                raise Malformed(f"the record at offset {offset} ends in its value")
            yield Message(offset, timestamp if append_time is None else append_time, key, value)
    except (Malformed, IndexError) as error:
        reason = "they are cut short" if isinstance(error, IndexError) else str(error)
        raise CorruptBatch(f"its records do not parse: {reason}", header.base_offset) from None
