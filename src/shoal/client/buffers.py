"""
Memory for received frames.

A frame goes from the socket into this memory in one copy, and everything above works on views of it.
The choice of the buffer decides how long a view stays valid.
"""

from __future__ import annotations

import mmap

__all__ = ["FetchedBytes", "FreshMemory", "ReceiveBuffer"]


class ReceiveBuffer:
    """
    One buffer for all frames: a view of a frame is valid until the next frame is received.

    The memory is mapped, and returns to the system.
    Memory of malloc would stay with the thread that allocated it, and a mirror of months starts many threads.

    """

    def __init__(self, size: int) -> None:
        self._bytes = mmap.mmap(-1, size)
        self._size = size

    def reserve(self, size: int) -> memoryview:
        """Return a writable view of ``size`` bytes; the buffer grows for one frame if a batch is larger."""
        if size > len(self._bytes):
            self._bytes = mmap.mmap(-1, size)
        elif len(self._bytes) > self._size >= size:
            self._bytes = mmap.mmap(-1, self._size)
        return memoryview(self._bytes)[:size]


class FetchedBytes(bytearray):
    """Memory of one response; its views keep it alive."""


class FreshMemory:
    """
    New memory for each frame: its views stay valid as long as there are any.

    One view keeps the whole frame in memory.

    """

    def reserve(self, size: int) -> memoryview:
        """Return a writable view of ``size`` new bytes."""
        return memoryview(FetchedBytes(size))
