"""
The reports of tasks to the driver, and of the driver to its own metrics.

A :class:`TaskReport` is one line of JSON on the control connection; its keys are in ``to_json_object``.
Counts begin at the last report of the same task; all other values are current. Driver and tasks have the
same version of shoal, so there is only one layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import PartitionStopped
from ...records import Decision
from ...topic_partition import TopicPartition
from .handover import Left, leaves_from_json, leaves_to_json
from .incidents import Incident, IncidentKind

__all__ = [
    "CopyReport",
    "Counters",
    "ProcessReport",
    "SmallBatches",
    "TaskReport",
    "left_out_report",
    "stopped_report",
]


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
        """Whether there are counts to report. Runs only come with records."""
        return bool(self.records or self.bytes_in or self.retries or self.decisions or self.incidents)


@dataclass(frozen=True, slots=True)
class CopyReport:
    """
    A report of one partition.

    Attributes:
        partition: The source's partition.
        source_offset: The next source offset to mirror; None if the task does not know it.
        end_offset: The end offset up to which to mirror; None if the task does not know it.
        committed_offset: The offset of the task's last commit; None before the first.
        newest_ms: The newest timestamp of the last acknowledged records; None if the task does not know it.
        waiting_for: The reason why the partition waits; None if it does not.
        commit_waits_for: The reason why its position is not committed; None if it is.
        held_back: The number of offsets that open transactions hold back; None if that is not news.
        stopped: The reason why the partition stopped, in the first report of the stop.
        counters: The counts since the last report.

    """

    partition: TopicPartition
    source_offset: int | None = None
    end_offset: int | None = None
    committed_offset: int | None = None
    newest_ms: int | None = None
    waiting_for: str | None = None
    commit_waits_for: str | None = None
    held_back: int | None = None
    stopped: PartitionStopped | None = None
    counters: Counters = field(default_factory=Counters)

    def to_json_object(self) -> dict[str, Any]:
        """Return the report as JSON."""
        stopped, counters = self.stopped, self.counters
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "source_offset": self.source_offset,
            "end_offset": self.end_offset,
            "committed_offset": self.committed_offset,
            "newest_ms": self.newest_ms,
            "waiting_for": self.waiting_for,
            "commit_waits_for": self.commit_waits_for,
            "held_back": self.held_back,
            "stopped": stopped
            and [stopped.offset, stopped.reason, stopped.unmirrored_from, stopped.can_heal],
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

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> CopyReport:
        """Read the JSON of :meth:`to_json_object`."""
        partition = TopicPartition(values["topic"], values["partition"])
        return cls(
            partition,
            values["source_offset"],
            values["end_offset"],
            values["committed_offset"],
            values["newest_ms"],
            values["waiting_for"],
            values["commit_waits_for"],
            values["held_back"],
            PartitionStopped(*partition, *values["stopped"]) if values["stopped"] else None,
            Counters(
                values["records"],
                values["bytes_in"],
                values["bytes_out"],
                values["retries"],
                Counter({Decision(name): count for name, count in values["decisions"].items()}),
                values["runs"],
                [Incident(IncidentKind(kind), *rest) for kind, *rest in values["incidents"]],
            ),
        )


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """
    The resources of a task's process.

    Attributes:
        name: Its name, as ``host:pid``.
        cpu_s: User and system time since the last report.
        peak_rss_bytes: The most memory that it had.

    """

    name: str
    cpu_s: float
    rss_bytes: int
    peak_rss_bytes: int


class SmallBatches(NamedTuple):
    """
    The finding that requests limit a worker, since its batches are small.

    Attributes:
        average_bytes: The size of its batches on average.
        bytes_per_s: How much it copies a second.

    """

    average_bytes: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """
    A report of one task.

    Attributes:
        partitions: The partitions with news.
        bytes_in: Fetched from the source, since the last report.
        process: The task's process; None for a report of the driver.
        begin_generation: Whether the group needs a new generation: a commit had an unknown outcome.
        leaves: The partitions that the task writes and commits no more.
        term: The term that the task knew when it left them.
        small_batches: The finding of one of its workers.

    """

    partitions: Sequence[CopyReport] = ()
    bytes_in: int = 0
    process: ProcessReport | None = None
    begin_generation: bool = False
    leaves: Mapping[TopicPartition, Left] = field(default_factory=dict)
    term: int = 0
    small_batches: SmallBatches | None = None

    def to_json_object(self) -> dict[str, Any]:
        """Return the report as JSON."""
        process = self.process
        return {
            "partitions": [each.to_json_object() for each in self.partitions],
            "bytes_in": self.bytes_in,
            "cpu_s": process.cpu_s if process else 0.0,
            "peak_rss_bytes": process.peak_rss_bytes if process else 0,
            **({"rss_bytes": process.rss_bytes, "pid_host": process.name} if process else {}),
            **({"begin_generation": True} if self.begin_generation else {}),
            **({"leaves": leaves_to_json(self.leaves), "term": self.term} if self.leaves else {}),
            **({"small_batches": list(self.small_batches)} if self.small_batches else {}),
        }

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> TaskReport:
        """Read the JSON of :meth:`to_json_object`."""
        name = values.get("pid_host")
        return cls(
            [CopyReport.from_json_object(each) for each in values["partitions"]],
            values["bytes_in"],
            None
            if name is None
            else ProcessReport(name, values["cpu_s"], values["rss_bytes"], values["peak_rss_bytes"]),
            values.get("begin_generation", False),
            leaves_from_json(values.get("leaves", ())),
            values.get("term", 0),
            SmallBatches(*values["small_batches"]) if "small_batches" in values else None,
        )


def left_out_report(reasons: Mapping[TopicPartition, str]) -> TaskReport:
    """Return a report of partitions that no task copies now, with the reasons."""
    return TaskReport([CopyReport(partition, waiting_for=reason) for partition, reason in reasons.items()])


def stopped_report(stops: Mapping[TopicPartition, tuple[PartitionStopped, Incident]]) -> TaskReport:
    """Return a report of partitions that the driver itself stops."""
    return TaskReport(
        [
            CopyReport(partition, stopped=stopped, counters=Counters(incidents=[incident]))
            for partition, (stopped, incident) in stops.items()
        ]
    )
