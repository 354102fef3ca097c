"""A clock that stands still while processes wait for a CPU, to distinguish a hang from a busy machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["FairClock"]

_EVERY_S = 0.1

#: The clock never stands still for good; otherwise no hang would ever be found.
_SLOWEST = 0.05


class FairClock:
    """Count the seconds in which processes had the CPU that they needed.

    The clock excludes the time for which their threads were ready to run and did not run. Linux counts it:
    the second number of ``schedstat`` in /proc, in nanoseconds. If a process waits for something else, such
    as a lock that no thread releases, it is not ready to run. Threads that wait at the same time count more
    than once. The clock is therefore rather too slow than too fast: by a factor of twenty at most.
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
        """Return the seconds since the clock was made, read ten times a second at most."""
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
