"""Connections that have not sent the driver's token: a bounded number, and one deadline for each."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

__all__ = ["Strangers"]

#: More than tasks that connect at the same moment. Each task sends its first line at once.
_MOST = 256

#: The time for the whole first line, and not for each byte of it.
_PATIENCE_S = 10.0

#: The longest first line of a task.
_LONGEST_LINE = 4096


class Strangers:
    """
    Receives first lines. If too many connections wait, the oldest is closed.

    A task sends its line when it connects, so its connection never becomes the oldest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}

    def first_line(self, connection: socket.socket) -> bytes:
        """
        Receive the first line of a connection, which sends nothing more before it has an answer.

        Raises:
            OSError: The line did not arrive in time, or the connection was the oldest of too many.

        """
        with self._lock:
            if len(self._waiting) >= _MOST:
                self._send_away(next(iter(self._waiting)))
            self._waiting[connection] = None
        try:
            return _receive_line(connection, time.monotonic() + _PATIENCE_S)
        finally:
            with self._lock:
                self._waiting.pop(connection, None)

    def _send_away(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for the line


def _receive_line(connection: socket.socket, deadline: float) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the first line did not come in time")
        connection.settimeout(left_s)
        received = connection.recv(_LONGEST_LINE - len(line))
        if not received:
            raise ConnectionError("the connection ended before its first line")
        line += received
    return line
