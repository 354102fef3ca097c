"""Connections that have not sent the driver's token: a bounded number, and one deadline for each."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

__all__ = ["Strangers", "first_line"]

#: More than tasks that connect at the same moment. Each task sends its first line at once.
MOST_STRANGERS = 256

#: The longest first line of a task.
_LONGEST_LINE = 4096


class Strangers:
    """
    The connections that have not sent the token. If there are too many, the oldest is closed.

    A task sends its line when it connects, so its connection never becomes the oldest.
    """

    def __init__(self, leaving_s: float) -> None:
        """Begin without connections; one that is closed has ``leaving_s`` until its thread ends."""
        self._leaving_s = leaving_s
        self._changed = threading.Condition()
        self._waiting: dict[socket.socket, None] = {}
        self._leaving: set[socket.socket] = set()

    def enter(self, connection: socket.socket) -> bool:
        """Give a connection a place, before it has a thread; return False if no place became free in time."""
        with self._changed:
            if len(self._waiting) >= MOST_STRANGERS:
                self._send_oldest_away()
            if not self._changed.wait_for(lambda: len(self._waiting) < MOST_STRANGERS, self._leaving_s):
                return False
            self._waiting[connection] = None
            return True

    def leave(self, connection: socket.socket) -> None:
        """Free the place of a connection that has sent the token, or has ended."""
        with self._changed:
            self._waiting.pop(connection, None)
            self._leaving.discard(connection)
            self._changed.notify_all()

    def _send_oldest_away(self) -> None:
        oldest = next((each for each in self._waiting if each not in self._leaving), None)
        if oldest is not None:
            self._leaving.add(oldest)
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for the line


def first_line(connection: socket.socket, patience_s: float) -> bytes:
    """
    Receive the first line of a connection within a time; it sends nothing more before it has an answer.

    Raises:
        OSError: The line did not arrive in time, or the connection was the oldest of too many.

    """
    deadline = time.monotonic() + patience_s
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
