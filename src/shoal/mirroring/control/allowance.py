"""The bytes that a task may fetch of a limited rate; its workers share them, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

__all__ = ["Allowance"]

#: The most that a task saves while it fetches nothing, in seconds of its rate.
_SAVED_S = 0.4

#: The most that a worker takes at a time, so that all of a task get their part.
_TAKEN_S = 0.1

#: A worker that waits asks far more often. One that has not for so long has ended, or need not fetch.
_FORGOTTEN_S = 0.3

#: A smaller fetch would cut most batches short, and request them twice.
LEAST_BYTES = 64 * 1024


class Allowance:
    """
    A task's bytes: so many come each second, and workers that have none take some in turn.

    A fetch returns at least one batch, so a worker may fetch more than it took. It takes the difference
    before it fetches again.

    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without a limit."""
        self._clock = clock
        self._changed = threading.Condition()
        self._bytes_per_s = 0
        self._left = 0.0
        self._at = clock()
        #: When each waiting worker asked last, in the order in which they began to wait.
        self._waiting: dict[Hashable, float] = {}

    def begin(self, bytes_per_s: int | None) -> None:
        """Let so many bytes come from now on; what is paused may have changed, too."""
        with self._changed:
            self._advance()
            self._bytes_per_s = bytes_per_s or 0
            self._changed.notify_all()

    def take(self, worker: Hashable) -> int:
        """Take bytes for a worker; return 0 if none are left, or others wait for longer."""
        with self._changed:
            now = self._advance()
            self._waiting[worker] = now
            self._waiting = {each: at for each, at in self._waiting.items() if now - at < _FORGOTTEN_S}
            if self._left < 1 or worker != next(iter(self._waiting)):
                return 0
            del self._waiting[worker]
            taken = int(min(self._left, max(self._bytes_per_s * _TAKEN_S, LEAST_BYTES)))
            self._left -= taken
            return taken

    def wait(self, seconds: float) -> None:
        """Wait, at most until the rate or what is paused changes."""
        with self._changed:
            self._changed.wait(seconds)

    def _advance(self) -> float:
        now = self._clock()
        come = self._bytes_per_s * max(0.0, now - self._at)
        self._left = min(self._left + come, self._bytes_per_s * _SAVED_S)
        self._at = max(now, self._at)
        return self._at
