"""
The limit of a mirror, at both ends: each task's part of it, and the bytes that come to a task.

Each line of a task has whether one of its workers waits for bytes. If so, the task weighs more from look to
look, up to its number of partitions, and otherwise less. So a task whose brokers are slower than its part
leaves the rest to the others. Tasks that could all fetch more come to equal shares for each partition within
seconds. The parts add up to the limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable

from .assignment import Member

__all__ = ["LEAST_BYTES", "Allowance", "share_limit"]

#: A part that changes by less is not sent again.
_SAME = 0.02

#: The factors of a weight at each look: close to 1, since what a task has above its need is lost meanwhile.
_MORE, _LESS = 1.25, 0.9

#: The weight of a task that needs nothing.
_LEAST_WEIGHT = 0.1

#: The most that a task saves while it fetches nothing, in seconds of its rate.
_SAVED_S = 0.4

#: The most that a worker takes at a time, so that all of a task get their part.
_TAKEN_S = 0.1

#: A worker that waits asks far more often. One that has not for so long has ended, or need not fetch.
_FORGOTTEN_S = 0.3

#: A smaller fetch would cut most batches short, and request them twice.
LEAST_BYTES = 64 * 1024


def share_limit(limit: int, members: Collection[Member]) -> list[Member]:
    """Share a limit out again, twice a second; return the tasks whose part has changed."""
    for each in members:
        if each.waits:
            each.weight = min(max(len(each.partitions), _LEAST_WEIGHT), each.weight * _MORE)
        else:
            each.weight = max(_LEAST_WEIGHT, each.weight * _LESS)
    whole = sum(each.weight for each in members)
    changed = []
    for each in members:
        part = max(1, int(limit * each.weight / whole))
        if abs(part - each.bytes_per_s) > _SAME * part:
            each.bytes_per_s = part
            changed.append(each)
    return changed


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
            self._waiting[worker] = self._advance()
            if self._left < 1 or worker != next(iter(self._waiting)):
                return 0
            del self._waiting[worker]
            taken = int(min(self._left, max(self._bytes_per_s * _TAKEN_S, LEAST_BYTES)))
            self._left -= taken
            return taken

    @property
    def waits(self) -> bool:
        """Whether a worker waits for bytes."""
        with self._changed:
            self._advance()
            return bool(self._waiting)

    def wait(self, seconds: float) -> None:
        """Wait, at most until the rate or what is paused changes."""
        with self._changed:
            self._changed.wait(seconds)

    def _advance(self) -> float:
        now = self._clock()
        come = self._bytes_per_s * max(0.0, now - self._at)
        self._left = min(self._left + come, self._bytes_per_s * _SAVED_S)
        self._at = max(now, self._at)
        self._waiting = {each: at for each, at in self._waiting.items() if self._at - at < _FORGOTTEN_S}
        return self._at
