"""
The comparison of two objects that have offsets in common.

Each task writes only while its lease lasts, but a lease can end between its last look and the last file. Then
two objects have the same offsets, of the same log. Their batches are the same, unless compaction has removed
records before the later one was written.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..records import BatchHeader

__all__ = ["first_difference"]


def first_difference(earlier: Iterable[BatchHeader], later: Iterable[BatchHeader]) -> int | None:
    """
    Return the base offset of the first batch that compaction does not explain; None without one.

    Compaction removes batches, or records of a batch, and keeps the base offsets of the others.

    Args:
        earlier: The headers of the object with the lower generation.
        later: Those of the other one.

    """
    before = iter(earlier)
    for header in later:
        same = next((each for each in before if each.base_offset >= header.base_offset), None)
        if same is None or same.base_offset != header.base_offset:
            return header.base_offset
        if header.crc != same.crc and header.records_count >= same.records_count:
            return header.base_offset
    return None
