"""
CRC-32C, and the correction of one for changed bytes.

For two messages of the same length, ``crc(a) ^ crc(b)`` depends on ``a ^ b``
alone: the CRC is linear. So when a few bytes of a header change, the new
checksum follows from the old one and the difference, and the payload, which
did not change, is not read. Unlike a recomputed checksum, a corrected one
still betrays a bit that flipped in the payload.
"""

from __future__ import annotations

import zlib

from fastcrc import crc32

from ..errors import CorruptBatch
from .batch import MAGIC_OFFSET, RecordBatch

__all__ = ["crc32c", "crc_of_difference", "verify_crc"]

CRC_OFFSET = 17
CRC_COVERS_FROM = 21
#: Messages of magic 0 and 1 keep their CRC where magic 2 keeps the leader epoch.
_LEGACY_CRC_OFFSET = 12

_ALL_ONES = 0xFFFFFFFF
_ZEROS = memoryview(bytes(1 << 16))


def crc32c(data: bytes | memoryview, initial: int | None = None) -> int:
    """Return the CRC-32C of ``data``, continuing from ``initial`` if it is given."""
    crc: int = crc32.iscsi(data, initial)
    return crc


def crc_of_difference(before: int, after: int, unchanged_after: int) -> int:
    """
    Return what to xor to a CRC-32C when a part of what it covers changes.

    Args:
        before: CRC-32C of that part by itself, as it was.
        after: CRC-32C of that part as it is now; it is as long as before.
        unchanged_after: How many covered bytes follow that part.

    """
    # Seen as the register of a CRC without initial value and final xor, the
    # difference has only to be shifted by the length of what follows. Zeros
    # do that; they come from the cache, the payload would come from memory.
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
        stored = int.from_bytes(view[CRC_OFFSET:CRC_COVERS_FROM])
        computed = crc32c(view[CRC_COVERS_FROM:])
    else:
        stored = int.from_bytes(view[_LEGACY_CRC_OFFSET:MAGIC_OFFSET])
        computed = zlib.crc32(view[MAGIC_OFFSET:])
    if computed != stored:
        raise CorruptBatch(f"its CRC is {computed:#010x}, the header says {stored:#010x}", header.base_offset)
