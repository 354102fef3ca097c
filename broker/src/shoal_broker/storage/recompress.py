"""
A batch recompressed with the topic's codec: ``LogValidator.buildRecordsAndAssignOffsets``.

The records and their producer stay. The offset deltas become 0, 1, 2, …, and of the attributes only the codec
and the transactional bit stay.
"""

from __future__ import annotations

import struct

from shoal.error_codes import ErrorCode
from shoal.records import BatchHeader, RecordBatch, crc32c, read_header
from shoal.records.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, PRODUCER_ID_OFFSET, TRANSACTIONAL
from shoal.records.rebuild import BatchWriter

from ..api_error import ApiError

__all__ = ["recompressed"]

_ATTRIBUTES = struct.Struct(">h")
_IDENTITY = struct.Struct(">qhi")
_CRC = struct.Struct(">I")

_NO_PRODUCER_ID = -1


def recompressed(header: BatchHeader, written: BatchWriter) -> RecordBatch:
    """
    Return the recompressed batch with the identity of its producer.

    Raises:
        ApiError: With UNKNOWN_SERVER_ERROR for a producer id without epoch or sequence, which
            ``MemoryRecordsBuilder`` refuses; any id but -1 counts, even a negative one. With
            MESSAGE_TOO_LARGE if the batch exceeds the writer's limit.

    """
    if header.producer_id != _NO_PRODUCER_ID and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"producer {header.producer_id} has epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}",
        )
    batch = written.finish()
    if batch is None:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"recompressed, the batch takes {written.size} bytes")
    view = batch.view
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_OFFSET, written.codec | header.attributes & TRANSACTIONAL)
    _IDENTITY.pack_into(
        view, PRODUCER_ID_OFFSET, header.producer_id, header.producer_epoch, header.base_sequence
    )
    _CRC.pack_into(view, CRC_OFFSET, crc32c(view[ATTRIBUTES_OFFSET:]))
    return RecordBatch(read_header(view), view)
