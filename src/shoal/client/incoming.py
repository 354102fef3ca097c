"""
The bytes that a broker sends on a connection, within deadlines, and the memory for them.

A frame goes from the socket into this memory in one copy, and everything above works on views of it. The
choice of the buffer decides how long a view stays valid.
"""

from __future__ import annotations

import mmap
import socket
import time

__all__ = ["FetchedBytes", "FreshMemory", "Incoming", "ReceiveBuffer"]

#: The slowest response that is still received after its timeout. Without this bound, a broker that sends one
#: byte for each wait would hold a request for years.
_SLOWEST_BYTES_PER_S = 64 * 1024

#: The size of a recv for responses without batches, often several at once.
_SMALL_RECEIVE = 64 * 1024


class Incoming:
    """
    Receives from a socket: small parts with bytes ahead, large ones straight into the caller's memory.

    Each method raises OSError if the socket fails or the bytes come too slowly.

    Attributes:
        ahead: The bytes that came with the last part, and belong to the next ones.

    """

    def __init__(self, connected: socket.socket, *, is_tls: bool) -> None:
        self.ahead = bytearray()
        self._socket = connected
        self._flags = 0 if is_tls else socket.MSG_WAITALL

    def take(self, size: int, timeout_s: float) -> memoryview:
        """Return ``size`` bytes in new memory; raises EOFError if the broker closed the connection."""
        deadline = _deadline(size, timeout_s)
        while len(self.ahead) < size:
            _check(deadline)
            data = self._socket.recv(_SMALL_RECEIVE)
            if not data:
                raise EOFError
            self.ahead += data
        result = bytes(self.ahead[:size])
        del self.ahead[:size]
        return memoryview(result)

    def put_back(self, data: memoryview) -> None:
        """Let bytes that :meth:`take` returned come again."""
        self.ahead[:0] = data

    def fill(self, view: memoryview, timeout_s: float) -> None:
        """Fill a view, usually by one system call; raises EOFError if the broker closed the connection."""
        received = self._take_ahead(view)
        deadline = _deadline(len(view), timeout_s)
        while received < len(view):
            _check(deadline)
            count = self._socket.recv_into(view[received:], 0, self._flags)
            if count == 0:
                raise EOFError
            received += count

    def read(self, view: memoryview) -> int:
        """Receive one byte or more, up to the size of the view; 0 if the broker closed the connection."""
        return self._take_ahead(view) or self._socket.recv_into(view)

    def _take_ahead(self, view: memoryview) -> int:
        count = min(len(self.ahead), len(view))
        if count:
            view[:count] = self.ahead[:count]
            del self.ahead[:count]
        return count


def _deadline(size: int, timeout_s: float) -> float:
    return time.monotonic() + timeout_s + size / _SLOWEST_BYTES_PER_S


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise BlockingIOError("the answer comes too slowly")


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
