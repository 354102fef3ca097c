"""Batches that the broker writes itself: with another header, with the topic's codec, and markers."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from shoal.error_codes import ErrorCode
from shoal.records import BatchHeader, Codec, Record, RecordBatch, crc32c, write_batch, write_body
from shoal.records.aborted import Marker
from shoal.records.batch import ATTRIBUTES_OFFSET, CONTROL, HEADER, TRANSACTIONAL

from ..api_error import ApiError

__all__ = ["COORDINATOR_EPOCH", "end_transaction_marker", "placed", "recompressed", "with_fields"]

#: The coordinator epoch of markers: there is one coordinator of transactions, and it never moves.
COORDINATOR_EPOCH = 0

_NO_PRODUCER_ID = -1

#: Version and type; version and coordinator epoch.
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


def placed(batch: RecordBatch, base_offset: int, leader_epoch: int) -> RecordBatch:
    """Return a copy at its place in the log; base offset and leader epoch are not under the CRC."""
    return _copy(batch.header._replace(base_offset=base_offset, leader_epoch=leader_epoch), batch.payload)


def with_fields(batch: RecordBatch, **fields: int) -> RecordBatch:
    """Return a copy with other values in the header, and their CRC."""
    header = batch.header._replace(**fields)
    crc = crc32c(batch.payload, crc32c(HEADER.pack(*header)[ATTRIBUTES_OFFSET:]))
    return _copy(header._replace(crc=crc), batch.payload)


def _copy(header: BatchHeader, payload: memoryview) -> RecordBatch:
    return RecordBatch(header, memoryview(b"".join((HEADER.pack(*header), payload))))


def recompressed(
    header: BatchHeader, records: Sequence[Record], codec: Codec, most_bytes: int
) -> RecordBatch:
    """
    Return a batch recompressed with the topic's codec (``LogValidator.buildRecordsAndAssignOffsets``).

    The records and their producer stay. The offset deltas become 0, 1, 2, …, and of the attributes only the
    codec and the transactional bit stay.

    Raises:
        ApiError: With UNKNOWN_SERVER_ERROR for a producer id without epoch or sequence, which
            ``MemoryRecordsBuilder`` refuses; any id but -1 counts, even a negative one. With
            MESSAGE_TOO_LARGE if the batch exceeds a limit.

    """
    if header.producer_id != _NO_PRODUCER_ID and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"producer {header.producer_id} has epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}",
        )
    batch = write_batch(records, codec)
    if len(batch.view) > most_bytes:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"recompressed, the batch takes {len(batch.view)} bytes")
    return with_fields(
        batch,
        attributes=codec | header.attributes & TRANSACTIONAL,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def end_transaction_marker(
    producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int
) -> RecordBatch:
    """Return the control batch that ends a transaction in a partition (``EndTransactionMarker``)."""
    body = write_body(_MARKER_KEY.pack(0, marker), _MARKER_VALUE.pack(0, COORDINATOR_EPOCH))
    return with_fields(
        write_batch([Record(0, timestamp_ms, body)], Codec.NONE),
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
