"""Whether requests limit a worker, since its batches are small."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from ...client.lot import Lot
from ...records import ENTRY
from ..model.reports import SmallBatches, TaskReport

__all__ = ["SmallBatchesWatch"]

#: Batches that are larger on average would hardly be fewer if ``--rebatch 64k`` joined them.
_SMALL_BYTES = 16 * 1024

#: The destination limits a worker that spends as much of its time with sending.
_BUSY = 0.75

#: So many batches of a partition at a time need several round trips, with five requests in flight.
_MANY = 10


class SmallBatchesWatch:
    """
    Looks at what one worker sends, for a while at a time, until it has found that requests limit it.

    A broker takes one batch of a partition in a request, and five requests are in flight. So both a broker
    with much work for each request, and one that is far away, limit a mirror by the number of its batches.
    """

    def __init__(self, for_s: float, report: Callable[[TaskReport], object]) -> None:
        """Begin to look, for so many seconds at a time; the finding is reported once."""
        self._for_s = for_s
        self._report = report
        self._begin()

    def _begin(self) -> None:
        self._began_at = time.monotonic()
        self._sending_s = 0.0
        self._lots = self._batches = self._bytes = 0

    def see(self, lots: Iterable[Lot], seconds: float) -> None:
        """Take lots that were sent together, and how long that took."""
        self._sending_s += seconds
        for lot in lots:
            if not lot.together_bytes:
                self._lots += 1
                self._batches += len(lot.entries) // ENTRY.size
                self._bytes += sum(map(len, lot.batches))
        passed_s = time.monotonic() - self._began_at
        if passed_s >= self._for_s:
            self._judge(passed_s)
            self._begin()

    def _judge(self, passed_s: float) -> None:
        is_busy = self._sending_s >= _BUSY * passed_s
        found = SmallBatches(self._bytes // max(1, self._batches), int(self._bytes / passed_s))
        if is_busy and self._batches >= _MANY * max(1, self._lots) and found.average_bytes < _SMALL_BYTES:
            self._report(TaskReport(small_batches=found))
            self._for_s = math.inf
