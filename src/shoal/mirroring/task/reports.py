"""Reports of a task's partitions and of its process, each with what is new since the one before."""

from __future__ import annotations

import resource

import psutil

from ...errors import PartitionStopped
from ..model.processes import process_name
from ..model.reports import PartitionReport, ProcessReport
from .partition import PartitionCopy

__all__ = ["PartitionReporter", "ProcessUse"]


class PartitionReporter:
    """The reports of one worker's partitions: each is only of what is new since the one before."""

    def __init__(self) -> None:
        self._last: dict[PartitionCopy, object] = {}
        self._stops: dict[PartitionCopy, PartitionStopped] = {}

    def forget(self, copy: PartitionCopy) -> None:
        """Report a partition again, even if nothing is new; from any thread."""
        self._last.pop(copy, None)

    def take(self, copy: PartitionCopy) -> PartitionReport | None:
        """Take a partition's counts since the last report; return None if there is nothing new to report."""
        state = copy.state
        standing = (
            copy.pair,
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
        return PartitionReport(
            copy.source,
            copy.pair.source_offset if copy.pair and is_news else None,
            copy.known_end_offset if is_news else None,
            copy.committed_offset,
            copy.newest_ms,
            state.waiting_for,
            copy.commit_waits_for,
            copy.held_back,
            stopped if is_news else None,
            copy.take_counters(),
        )


class ProcessUse:
    """The resources of this process: CPU since the last report, and memory."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._name = process_name()
        self._cpu_s = _cpu_seconds()

    def report(self) -> ProcessReport:
        cpu_s = _cpu_seconds()
        used, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return ProcessReport(self._name, used, self._process.memory_info().rss, peak_kib * 1024)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
