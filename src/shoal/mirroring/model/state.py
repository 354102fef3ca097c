"""
The state of a mirror at one moment: what the page, the report, ``/state.json`` and Prometheus show.

Each number is declared in the class that has it (:mod:`shoal.numbers`), and the views loop over the fields.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...numbers import counter, gauge, labels, numbers_of, summed, text
from ...printable import printable_values
from .counts import Counted
from .groups_status import GroupsStatus
from .processes import GarbageCollection, ProcessUsage
from .progress import Progress
from .steering import SteeringStatus

__all__ = ["FollowRound", "MirrorState", "PartitionState", "PartitionStatus"]


class PartitionStatus(enum.StrEnum):
    """
    A partition's state as users see it: exactly one at a time, so that the counts add up to all partitions.

    The value is the word for it on the terminal, in JSON, on the page and in Prometheus.
    """

    UP_TO_DATE = "up to date"
    BEHIND = "behind"
    WAITING = "waiting"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


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


@dataclass(slots=True)
class PartitionState:
    """
    One partition, or all of a topic: of its reasons and times the totals are those that are declared.

    Attributes:
        reason: The reason why it waits or is stopped; None if it does neither.
        process: The worker of the last report, as ``host:pid``.
        held_back_since: Unix time since which records are held back.
        counts: Its counts.

    """

    topic: str
    partition: int | None
    state: PartitionStatus
    reason: str | None
    process: str | None
    held_back_since: float | None
    counts: Counted
    lag_records: int | None = gauge(
        "shoal_lag_records",
        "Offsets of the source that are not mirrored, including transaction markers and holes. If the "
        "partition is stopped, the offsets missing at the destination.",
    )
    held_back_records: int = gauge(
        "shoal_held_back_records",
        "Offsets between the source's last stable offset and its high watermark, held back by open "
        "transactions.",
        initial=0,
    )
    lag_s: float | None = gauge(
        "shoal_lag_seconds", "Upper bound for the age of the oldest record that is not mirrored.", total=max
    )
    committed_at: float | None = gauge(
        "shoal_last_commit_timestamp_seconds",
        "Unix time of the last commit of the position. Present after the first commit of this run.",
        total=max,
    )
    is_waiting: bool = gauge(
        "shoal_partition_waiting",
        "1 while the partition waits for a cause that can pass with time, such as a missing leader.",
        initial=False,
    )
    is_stopped: bool = gauge(
        "shoal_partition_stopped", "1 while the partition is stopped. The others continue.", initial=False
    )


#: The columns of partitions in JSON that are no numbers.
_COLUMNS = ("topic", "partition", "state", "reason", "process", "held_back_since")


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
        steering: How it is steered; None if nothing steers it.

    """

    progress: Progress
    partitions: Sequence[PartitionState]
    processes: Sequence[ProcessUsage]
    followed: Mapping[str, FollowRound]
    groups: GroupsStatus | None
    steering: SteeringStatus | None
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
        rows = {name: [getattr(each, name) for each in self.partitions] for name in _COLUMNS}
        rows |= {
            name: [getattr(each, name) for each in self.partitions] for name in numbers_of(PartitionState)
        }
        rows |= {
            name: [getattr(each.counts, name) for each in self.partitions] for name in numbers_of(Counted)
        }
        reported_at, clusters = self.last_report_at, self.progress.clusters_down
        state = {
            **self.progress.to_json_object(),
            "last_report_age_s": None if reported_at is None else max(0.0, now - reported_at),
            "clusters_down": {
                name: {**asdict(each), "sentence": each.sentence} for name, each in clusters.items()
            },
            "incident_counts": self.incidents,
            "followed": [{"kind": kind, **asdict(each)} for kind, each in self.followed.items()],
            "steering": None if self.steering is None else self.steering.to_json_object(),
            "processes": [{**asdict(each), "role": each.role.value} for each in self.processes],
            "rows": rows,
        }
        printed: dict[str, Any] = printable_values(state)
        return printed

    def to_prometheus(self, *, by_topic: bool) -> str:
        """Return the state in Prometheus's text format, by partition or with the totals of topics."""
        partitions = self._topics() if by_topic else self.partitions
        rows = [(_labels_of(each), each) for each in partitions]
        processes = [(labels(process=each.name, role=each.role.value), each) for each in self.processes]
        followed = [
            (labels(kind=kind, synced=str(each.is_synced).lower()), each)
            for kind, each in self.followed.items()
        ]
        return "".join(
            (
                text(PartitionState, rows),
                text(Counted, [(known, each.counts) for known, each in rows]),
                text(MirrorState, [("", self)]),
                text(FollowRound, followed),
                text(SteeringStatus, [("", self.steering)] if self.steering else []),
                text(GroupsStatus, [("", self.groups)] if self.groups else []),
                text(ProcessUsage, processes),
                text(GarbageCollection, [(known, each.gc) for known, each in processes if each.gc]),
            )
        )

    def _topics(self) -> list[PartitionState]:
        by_topic: dict[str, list[PartitionState]] = {}
        for each in self.partitions:
            by_topic.setdefault(each.topic, []).append(each)
        return [
            PartitionState(
                topic,
                None,
                PartitionStatus.UNKNOWN,
                None,
                None,
                None,
                Counted(**summed(Counted, [each.counts for each in partitions])),
                **summed(PartitionState, partitions),
            )
            for topic, partitions in by_topic.items()
        ]


def _labels_of(each: PartitionState) -> str:
    if each.partition is None:
        return labels(topic=each.topic)
    return labels(topic=each.topic, partition=each.partition)
