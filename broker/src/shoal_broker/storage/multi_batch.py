"""
Several batches of a partition in one Produce request: the broker's half of KIP-712.

Stock Kafka refuses a second batch with INVALID_RECORD. With ``shoal.multi.batch.produce`` this broker accepts
several batches from clients whose id begins with ``shoal.multi.batch.client.id.prefix``, like a real one with
shoal's Java agent. Any other client sees stock Kafka.

The client's sequences are the offsets at which its batches must land (modulo 2^31). The log must end at the
first new batch's offset, otherwise nothing is written. That makes a retry exact, however many batches it has
and however many came since: the log itself has the batches at those offsets.
:meth:`.log.Log.compare_and_append` does it, with all batches of a partition or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from shoal.error_codes import ErrorCode
from shoal.records import BatchHeader, RecordBatch

from ..api_error import ApiError
from .producers import SEQUENCE_COUNT, Producer, last_sequence_of, next_sequence
from .validate import check_crc, iterate, with_header

__all__ = ["admitted_batches", "count_written", "is_asked_for", "nearest_offset", "sequence_distance"]

#: Earlier versions would need rules of their own, for example against ZStandard.
_FROM_VERSION = 7


def is_asked_for(config: Mapping[str, str], client_id: str) -> bool:
    """Return whether the broker accepts several batches, and this client's id has the prefix."""
    return config["shoal.multi.batch.produce"].lower() == "true" and client_id.startswith(
        config["shoal.multi.batch.client.id.prefix"]
    )


def admitted_batches(record_set: memoryview, version: int) -> Sequence[RecordBatch] | None:
    """
    Return the batches of a record set that can be compared and appended together.

    Args:
        record_set: The record set of one partition.
        version: The version of the request.

    Returns:
        One batch or more, of which only the headers were checked. None if a rule is broken: then the stock
        rules apply, which refuse two batches.

    Raises:
        ApiError: With INVALID_RECORD for an incomplete batch at the end, which the stock rules would drop;
            CORRUPT_MESSAGE for an invalid length or magic; UNKNOWN_SERVER_ERROR for a batch without a
            complete header.

    """
    batches = [with_header(view) for view in iterate(record_set)]
    if sum(len(batch.view) for batch in batches) < len(record_set):
        raise ApiError(ErrorCode.INVALID_RECORD, "the last batch is cut short")
    headers = [batch.header for batch in batches]
    is_admitted = (
        version >= _FROM_VERSION
        and all(_is_of_client(header) and _has_sequence(header) for header in headers)
        and all(_follows(header, before) for before, header in pairwise(headers))
    )
    return batches if batches and is_admitted else None


def _is_of_client(header: BatchHeader) -> bool:
    """Return whether a client may send such a batch alone, outside of a transaction."""
    return (
        header.magic == 2
        and header.base_offset == 0
        and 0 < header.records_count == header.last_offset_delta + 1
        and not header.is_control
        and not header.is_transactional
    )


def _has_sequence(header: BatchHeader) -> bool:
    return header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0


def _follows(header: BatchHeader, before: BatchHeader) -> bool:
    return (
        header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == next_sequence(last_sequence_of(before))
    )


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
