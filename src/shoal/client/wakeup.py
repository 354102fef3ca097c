"""Wait for responses of several brokers, or for another thread of this process."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterable

from .connection import Connection

__all__ = ["Wakeup", "remaining_s", "wait_for_answers"]

_MAX_WAIT_S = 1_000_000.0


class Wakeup:
    """Ends the wait of its owner's thread; any other thread may call :meth:`wake`."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._ours.fileno()

    def wake(self) -> None:
        """End the current wait of the owner, or its next one."""
        # If the buffer is full, the owner wakes anyway; if it is closed, the owner is gone.
        with contextlib.suppress(OSError):
            self._theirs.send(b"\0")

    def clear(self) -> None:
        """Discard all calls of :meth:`wake` so far."""
        with contextlib.suppress(OSError):
            while self._ours.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        self._ours.close()
        self._theirs.close()


def wait_for_answers(connections: Iterable[Connection], wakeup: Wakeup, timeout_s: float) -> list[Connection]:
    """
    Wait until one of several connections has a part of a response, or was closed.

    Args:
        connections: The connections with requests in flight.
        wakeup: Ends the wait, too, and is cleared.
        timeout_s: The limit of the wait.

    Returns:
        The connections on which ``receive`` makes progress; perhaps none.

    """
    connections = list(connections)
    ready = [each for each in connections if each.closed or each.is_readable]
    poll = select.poll()
    poll.register(wakeup.fileno(), select.POLLIN)
    by_number = {each.fileno(): each for each in connections if each not in ready}
    for number in by_number:
        poll.register(number, select.POLLIN)
    timeout_ms = 0.0 if ready else min(max(0.0, timeout_s), _MAX_WAIT_S) * 1000
    for number, _ in poll.poll(timeout_ms):
        if number in by_number:
            ready.append(by_number[number])
        else:
            wakeup.clear()
    return ready


def remaining_s(deadline: float) -> float:
    """Return the seconds until a time of the monotonic clock, at least 0."""
    return max(0.0, deadline - time.monotonic())
