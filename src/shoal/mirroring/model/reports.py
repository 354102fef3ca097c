"""What the driver hears of partitions that no task reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import PartitionStopped
from ...records import Decision
from ...topic_partition import TopicPartition
from .incidents import Incident

__all__ = ["Counters", "left_out_report", "stop_of", "stopped_report", "waiting_report"]


@dataclass(slots=True)
class Counters:
    """
    The counts of one partition since its last report.

    Attributes:
        records: Acknowledged at the destination.
        bytes_in: Fetched from the source.
        bytes_out: Acknowledged at the destination.
        retries: How often the partition had to wait.
        decisions: The number of batches for each decision.
        runs: Acknowledged offsets, as lists of the values of ``AcknowledgedRun``.
        incidents: In the order in which they happened.

    """

    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    retries: int = 0
    decisions: Counter[Decision] = field(default_factory=Counter)
    runs: list[list[int]] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything was counted that is worth a report; runs come with records."""
        return bool(self.records or self.bytes_in or self.retries or self.decisions or self.incidents)


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
