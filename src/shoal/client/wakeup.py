"""Wait for several brokers at once, and for another thread of this process."""

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
    """Ends the wait of the thread that owns it; :meth:`wake` is for all others."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def wake(self) -> None:
        # Full is as good as woken; closed is of no interest any more.
        with contextlib.suppress(OSError):
            self._theirs.send(b"\0")

    def clear(self) -> None:
        """Forget all wakes so far."""
        with contextlib.suppress(OSError):
            while self._ours.recv(4096):
                pass

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def wait_for_answers(connections: Iterable[Connection], wakeup: Wakeup, timeout_s: float) -> list[Connection]:
    """
    Wait until one of several connections has something of an answer, or was closed.

    Args:
        connections: With requests in flight.
        wakeup: Ends the wait, too; it is cleared.
        timeout_s: As does this.

    Returns:
        Those that are worth a ``receive``; perhaps none.

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
    """Return how many seconds are left until a time of the monotonic clock; 0 when it is over."""
    return max(0.0, deadline - time.monotonic())
