"""
Fingerprints of batches: all of a batch that neither a mirror nor a broker changes.

Not included: base offset, leader epoch, producer identity, all attributes but the
codec and the control bit, and ``max_timestamp``. The last is a summary that a
broker corrects by itself (``setMaxTimestamp``: it differs on a LogAppendTime
topic, and writing it clears the attribute bits that have no meaning); the
records' own timestamps are ``base_timestamp`` and deltas in the payload, and
both count.
"""

from __future__ import annotations

import struct

from ..native import NATIVE
from .batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    RECORDS_COUNT_OFFSET,
    TRANSACTIONAL,
    RecordBatch,
)
from .checksum import crc32c
from .plain import plain_headers

__all__ = ["PACKED_FINGERPRINT", "fingerprint", "fingerprint_plain", "fingerprint_plain_in_python"]

_COVERED = struct.Struct(">hiqqqhi")

#: A fingerprint: CRC-32C of the normalised batch, from the attributes on; size of the whole batch in bytes,
#: number of records, codec, base timestamp in milliseconds.
PACKED_FINGERPRINT = struct.Struct("<IIIIq")


def fingerprint(batch: RecordBatch) -> bytes:
    """
    Return the fingerprint of a batch of magic 2.

    Two batches with the same fingerprint hold the same records. The header is the one that was fetched, so a
    stamp in between changes nothing.

    Returns:
        A :data:`PACKED_FINGERPRINT`.

    """
    header, view = batch
    return _packed(
        header.attributes & (CODEC_MASK | CONTROL),
        header.last_offset_delta,
        header.base_timestamp,
        view[RECORDS_COUNT_OFFSET:],
        header.records_count,
    )


def _packed(attributes: int, delta: int, base_timestamp: int, payload: memoryview, count: int) -> bytes:
    """Return the fingerprint of a batch with these fields; the payload begins with the number of records."""
    # In the place of the largest timestamp, the producer's id and epoch and the base sequence.
    crc = crc32c(payload, crc32c(_COVERED.pack(attributes, delta, base_timestamp, 0, -1, -1, -1)))
    size, codec = len(payload) + RECORDS_COUNT_OFFSET, attributes & CODEC_MASK
    return PACKED_FINGERPRINT.pack(crc, size, count, codec, base_timestamp)


def fingerprint_plain_in_python(
    record_set: memoryview, position: int, *, first_offset: int, end_offset: int, transactional: bool
) -> bytes:
    """
    Return the fingerprints of the plain batches from a position on, back to back.

    A plain batch has magic 2, a right CRC, a known codec, at least one record, and no hole. It is no control
    batch, and has no delete horizon. It begins at the offset at which the batch before it ends, and has the
    timestamp type of the first.

    Args:
        record_set: Batches back to back, the last perhaps cut short.
        position: The position of the first batch.
        first_offset: The base offset that the first batch must have.
        end_offset: The first offset that is not wanted; a batch that begins before it may end behind it.
        transactional: Whether transactional batches are plain: nothing of them was aborted.

    """
    refused = CONTROL | DELETE_HORIZON | (0 if transactional else TRANSACTIONAL)
    time_bit: int | None = None
    rows: list[bytes] = []
    for header, begin, end in plain_headers(record_set, position, first_offset, refused):
        base_offset, _, _, _, crc, attributes, delta, base_timestamp, _, _, _, _, count = header
        if time_bit is None:
            time_bit = attributes & LOG_APPEND_TIME
        if base_offset >= end_offset or attributes & LOG_APPEND_TIME != time_bit:
            break
        if crc32c(record_set[begin + ATTRIBUTES_OFFSET : end]) != crc:
            break
        # The payload is in the cache by now: to read it again costs less than to correct the CRC.
        payload = record_set[begin + RECORDS_COUNT_OFFSET : end]
        rows.append(_packed(attributes & CODEC_MASK, delta, base_timestamp, payload, count))
    return b"".join(rows)


fingerprint_plain = fingerprint_plain_in_python if NATIVE is None else NATIVE.fingerprint_plain
