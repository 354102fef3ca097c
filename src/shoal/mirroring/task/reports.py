"""Reports of a worker's partitions, each with the news since the one before."""

from __future__ import annotations

from ...errors import PartitionStopped
from ..model.reports import CopyReport
from .partition import PartitionCopy

__all__ = ["PartitionReporter"]


class PartitionReporter:
    """The reports of one worker's partitions: each has only the changes since the one before."""

    def __init__(self) -> None:
        self._last: dict[PartitionCopy, object] = {}
        self._stops: dict[PartitionCopy, PartitionStopped] = {}

    def forget(self, copy: PartitionCopy) -> None:
        """Report a partition again, even if nothing is new; from any thread."""
        self._last.pop(copy, None)

    def take(self, copy: PartitionCopy) -> CopyReport | None:
        """Take a partition's counts since the last report; return None if there is nothing new to report."""
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
        )
        if self._last.get(copy) == standing and not copy.counters:
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
            copy.take_counters(),
        )
