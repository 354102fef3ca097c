"""
The state of a mirror at one moment: what the page, the report, ``/state.json`` and Prometheus show.

Each number is declared in the class that has it (:mod:`shoal.numbers`), and the views loop over the fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, TypeAlias

from ...numbers import counter, gauge, labels, numbers_of, summed, text
from ...printable import printable_values
from .partition import PartitionState
from .progress import GarbageCollection, GroupsStatus, ProcessUsage, Progress
from .reports import Counted
from .steering import SteeringStatus

__all__ = ["FollowRound", "MirrorState"]


@dataclass(frozen=True, slots=True)
class FollowRound:
    """
    One comparison of both clusters.

    Attributes:
        is_synced: Whether the mirror changes the destination; otherwise it only compares.
        sentences: The differences, and the errors of refused changes.

    """

    at_s: float = gauge(
        "shoal_follow_last_comparison_timestamp_seconds",
        "Unix time of the last comparison of configurations or ACLs.",
        initial=0.0,
    )
    is_synced: bool = False
    differing: int = gauge(
        "shoal_follow_differing",
        "Topics (configurations) or ACLs that differ between both clusters, at the last comparison.",
        initial=0,
    )
    sentences: Sequence[str] = ()


#: The labels of a partition or a topic, its numbers and its counts.
_Row: TypeAlias = tuple[str, object, object]

#: The columns of partitions in JSON that are no numbers.
_COLUMNS = ("name.topic", "name.partition", "state", "reason", "process", "held_back_since")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorState:
    """
    The state of a mirror.

    Attributes:
        progress: Its totals.
        partitions: Its partitions.
        processes: Its processes that have not ended.
        followed: The last round of each kind.
        groups: The consumer groups that follow the records; None if none do.
        steering: How it is steered.

    """

    progress: Progress
    partitions: Sequence[PartitionState]
    processes: Sequence[ProcessUsage]
    followed: Mapping[str, FollowRound]
    groups: GroupsStatus | None
    steering: SteeringStatus
    states: Mapping[str, int] = gauge(
        "shoal_partitions",
        "Partitions by state. Each is in one state, so the states add up to all partitions.",
        label="state",
    )
    incidents: Mapping[str, int] = counter(
        "shoal_incidents_total",
        "Incidents by kind: foreign records in the copy, or records that were lost.",
        label="kind",
    )
    clusters_up: Mapping[str, bool] = gauge(
        "shoal_cluster_up",
        "1 if a broker of the cluster (source, destination) answers, 0 if none does.",
        label="cluster",
    )
    last_report_at: float | None = gauge(
        "shoal_last_report_timestamp_seconds",
        "Unix time of the last report of any task. An idle task reports every 15 seconds.",
    )
    builds: Mapping[str, int] = gauge("shoal_build_info", "1, with the version of shoal.", label="version")

    def to_json_object(self, now: float) -> dict[str, Any]:
        """Return the state as JSON, with printable texts; the partitions as one list for each column."""
        columns = (
            *_COLUMNS,
            *numbers_of(PartitionState),
            *(f"counts.{each}" for each in numbers_of(Counted)),
        )
        rows = {name.rpartition(".")[2]: list(map(attrgetter(name), self.partitions)) for name in columns}
        reported_at, clusters = self.last_report_at, self.progress.clusters_down
        state = {
            **self.progress.to_json_object(),
            "last_report_age_s": None if reported_at is None else max(0.0, now - reported_at),
            "clusters_down": {
                name: {**asdict(each), "sentence": each.sentence} for name, each in clusters.items()
            },
            "incident_counts": self.incidents,
            "followed": [{"kind": kind, **asdict(each)} for kind, each in self.followed.items()],
            "steering": self.steering.to_json_object(),
            "processes": [{**asdict(each), "role": each.role.value} for each in self.processes],
            "rows": rows,
        }
        printed: dict[str, Any] = printable_values(state)
        return printed

    def to_prometheus(self, *, by_topic: bool) -> str:
        """Return the state in Prometheus's text format, by partition or with the totals of topics."""
        rows = self._topics() if by_topic else self._partitions()
        processes = [(labels(process=each.name, role=each.role.value), each) for each in self.processes]
        followed = [
            (labels(kind=kind, synced=str(each.is_synced).lower()), each)
            for kind, each in self.followed.items()
        ]
        return "".join(
            (
                text(PartitionState, [(known, each) for known, each, _ in rows]),
                text(Counted, [(known, counts) for known, _, counts in rows]),
                text(MirrorState, [("", self)]),
                text(FollowRound, followed),
                text(SteeringStatus, [("", self.steering)]),
                text(GroupsStatus, [("", self.groups)] if self.groups else []),
                text(ProcessUsage, processes),
                text(GarbageCollection, [(known, each.gc) for known, each in processes if each.gc]),
            )
        )

    def _partitions(self) -> list[_Row]:
        return [
            (labels(topic=each.name.topic, partition=each.name.partition), each, each.counts)
            for each in self.partitions
        ]

    def _topics(self) -> list[_Row]:
        by_topic: dict[str, list[PartitionState]] = {}
        for each in self.partitions:
            by_topic.setdefault(each.name.topic, []).append(each)
        return [
            (
                labels(topic=topic),
                SimpleNamespace(**summed(PartitionState, rows)),
                SimpleNamespace(**summed(Counted, [each.counts for each in rows])),
            )
            for topic, rows in by_topic.items()
        ]
