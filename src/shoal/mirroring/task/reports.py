"""What a task tells the driver: counts since its last report, and where each partition stands."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

import psutil

from ...errors import PartitionStopped
from ..model.processes import process_name
from ..model.reports import stop_of
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

    def take(self, copy: PartitionCopy) -> dict[str, Any] | None:
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
        counters = copy.take_counters()
        return {
            "topic": copy.source.topic,
            "partition": copy.source.partition,
            "source_offset": copy.pair.source_offset if copy.pair and is_news else None,
            "end_offset": copy.known_end_offset if is_news else None,
            "committed_offset": copy.committed_offset,
            "newest_ms": copy.newest_ms,
            "waiting_for": state.waiting_for,
            "commit_waits_for": copy.commit_waits_for,
            "held_back": copy.held_back,
            "stopped": stop_of(stopped) if stopped and is_news else None,
            "decisions": {decision.value: count for decision, count in counters.decisions.items()},
            "records": counters.records,
            "bytes_in": counters.bytes_in,
            "bytes_out": counters.bytes_out,
            "retries": counters.retries,
            "runs": counters.runs,
            "incidents": [
                [each.kind.value, each.reason, each.lost, each.continued] for each in counters.incidents
            ],
        }


class ProcessUse:
    """What this process uses: CPU since the last report, and memory."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._name = process_name()
        self._cpu_s = _cpu_seconds()

    def report(self) -> Mapping[str, Any]:
        cpu_s = _cpu_seconds()
        used, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        return {
            "cpu_s": used,
            "rss_bytes": self._process.memory_info().rss,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "pid_host": self._name,
        }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
