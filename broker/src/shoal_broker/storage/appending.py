"""
The batches of a request beside those in the log: what is written already, and the form that is stored.

A client that compares (:mod:`.multi_batch`) uses the offsets at which its batches must land, modulo 2^31, as
their sequences.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from shoal.records import HEADER_SIZE, BatchHeader, RecordBatch, crc32c
from shoal.records.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, LEADER_EPOCH_OFFSET, MAX_TIMESTAMP_OFFSET

from .producers import SEQUENCE_COUNT, Producer
from .validate import HeaderChange, check_crc

__all__ = ["count_written", "nearest_offset", "sequence_distance", "stored_batch"]

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")


def stored_batch(
    batch: RecordBatch, base_offset: int, leader_epoch: int, change: HeaderChange | None
) -> RecordBatch:
    """
    Return a copy of a batch as the log stores it.

    Base offset and leader epoch are not under the CRC. A change of attributes or timestamp needs a new one.

    """
    header = batch.header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    start = bytearray(batch.view[:HEADER_SIZE])
    _BASE_OFFSET.pack_into(start, 0, base_offset)
    _LEADER_EPOCH.pack_into(start, LEADER_EPOCH_OFFSET, leader_epoch)
    if change is not None:
        header = header._replace(attributes=change.attributes, max_timestamp=change.max_timestamp)
        _ATTRIBUTES.pack_into(start, ATTRIBUTES_OFFSET, change.attributes)
        _MAX_TIMESTAMP.pack_into(start, MAX_TIMESTAMP_OFFSET, change.max_timestamp)
        crc = crc32c(batch.view[HEADER_SIZE:], crc32c(memoryview(start)[ATTRIBUTES_OFFSET:]))
        _CRC.pack_into(start, CRC_OFFSET, crc)
    return RecordBatch(header, memoryview(b"".join((start, batch.view[HEADER_SIZE:]))))


def nearest_offset(sequence: int, log_end_offset: int) -> int:
    """Return the offset that a sequence stands for: of all candidates the one nearest to the log's end."""
    ahead = (sequence - log_end_offset) % SEQUENCE_COUNT
    return log_end_offset + (ahead if ahead < SEQUENCE_COUNT // 2 else ahead - SEQUENCE_COUNT)


def sequence_distance(first: RecordBatch, later: RecordBatch) -> int:
    """Return the number of records between the first records of two batches in a row."""
    return (later.header.base_sequence - first.header.base_sequence) % SEQUENCE_COUNT


def count_written(
    batches: Sequence[RecordBatch],
    producer: Producer,
    first_offset: int,
    log_end_offset: int,
    header_at: Callable[[int], BatchHeader | None],
) -> int | None:
    """
    Return how many batches, from the first on, the log has at their offsets; then the log must end.

    Args:
        batches: The request's, in a row.
        producer: The state of their producer.
        first_offset: The offset at which the first one must be.
        header_at: Returns the header of the batch that holds an offset, None if there is none of magic 2.

    Returns:
        None if the log has another batch at one of the offsets. Also None if one of the others would be a
        duplicate by the stock rules: then this producer wrote it without comparing.

    Raises:
        ApiError: With CORRUPT_MESSAGE, if one that the log has comes with a wrong CRC.

    """
    offset = first_offset
    count = 0
    while count < len(batches) and offset != log_end_offset:
        stored = header_at(offset)
        if stored is None or stored.base_offset != offset or not _is_same(stored, batches[count].header):
            return None
        check_crc(batches[count])
        offset = stored.next_offset
        count += 1
    return None if any(producer.duplicate_of(batch.header) for batch in batches[count:]) else count


def _is_same(stored: BatchHeader, sent: BatchHeader) -> bool:
    """Compare as the stock broker does; the log may hold the payload with another compression."""
    return (
        stored.producer_id == sent.producer_id
        and stored.producer_epoch == sent.producer_epoch
        and stored.base_sequence == sent.base_sequence
        and stored.last_offset_delta == sent.last_offset_delta
    )
