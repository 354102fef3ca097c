"""
Make a fetched batch one of ours: rewrite its header in place.

A stamp clears the bits that a client may not send: LogAppendTime, transactional
and delete horizon. It writes our producer identity, the base offset 0
(``LogValidator`` accepts no other) and the leader epoch -1. Everything else
stays: codec, count, create times, payload.

Source producer ids are never kept: they collide with those that the
destination assigns, and its broker would take new batches for duplicates.
"""

from __future__ import annotations

import struct

from .batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    PRODUCER_ID_OFFSET,
    RECORDS_COUNT_OFFSET,
    TRANSACTIONAL,
    RecordBatch,
)
from .checksum import crc32c, crc_of_difference

__all__ = ["stamp", "stamp_bytes"]

_BEFORE_ATTRIBUTES = struct.Struct(">qiibI")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_IDENTITY = struct.Struct(">qhi")

CLEARED_ATTRIBUTES = LOG_APPEND_TIME | TRANSACTIONAL | DELETE_HORIZON
_KEPT = ~CLEARED_ATTRIBUTES

#: From the attributes to the base sequence: all that a stamp changes under the CRC.
_FIRST, _END = ATTRIBUTES_OFFSET, RECORDS_COUNT_OFFSET


def stamp(batch: RecordBatch, producer_id: int, producer_epoch: int, base_sequence: int) -> int:
    """
    Rewrite the header in the batch's own buffer, and correct its CRC.

    A stamped batch may be stamped again: the correction reads the bytes, and
    not the header as it was fetched.

    Args:
        batch: A batch of magic 2 over a writable buffer. Its ``header`` keeps
            the values that were fetched; the bytes change.
        producer_id: The mirror's, for this destination partition.
        base_sequence: The offset at which the batch must land, modulo 2^31.

    Returns:
        The new CRC: the old one corrected for the bytes that changed, so a
        payload that was damaged before still does not match it.

    """
    return stamp_bytes(batch.view, batch.header.attributes, producer_id, producer_epoch, base_sequence)


def stamp_bytes(
    view: memoryview, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> int:
    """Stamp the bytes of a batch with these attributes; see :func:`stamp`."""
    size = len(view)
    changing = view[_FIRST:_END]
    before = crc32c(changing)
    _ATTRIBUTES.pack_into(view, _FIRST, attributes & _KEPT)
    _IDENTITY.pack_into(view, PRODUCER_ID_OFFSET, producer_id, producer_epoch, base_sequence)
    crc: int = _CRC.unpack_from(view, CRC_OFFSET)[0]
    crc ^= crc_of_difference(before, crc32c(changing), size - _END)
    _BEFORE_ATTRIBUTES.pack_into(view, 0, 0, size - LOG_OVERHEAD, -1, 2, crc)
    return crc
