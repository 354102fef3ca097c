"""A yardstick: what one fixed loop of Python costs while a mover is measured.

The CPU time of the same instructions differs from minute to minute, by up to 1.7 times on a machine that
others use, too. So compare two movers only if the yardstick beside them was the same.
"""

import statistics
import time

from bench.in_threads import InThreads

__all__ = ["Yardstick"]

_INTERVAL_S = 0.25
_STEPS = 40_000
"""A few milliseconds: about one percent of a core."""


class Yardstick(InThreads):
    """Runs the loop four times a second inside a ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self._times_s = [_measure_loop()]
        self.begin()

    @property
    def milliseconds(self) -> float:
        """The median CPU time of the loop so far."""
        return 1000 * statistics.median(self._times_s)

    def work(self, *arguments: str) -> None:
        while not self._over.wait(_INTERVAL_S):
            self._times_s.append(_measure_loop())


def _measure_loop() -> float:
    began = time.thread_time()
    total = 0
    for number in range(_STEPS):
        total += number & 7
    return time.thread_time() - began
