"""
What a batch is, apart from what a mirror or a broker must change about it.

Left out: base offset, leader epoch, producer identity, the bits that a stamp
clears, and ``max_timestamp``. The last is a summary that a broker corrects
by itself (``setMaxTimestamp``: it differs on a LogAppendTime topic); the
records' own timestamps are ``base_timestamp`` and deltas in the payload, and
both count.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .batch import RecordBatch
from .checksum import crc_of_difference
from .stamp import CLEARED_ATTRIBUTES

__all__ = ["Fingerprint", "fingerprint"]

_COVERED = struct.Struct(">hiqqqhi")
_FIRST, _END = 21, 57


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

    The payload is not read: it is vouched for by the CRC in the header. Call
    :func:`~shoal.records.verify_crc` first where that is in doubt.

    """
    header = batch.header
    old = int.from_bytes(batch.view[_FIRST:_END])
    normal = _COVERED.pack(
        header.attributes & ~CLEARED_ATTRIBUTES,
        header.last_offset_delta,
        header.base_timestamp,
        0,  # max_timestamp
        -1,  # producer_id
        -1,  # producer_epoch
        -1,  # base_sequence
    )
    difference = (old ^ int.from_bytes(normal)).to_bytes(_END - _FIRST)
    crc = header.crc ^ crc_of_difference(difference, len(batch.view) - _END)
    return Fingerprint(crc, header.size, header.records_count, header.base_timestamp)
