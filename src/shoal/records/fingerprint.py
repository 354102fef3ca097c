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
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    RECORDS_COUNT_OFFSET,
    TRANSACTIONAL,
    Codec,
    RecordBatch,
)
from .checksum import crc32c, crc_of_difference

__all__ = ["PACKED_FINGERPRINT", "fingerprint", "fingerprint_plain"]

_COVERED = struct.Struct(">hiqqqhi")

#: A fingerprint: CRC-32C of the normalised batch, from the attributes on; size of the whole batch in bytes,
#: number of records, codec, base timestamp in milliseconds.
PACKED_FINGERPRINT = struct.Struct("<IIIIq")


def fingerprint(batch: RecordBatch) -> bytes:
    """
    Return the fingerprint of a batch of magic 2, from its header and its CRC.

    Two batches with the same fingerprint hold the same records.
    The payload is not read: the CRC in the header stands for it. Call
    :func:`~shoal.records.verify_crc` first if that is in doubt. The header is
    the one that was fetched, so a stamp in between changes nothing.

    Returns:
        A :data:`PACKED_FINGERPRINT`.

    """
    header = batch.header
    before = _COVERED.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
    normal = _COVERED.pack(
        header.attributes & (CODEC_MASK | CONTROL),
        header.last_offset_delta,
        header.base_timestamp,
        0,  # max_timestamp
        -1,  # producer_id
        -1,  # producer_epoch
        -1,  # base_sequence
    )
    crc = header.crc ^ crc_of_difference(crc32c(before), crc32c(normal), header.size - RECORDS_COUNT_OFFSET)
    return PACKED_FINGERPRINT.pack(
        crc, header.size, header.records_count, header.codec_id, header.base_timestamp
    )


def fingerprint_plain(
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
    walk = fingerprint_plain_in_python if NATIVE is None else NATIVE.fingerprint_plain
    return walk(
        record_set,
        position,
        first_offset=first_offset,
        end_offset=end_offset,
        transactional=transactional,
    )


def fingerprint_plain_in_python(
    record_set: memoryview, position: int, *, first_offset: int, end_offset: int, transactional: bool
) -> bytes:
    end, offset = len(record_set), first_offset
    refused = CONTROL | DELETE_HORIZON | (0 if transactional else TRANSACTIONAL)
    time_bit: int | None = None
    rows: list[bytes] = []
    while end - position >= HEADER_SIZE and offset < end_offset:
        header = HEADER.unpack_from(record_set, position)
        base_offset, length, _, magic, crc, attributes, delta, base_timestamp, _, _, _, _, count = header
        following = position + length + LOG_OVERHEAD
        if base_offset != offset or magic != 2 or length < HEADER_SIZE - LOG_OVERHEAD or following > end:
            break
        if count <= 0 or count != delta + 1 or attributes & refused or attributes & CODEC_MASK > _LAST_CODEC:
            break
        if time_bit is None:
            time_bit = attributes & LOG_APPEND_TIME
        if attributes & LOG_APPEND_TIME != time_bit:
            break
        if crc32c(record_set[position + ATTRIBUTES_OFFSET : following]) != crc:
            break
        codec = attributes & CODEC_MASK
        normal = crc32c(_COVERED.pack(codec, delta, base_timestamp, 0, -1, -1, -1))
        # The payload is in the cache by now: to read it again costs less than to correct the CRC.
        normal = crc32c(record_set[position + RECORDS_COUNT_OFFSET : following], normal)
        rows.append(PACKED_FINGERPRINT.pack(normal, length + LOG_OVERHEAD, count, codec, base_timestamp))
        position, offset = following, offset + count
    return b"".join(rows)


_LAST_CODEC = max(Codec)
