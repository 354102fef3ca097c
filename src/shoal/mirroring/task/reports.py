"""What a task tells the driver: counts since its last report, and where each partition stands."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

import psutil

from ...errors import PartitionStopped
from ...topic_partition import TopicPartition
from ..model.incidents import Incident
from ..monitoring.processes import process_name
from .partition import PartitionCopy

__all__ = ["ProcessUse", "left_out_report", "partition_report", "stopped_report", "waiting_report"]


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
        "stopped": _stopped(copy.stopped) if copy.stopped and is_news else None,
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


def _stopped(stopped: PartitionStopped) -> list[Any]:
    return [stopped.offset, stopped.reason, stopped.unmirrored_from, stopped.can_heal]


def waiting_report(partition: TopicPartition, waiting_for: str | None) -> dict[str, Any]:
    """Say of a partition what it waits for, and nothing else."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "source_offset": None,
        "end_offset": None,
        "committed_offset": None,
        "newest_ms": None,
        "waiting_for": waiting_for,
        "commit_waits_for": None,
        "stopped": None,
        "decisions": {},
        "records": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "retries": 0,
        "runs": [],
        "incidents": [],
    }


def left_out_report(reasons: Mapping[TopicPartition, str], *, deal_anew: bool) -> dict[str, Any]:
    """Say what the planner had to leave out, why, and whether it may soon be there; of no task's process."""
    partitions = [waiting_report(partition, reason) for partition, reason in reasons.items()]
    return {
        "partitions": partitions,
        "bytes_in": 0,
        "cpu_s": 0.0,
        "peak_rss_bytes": 0,
        "deal_anew": deal_anew,
    }


def stopped_report(stops: Mapping[TopicPartition, tuple[PartitionStopped, Incident]]) -> dict[str, Any]:
    """Report partitions that the driver stops by itself; of no task's process."""
    partitions = [
        {
            **waiting_report(partition, None),
            "stopped": _stopped(stopped),
            "incidents": [[incident.kind.value, incident.reason, incident.lost, incident.continued]],
        }
        for partition, (stopped, incident) in stops.items()
    ]
    return {"partitions": partitions, "bytes_in": 0, "cpu_s": 0.0, "peak_rss_bytes": 0}


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
