"""
CRC-32C, and the correction of one for changed bytes.

For two messages of the same length, ``crc(a) ^ crc(b)`` depends on ``a ^ b``
alone: the CRC is linear. So if a few bytes of a header change, the new checksum
follows from the old one and the difference, without reading the payload. Unlike
a recomputed checksum, a corrected one still shows a flipped bit in the payload.
"""

from __future__ import annotations

import zlib

from fastcrc import crc32

from ..errors import CorruptBatch
from .batch import ATTRIBUTES_OFFSET, CRC_OFFSET, LEADER_EPOCH_OFFSET, MAGIC_OFFSET, RecordBatch

__all__ = ["crc32c", "crc_of_difference", "verify_crc"]

#: Messages of magic 0 and 1 have their CRC in the place of the leader epoch of magic 2.
_LEGACY_CRC_OFFSET = LEADER_EPOCH_OFFSET

_ALL_ONES = 0xFFFFFFFF
_ZEROS = memoryview(bytes(1 << 16))


def crc32c(data: bytes | memoryview, initial: int | None = None) -> int:
    """Return the CRC-32C of ``data``, continuing from ``initial`` if it is given."""
    crc: int = crc32.iscsi(data, initial)
    return crc


def crc_of_difference(before: int, after: int, unchanged_after: int) -> int:
    """
    Return the difference to xor to a CRC-32C if a part of the covered bytes changes.

    Args:
        before: CRC-32C of that part by itself, as it was.
        after: CRC-32C of that part as it is now; it is as long as before.
        unchanged_after: How many covered bytes follow that part.

    """
    # The difference is the register of a CRC without initial value and final xor.
    # Zeros shift it by the number of bytes behind the part. They come from the
    # cache, and the payload would come from memory.
    crc = before ^ after ^ _ALL_ONES
    while unchanged_after > len(_ZEROS):
        crc = crc32c(_ZEROS, crc)
        unchanged_after -= len(_ZEROS)
    return crc32c(_ZEROS[:unchanged_after], crc) ^ _ALL_ONES


def verify_crc(batch: RecordBatch) -> None:
    """
    Check a batch against the checksum in its own bytes; reads the whole payload.

    That is CRC-32C for magic 2, and CRC-32 for the messages of magic 0 and 1.

    Raises:
        CorruptBatch: They do not match.

    """
    header, view = batch
    if header.magic == 2:
        stored = int.from_bytes(view[CRC_OFFSET:ATTRIBUTES_OFFSET])
        computed = crc32c(view[ATTRIBUTES_OFFSET:])
    else:
        stored = int.from_bytes(view[_LEGACY_CRC_OFFSET:MAGIC_OFFSET])
        computed = zlib.crc32(view[MAGIC_OFFSET:])
    if computed != stored:
        raise CorruptBatch(f"its CRC is {computed:#010x}, the header has {stored:#010x}", header.base_offset)
