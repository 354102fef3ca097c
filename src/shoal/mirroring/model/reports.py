"""What the driver hears of partitions that no task reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import PartitionStopped
from ...topic_partition import TopicPartition
from .incidents import Incident

__all__ = ["left_out_report", "stop_of", "stopped_report", "waiting_report"]


def stop_of(stopped: PartitionStopped) -> list[Any]:
    """Return a stop as a report has it: offset, reason, next record, and if time can heal it."""
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
            "stopped": stop_of(stopped),
            "incidents": [[incident.kind.value, incident.reason, incident.lost, incident.continued]],
        }
        for partition, (stopped, incident) in stops.items()
    ]
    return {"partitions": partitions, "bytes_in": 0, "cpu_s": 0.0, "peak_rss_bytes": 0}
