"""The records of a batch of magic 2 as the messages that they become."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import CorruptBatch
from ..batch import RecordBatch
from ..legacy import Message
from ..record import Malformed, read_heads, read_payload, read_unsigned

__all__ = ["read_values"]

_new = tuple.__new__


def read_values(batch: RecordBatch, limit_bytes: int) -> Iterator[Message]:
    """
    Yield the records of a batch of magic 2, without their headers, which are not looked into.

    Unlike :func:`~shoal.records.read_records` it keeps no more than one of
    them at a time beside the payload. The CRC is not verified.

    The lengths of key and value are read in line if they take one byte, or two
    if that is usual: this takes half of the time of a conversion as it is.

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
            size = data[position]
            position += 1
            if size >= 0x80:
                size, position = read_unsigned(data, position - 1, 32)
            if size & 1:
                key = None
            else:
                key = data[position : position + (size >> 1)]
                position += size >> 1

            size = data[position]
            position += 1
            if size >= 0x80:
                more = data[position]
                if more < 0x80:
                    size += (more << 7) - 0x80
                    position += 1
                else:
                    size, position = read_unsigned(data, position - 1, 32)
            if size & 1:
                value = None
            else:
                value = data[position : position + (size >> 1)]
                position += size >> 1

            if position >= end:
                raise Malformed(f"the record at offset {offset} ends in its value")
            yield _new(Message, (offset, timestamp if append_time is None else append_time, key, value))
    except (Malformed, IndexError) as error:
        reason = "they are cut short" if isinstance(error, IndexError) else str(error)
        raise CorruptBatch(f"its records do not parse: {reason}", header.base_offset) from None
