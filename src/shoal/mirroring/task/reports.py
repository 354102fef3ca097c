"""What a task tells the driver: counts since its last report, and where each partition stands."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

import psutil

from ..model.processes import process_name
from ..model.reports import stop_of
from .partition import PartitionCopy

__all__ = ["ProcessUse", "partition_report"]


def partition_report(copy: PartitionCopy) -> dict[str, Any] | None:
    """Take a partition's counts since the last report; None where there is nothing new to tell."""
    state = (
        copy.pair,
        copy.known_end_offset,
        copy.committed_offset,
        copy.newest_ms,
        copy.waiting_for,
        copy.commit_waits_for,
        copy.stopped,
        copy.held_back,
    )
    counted = copy.records or copy.bytes_in or copy.retries or copy.decisions or copy.incidents
    if state == copy.told and not counted:
        return None
    copy.told = state
    # The driver may have planned the partition again since it was told of the stop, and looked up the end.
    is_news = copy.stopped is None or copy.stopped is not copy.told_stop
    copy.told_stop = copy.stopped
    report = {
        "topic": copy.source.topic,
        "partition": copy.source.partition,
        "source_offset": copy.pair.source_offset if copy.pair and is_news else None,
        "end_offset": copy.known_end_offset if is_news else None,
        "committed_offset": copy.committed_offset,
        "newest_ms": copy.newest_ms,
        "waiting_for": copy.waiting_for,
        "commit_waits_for": copy.commit_waits_for,
        "held_back": copy.held_back,
        "stopped": stop_of(copy.stopped) if copy.stopped and is_news else None,
        "decisions": {decision.value: count for decision, count in copy.decisions.items()},
        "records": copy.records,
        "bytes_in": copy.bytes_in,
        "bytes_out": copy.bytes_out,
        "retries": copy.retries,
        "runs": copy.runs,
        "incidents": [[each.kind.value, each.reason, each.lost, each.continued] for each in copy.incidents],
    }
    copy.decisions.clear()
    copy.incidents = []
    copy.runs = []
    copy.records = copy.bytes_in = copy.bytes_out = copy.retries = 0
    return report


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
