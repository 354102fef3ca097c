"""
CRC-32C, and the correction of one for changed bytes.

For two messages of the same length, ``crc(a) ^ crc(b)`` depends on ``a ^ b``
alone: the CRC is linear. So when a few bytes of a header change, the new
checksum follows from the old one and the difference, and the payload, which
did not change, is not read. Unlike a recomputed checksum, a corrected one
still betrays a bit that flipped in the payload.
"""

from __future__ import annotations

from fastcrc import crc32

from ..errors import CorruptBatch
from .batch import RecordBatch

__all__ = ["crc32c", "crc_of_difference", "verify_crc"]

CRC_COVERS_FROM = 21

_ALL_ONES = 0xFFFFFFFF
_ZEROS = memoryview(bytes(1 << 16))


def crc32c(data: bytes | memoryview, initial: int | None = None) -> int:
    """Return the CRC-32C of ``data``, continuing from ``initial`` if it is given."""
    crc: int = crc32.iscsi(data, initial)
    return crc


def crc_of_difference(difference: bytes, unchanged_after: int) -> int:
    """
    Return what to xor to a CRC-32C when bytes under it change.

    Args:
        difference: Old bytes xor new bytes of the part that changed.
        unchanged_after: How many covered bytes follow that part.

    """
    # Started from all ones, the register is zero and the result has no
    # final xor: that leaves the linear part. The zeros stand for the
    # unchanged bytes; they come from the cache, not from the payload.
    crc = crc32c(difference, _ALL_ONES)
    while unchanged_after > len(_ZEROS):
        crc = crc32c(_ZEROS, crc)
        unchanged_after -= len(_ZEROS)
    return crc32c(_ZEROS[:unchanged_after], crc) ^ _ALL_ONES


def verify_crc(batch: RecordBatch) -> None:
    """
    Check a batch of magic 2 against its own CRC-32C; reads the whole payload.

    Raises:
        CorruptBatch: They do not match.

    """
    computed = crc32c(batch.view[CRC_COVERS_FROM:])
    if computed != batch.header.crc:
        raise CorruptBatch(
            f"CRC-32C is {computed:#010x}, the header says {batch.header.crc:#010x}", batch.header.base_offset
        )
