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
from typing import NamedTuple

from .batch import CODEC_MASK, CONTROL, RECORDS_COUNT_OFFSET, RecordBatch
from .checksum import crc32c, crc_of_difference

__all__ = ["Fingerprint", "fingerprint"]

_COVERED = struct.Struct(">hiqqqhi")


class Fingerprint(NamedTuple):
    """
    Two batches with the same fingerprint hold the same records.

    Attributes:
        crc: CRC-32C of the normalised batch, from the attributes on.
        size: Bytes of the whole batch.
        records_count: As in the header.
        base_timestamp: As in the header, in milliseconds.

    """

    crc: int
    size: int
    records_count: int
    base_timestamp: int


def fingerprint(batch: RecordBatch) -> Fingerprint:
    """
    Return the fingerprint of a batch of magic 2, from its header and its CRC.

    The payload is not read: the CRC in the header stands for it. Call
    :func:`~shoal.records.verify_crc` first if that is in doubt. The header is
    the one that was fetched, so a stamp in between changes nothing.

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
    return Fingerprint(crc, header.size, header.records_count, header.base_timestamp)
