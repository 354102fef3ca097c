"""
Memory for the batches that a pair joins, used again in each turn as its fetch buffer is.

The kernel clears each page of new memory, and that takes more CPU than to write joined records into it.
"""

from __future__ import annotations

import mmap

__all__ = ["JoinMemory"]

#: Twice the fetch buffer, which joined batches may exceed. Pages that are never written take no memory.
_BYTES = 32 * 1024 * 1024

#: Less than this is not worth a call.
_LEAST_BYTES = 4 * 1024 * 1024


class JoinMemory:
    """
    The memory of one pair.

    Before a turn begins, everything in it is acknowledged or forgotten.
    """

    def __init__(self) -> None:
        self._whole = self._rest = memoryview(b"")

    def begin_turn(self) -> None:
        """Use the memory again."""
        self._rest = self._whole

    def room(self, most_bytes: int) -> memoryview:
        """Return unused memory, a view of at most so many bytes."""
        if len(self._rest) < min(most_bytes, _LEAST_BYTES):
            # Queued batches keep the former memory.
            self._whole = self._rest = memoryview(mmap.mmap(-1, _BYTES))
        return self._rest[:most_bytes]

    def keep(self, used: memoryview) -> None:
        """Keep what was written at the beginning of the unused memory until the next turn."""
        self._rest = self._rest[len(used) :]
