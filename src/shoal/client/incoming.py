"""The bytes that a broker sends on a connection, within deadlines."""

from __future__ import annotations

import socket
import time

__all__ = ["Incoming"]

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
