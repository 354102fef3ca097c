"""
Documents of the driver to its tasks, and the reports of tasks.

A *document* has all partitions of a task, each by an *entry* with a number of its own. The driver sends it
again whenever it changes, and the newest one counts. A partition that a document no longer has is to be
left: the task commits its position, and reports that it left the entry (:class:`Left`). The next task resumes
by the group's position, as after a start.

A :class:`TaskReport` is one line of JSON on the control connection, with its fields as keys.
Counts begin when the task takes the partition, so a lost report loses none. Runs and incidents are those
since the last report, and all other values are current. Driver and tasks have the same version of shoal, so
there is only one layout.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeAlias

from ...errors import PartitionStopped
from ...numbers import counter, numbers_of
from ...topic_partition import TopicPartition
from .incidents import Incident, IncidentKind
from .ranges import CopyRange

__all__ = [
    "Assigned",
    "CopyReport",
    "Counted",
    "Counters",
    "Document",
    "Left",
    "ProcessReport",
    "SmallBatches",
    "TaskReport",
    "left_out_report",
    "stopped_report",
]


@dataclass(frozen=True, slots=True)
class Left:
    """
    The report of a task on a partition that it writes no more.

    Attributes:
        entry: The number of the entry by which it had the partition.
        is_settled: Whether the task knows the outcome of all its commits.
        is_done: Whether everything up to the end is copied.

    """

    entry: int
    is_settled: bool = True
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Assigned:
    """
    One partition in a document.

    Attributes:
        entry: The number of the entry. A partition that is given out again has another one.
        range: Where to copy it to, where it begins without a position, and where it ends.
        waiting_for: Why the former task waited, as it reported last.
        accepted: The kind of incident that an operator has accepted once.

    """

    entry: int
    range: CopyRange
    waiting_for: str | None = None
    accepted: IncidentKind | None = None


#: The desired state of one task: all partitions that it is to copy.
Document: TypeAlias = Mapping[TopicPartition, Assigned]


@dataclass(slots=True)
class Counted:
    """The counts of one partition, of a topic, or of the whole mirror. A task alone changes its own."""

    records: int = counter("shoal_records_total", "Records that the destination has acknowledged.")
    batches: int = counter("shoal_batches_total", "Batches that the destination has acknowledged.")
    bytes_in: int = counter(
        "shoal_fetched_bytes_total",
        "Bytes in: of batches fetched from the source, including batches fetched again and batches dropped.",
    )
    bytes_out: int = counter(
        "shoal_produced_bytes_total", "Bytes out: of batches that the destination has acknowledged."
    )
    retries: int = counter("shoal_retries_total", "Waits and new attempts after errors.")
    decisions: dict[str, int] = counter(
        "shoal_decisions_total",
        "Batches by decision, such as copied, cropped, joined or dropped: control. Only decisions that "
        "occurred are present. skipped: gap counts offsets, not batches.",
        label="decision",
    )

    def counts(self) -> dict[str, Any]:
        """Return the counts by name, as JSON has them; later counting does not change them."""
        return {
            name: dict(getattr(self, name)) if number.label else getattr(self, name)
            for name, number in numbers_of(Counted).items()
        }

    def moved(self, before: Counted, now: Counted) -> Counted:
        """Return these totals after one part of them went from the counts before to those of now."""
        moved: dict[str, Any] = {}
        for name, number in numbers_of(Counted).items():
            total, was, is_ = getattr(self, name), getattr(before, name), getattr(now, name)
            if number.label:
                moved[name] = Counter(total)
                moved[name].update(is_)
                moved[name].subtract(was)
            else:
                moved[name] = total + is_ - was
        return Counted(**moved)


@dataclass(slots=True)
class Counters(Counted):
    """
    The counts of one partition since its task took it, and what happened since its last report.

    Attributes:
        since: The time at which the task took it, in nanoseconds since 1970: another one means other counts.
            0 if there are none, in a report of the driver.
        runs: Acknowledged offsets, as lists of the values of ``AcknowledgedRun``.
        incidents: In the order in which they happened.

    """

    since: int = 0
    runs: list[list[int]] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)

    @classmethod
    def begun(cls) -> Counters:
        """Return the counts of a task that takes a partition now."""
        return cls(since=time.time_ns())

    def take(self) -> Counters:
        """Return the counts for a report, and take the runs and incidents, which are reported once."""
        taken = replace(self, decisions=Counter(self.decisions))
        self.runs, self.incidents = [], []
        return taken


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
        counters: The counts since the task took the partition.

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

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        stopped, counters = self.stopped, self.counters
        return {
            **self.partition._asdict(),
            **{name: getattr(self, name) for name in _PLAIN},
            "stopped": stopped
            and [stopped.offset, stopped.reason, stopped.unmirrored_from, stopped.can_heal],
            "since": counters.since,
            **counters.counts(),
            "runs": counters.runs,
            "incidents": [
                [each.kind.value, each.reason, each.lost, each.continued] for each in counters.incidents
            ],
        }

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> CopyReport:
        """Read the JSON of :meth:`as_json`."""
        partition = TopicPartition(values["topic"], values["partition"])
        return cls(
            partition,
            stopped=PartitionStopped(*partition, *values["stopped"]) if values["stopped"] else None,
            counters=Counters(
                since=values["since"],
                runs=values["runs"],
                incidents=[Incident(IncidentKind(kind), *rest) for kind, *rest in values["incidents"]],
                **{name: values[name] for name in numbers_of(Counted)},
            ),
            **{name: values[name] for name in _PLAIN},
        )


#: The values of a report that are in its JSON as they are.
_PLAIN = tuple(
    each.name for each in fields(CopyReport) if each.name not in ("partition", "stopped", "counters")
)


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """
    The resources of a task's process.

    Attributes:
        name: Its name, as ``host:pid``.
        cpu_s: User and system time since the last report.
        is_native: Whether it runs the loops of the native module.

    """

    name: str
    cpu_s: float
    rss_bytes: int
    is_native: bool


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
        process: The task's process; None for a report of the driver.
        begin_generation: Whether the group needs a new generation: a commit had an unknown outcome.
        leaves: The partitions that the task writes and commits no more.
        small_batches: The finding of one of its workers.

    """

    partitions: Sequence[CopyReport] = ()
    process: ProcessReport | None = None
    begin_generation: bool = False
    leaves: Mapping[TopicPartition, Left] = field(default_factory=dict)
    small_batches: SmallBatches | None = None


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
