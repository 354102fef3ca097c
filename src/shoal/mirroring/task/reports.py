"""The reports of a worker to the driver, each with the news since the one before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...timing import Timing
from ..model.reports import CopyReport, TaskReport
from .partition import PartitionCopy

__all__ = ["WorkerReports"]


class WorkerReports:
    """
    The reports of one worker, at their intervals: each has only what has changed.

    Attributes:
        has_fetched: Whether anything was fetched since the last report.

    """

    def __init__(self, send_to_driver: Callable[[TaskReport], None], timing: Timing) -> None:
        self.has_fetched = False
        self._timing = timing
        self._send_to_driver = send_to_driver
        self._sent_at = 0.0

    def now_and_then(self, copies: Sequence[PartitionCopy]) -> None:
        """Report if the interval since the last report has passed."""
        timing = self._timing
        interval_s = timing.report_interval_s if self.has_fetched else timing.quiet_report_interval_s
        if time.monotonic() - self._sent_at >= interval_s:
            self.send(copies)

    def send(self, copies: Sequence[PartitionCopy]) -> None:
        """Report the counts since the last report, and the positions that changed."""
        self._sent_at = time.monotonic()
        partitions = [each for copy in copies if (each := _news_of(copy)) is not None]
        if partitions:
            self._send_to_driver(TaskReport(partitions))
        self.has_fetched = False


def _news_of(copy: PartitionCopy) -> CopyReport | None:
    """Return the report of a partition with its counts; None if there is nothing new to report."""
    stopped = copy.state.stopped
    places = copy.position, copy.known_end_offset, copy.committed_offset, copy.newest_ms, copy.held_back
    standing = *places, copy.waiting_for, copy.commit_waits_for, stopped, copy.counters.counts()
    if copy.reported == standing and not copy.counters.incidents:
        return None
    # The driver may have planned the partition again since the stop was reported, and looked up the end.
    is_news = stopped is None or stopped not in copy.reported
    copy.reported = standing
    return CopyReport(
        copy.source,
        copy.position.source_offset if copy.position and is_news else None,
        copy.known_end_offset if is_news else None,
        copy.committed_offset,
        copy.newest_ms,
        copy.waiting_for,
        copy.commit_waits_for,
        copy.held_back,
        stopped if is_news else None,
        copy.counters.take(),
    )
