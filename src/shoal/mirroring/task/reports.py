"""The reports of a worker to the driver, each with the news since the one before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...errors import PartitionStopped
from ...timing import Timing
from ..model.reports import CopyReport, TaskReport
from .partition import PartitionCopy

__all__ = ["PartitionReporter", "WorkerReports"]


class PartitionReporter:
    """The reports of one worker's partitions: each has only the changes since the one before."""

    def __init__(self) -> None:
        self._last: dict[PartitionCopy, object] = {}
        self._stops: dict[PartitionCopy, PartitionStopped] = {}

    def forget(self, copy: PartitionCopy) -> None:
        """Report a partition again, even if nothing is new; from any thread."""
        self._last.pop(copy, None)

    def take(self, copy: PartitionCopy) -> CopyReport | None:
        """Return the report of a partition with its counts; None if there is nothing new to report."""
        state = copy.state
        standing = (
            copy.position,
            copy.known_end_offset,
            copy.committed_offset,
            copy.newest_ms,
            state.waiting_for,
            copy.commit_waits_for,
            state.stopped,
            copy.held_back,
            copy.counters.counts(),
        )
        if self._last.get(copy) == standing and not copy.counters.incidents:
            return None
        self._last[copy] = standing
        stopped = state.stopped
        # The driver may have planned the partition again since the stop was reported, and looked up the end.
        is_news = stopped is None or stopped is not self._stops.get(copy)
        if stopped is not None:
            self._stops[copy] = stopped
        return CopyReport(
            copy.source,
            copy.position.source_offset if copy.position and is_news else None,
            copy.known_end_offset if is_news else None,
            copy.committed_offset,
            copy.newest_ms,
            state.waiting_for,
            copy.commit_waits_for,
            copy.held_back,
            stopped if is_news else None,
            copy.counters.take(),
        )


class WorkerReports:
    """
    The reports of one worker, at their intervals.

    Attributes:
        fetched_bytes: The bytes that were fetched since the last report.

    """

    def __init__(self, send_to_driver: Callable[[TaskReport], None], timing: Timing) -> None:
        self.fetched_bytes = 0
        self._timing = timing
        self._send_to_driver = send_to_driver
        self._partitions = PartitionReporter()
        self._sent_at = 0.0

    def forget(self, copies: Sequence[PartitionCopy]) -> None:
        """Report partitions again next time, even if nothing is new; from any thread."""
        for copy in copies:
            self._partitions.forget(copy)

    def now_and_then(self, copies: Sequence[PartitionCopy]) -> None:
        """Report if the interval since the last report has passed."""
        timing = self._timing
        interval_s = timing.report_interval_s if self.fetched_bytes else timing.quiet_report_interval_s
        if time.monotonic() - self._sent_at >= interval_s:
            self.send(copies)

    def send(self, copies: Sequence[PartitionCopy]) -> None:
        """Report the counts since the last report, and the positions that changed."""
        self._sent_at = time.monotonic()
        reports = (self._partitions.take(copy) for copy in copies)
        partitions = [each for each in reports if each is not None]
        if partitions:
            self._send_to_driver(TaskReport(partitions))
        self.fetched_bytes = 0
