"""Tells a hang from a busy machine: a clock that stands still while processes wait for a CPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["FairClock"]

_EVERY_S = 0.1

#: It never stands still for good, or nothing would ever be a hang.
_SLOWEST = 0.05


class FairClock:
    """
    Seconds in which processes had the CPU that they wanted.

    The time for which their threads were ready to run and did not is left out, as Linux counts it: the second
    number of ``schedstat`` in /proc, in nanoseconds. A process that waits for something else, as for a lock
    that nobody opens, is not ready to run. Threads that wait at the same time count more than once, so the
    clock rather waits too long: twenty times as long at most.
    """

    def __init__(
        self,
        process_ids: Sequence[int],
        proc: Path = Path("/proc"),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._process_ids = process_ids
        self._proc = proc
        self._monotonic = monotonic
        self._read_at = monotonic()
        self._waited = dict(self._waits())
        self._now = 0.0

    def now(self) -> float:
        """Return the seconds since the clock was made; looked up ten times a second at most."""
        passed = self._monotonic() - self._read_at
        if passed >= _EVERY_S:
            waited = dict(self._waits())
            lost_s = sum(count - self._waited.get(thread, 0) for thread, count in waited.items()) / 1e9
            self._now += max(passed - lost_s, passed * _SLOWEST)
            self._read_at += passed
            self._waited = waited
        return self._now

    def _waits(self) -> Iterator[tuple[str, int]]:
        """Yield each thread with the nanoseconds for which it has waited for a CPU."""
        for process_id in self._process_ids:
            for thread in self._proc.glob(f"{process_id}/task/*/schedstat"):
                with contextlib.suppress(OSError):  # it has ended
                    yield str(thread), int(thread.read_text().split()[1])
