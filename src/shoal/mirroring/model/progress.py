"""How far a mirror is while it runs, and what it did in the end."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...exit_codes import EXIT_CONTINUED, EXIT_DONE, EXIT_FAILED
from .processes import GarbageCollection

__all__ = ["LONG_TRANSACTION_S", "HeldBack", "PartitionIncident", "Phase", "Progress", "Summary", "lost_of"]


#: Transactions that are open for so long are named: producers' default transaction.timeout.ms.
LONG_TRANSACTION_S = 60.0


class Phase(enum.Enum):
    """What a mirror is doing, from its start to its end; the value is the word for it everywhere."""

    CHECKING = "checking the clusters"
    CREATING = "creating topics"
    FINDING_POSITIONS = "finding positions"
    STARTING_SPARK = "starting Java and Spark"
    STARTING_TASKS = "starting tasks"
    COPYING = "copying"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """
    Records of a source partition that no consumer of committed records gets, since a transaction is open.

    Attributes:
        records: How many offsets lie between the last stable offset and the high watermark.
        since: Unix time since which the mirror has seen the last stable offset stand still.

    """

    records: int
    since: float


@dataclass(frozen=True, slots=True)
class PartitionIncident:
    """
    An incident (:class:`~shoal.mirroring.model.incidents.Incident`) and where it happened, for reports.

    Attributes:
        partition: The source's, as ``topic-number``.
        kind: Its kind's name.
        reason: What was found where, as a sentence.
        lost: Offsets or records that nobody will ever mirror; None where nobody can tell how many.
        continued: Whether the mirror went on.

    """

    partition: str
    kind: str
    reason: str
    lost: int | None
    continued: bool


def lost_of(incident: PartitionIncident) -> int:
    """Return what was lost with an incident that the mirror went on from, as far as it could be counted."""
    return (incident.lost or 0) if incident.continued else 0


@dataclass(frozen=True, slots=True)
class Progress:
    """
    One report of a mirror at work. Totals are since its start.

    Partitions are the source's, as ``topic-number``.

    Attributes:
        elapsed_s: Since the start.
        partitions: How many there are.
        done: How many are up to date. The name that ``states`` had before; it stays.
        stopped: Why, by partition: these need a person.
        waiting: What for, by partition: time can heal these.
        records: That were acknowledged at the destination.
        batches: Likewise.
        bytes_in: Fetched from the source.
        bytes_out: Produced to the destination.
        records_per_s: Of late.
        bytes_per_s: Of late; of ``bytes_out``.
        lag_records: Between the positions and the ends that were last seen:
            in offsets, so transaction markers and holes count too. Of a
            stopped partition it is what is missing at the destination.
        remaining_s: Until ``lag_records`` is nothing, at this rate; None
            where there is no telling.
        decisions: How many batches met which (copy, drop …).
        retries: Requests that had to be repeated.
        incidents: What happened to the clusters that cannot be made good: the newest hundred.
        incidents_before: How many came before these.
        lost_before: What was lost with those, where the mirror went on.
        lag_s: The same lag in time, of the partition that is furthest behind
            (:meth:`PartitionMetrics.lag_s`); None before any position is known.
        states: How many partitions are in each state (``PartitionState``):
            they add up to ``partitions``.
        held_back_records: How many offsets open transactions hold back, of all partitions; no lag has them.
        held_back: The same by partition, if there are any.
        phase: What the mirror is doing (``Phase``).
        phase_s: How long it has been doing that.
        once: Whether the mirror ends when everything is copied.

    """

    elapsed_s: float
    partitions: int
    done: int
    stopped: Mapping[str, str]
    waiting: Mapping[str, str]
    records: int
    batches: int
    bytes_in: int
    bytes_out: int
    records_per_s: float
    bytes_per_s: float
    lag_records: int
    remaining_s: float | None
    decisions: Mapping[str, int]
    retries: int
    incidents: tuple[PartitionIncident, ...] = ()
    incidents_before: int = 0
    lost_before: int = 0
    lag_s: float | None = None
    states: Mapping[str, int] = field(default_factory=dict)
    held_back_records: int = 0
    held_back: Mapping[str, HeldBack] = field(default_factory=dict)
    phase: str = Phase.COPYING.value
    phase_s: float = 0.0
    once: bool = False

    def to_json_object(self) -> dict[str, Any]:
        return {"type": "progress", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Summary:
    """
    What a mirror did from its start to its end.

    Attributes:
        group: The consumer group that holds the position.
        topics: The destination's names by the source's.
        elapsed_s: From start to end, Spark's own start included.
        copying_s: From the first task's begin to the last one's end; None
            if nothing was copied.
        python_cpu_s: Of all of our Python processes, user and system.
        jvm_cpu_s: Of Spark's JVM, likewise.
        partitions: How many were mirrored.
        stopped: Why, by partition: these need a person.
        waiting: What for, by partition, at the end: time can heal these.
        warnings: Sentences: what, where, what to do.
        records: That were acknowledged at the destination.
        batches: Likewise.
        bytes_in: Fetched from the source.
        bytes_out: Produced to the destination.
        decisions: How many batches met which (copy, drop …).
        retries: Requests that had to be repeated.
        incidents: What happened to the clusters that cannot be made good: the newest hundred.
        incidents_before: How many came before these.
        lost_before: What was lost with those, where the mirror went on.
        interrupted: The mirror was stopped before ``once`` had copied all.
        log_file: Where Spark's own log is.
        states: How many partitions are in each state at the end, as in :class:`Progress`.
        lag_records: What is not mirrored, as in :class:`Progress`.
        lag_s: The same in time.
        held_back_records: What open transactions hold back, as in :class:`Progress`.
        report: The file of the report; None if none was asked for.
        ended: Why the mirror ended, as a phrase; empty if it is not known.
        jvm_gc: Garbage collection of Spark's JVMs on this machine; None if they publish no counters.

    """

    group: str
    topics: Mapping[str, str]
    elapsed_s: float
    python_cpu_s: float
    jvm_cpu_s: float
    partitions: int
    stopped: Mapping[str, str]
    warnings: tuple[str, ...]
    records: int
    batches: int
    bytes_in: int
    bytes_out: int
    decisions: Mapping[str, int]
    retries: int
    incidents: tuple[PartitionIncident, ...] = ()
    incidents_before: int = 0
    lost_before: int = 0
    waiting: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    log_file: str | None = None
    copying_s: float | None = None
    states: Mapping[str, int] = field(default_factory=dict)
    lag_records: int = 0
    lag_s: float | None = None
    held_back_records: int = 0
    report: str | None = None
    ended: str = ""
    jvm_gc: GarbageCollection | None = None

    @classmethod
    def of_nothing(cls, group: str | None, elapsed_s: float, ended: str, *, once: bool) -> Summary:
        """Return the summary of a mirror that was stopped before it began."""
        return cls(
            group=group or "",
            topics={},
            elapsed_s=elapsed_s,
            python_cpu_s=0.0,
            jvm_cpu_s=0.0,
            partitions=0,
            stopped={},
            warnings=(),
            records=0,
            batches=0,
            bytes_in=0,
            bytes_out=0,
            decisions={},
            retries=0,
            interrupted=once,
            ended=ended,
        )

    @property
    def up_to_date(self) -> bool:
        """Whether every partition is: nothing is missing, and nothing is in the way."""
        return self.states.get("up to date", 0) == self.partitions

    @property
    def bytes_per_s(self) -> float:
        """Of ``bytes_out``, while tasks were at work: without Spark's start, where that is known."""
        seconds = self.elapsed_s if self.copying_s is None else self.copying_s
        return self.bytes_out / seconds if seconds > 0 else 0.0

    @property
    def lost(self) -> int:
        """Offsets or records that nobody will ever mirror, as far as they could be counted."""
        return self.lost_before + sum(map(lost_of, self.incidents))

    @property
    def exit_code(self) -> int:
        """0; 1 if a partition was stopped, or not all was copied; else 4 if there were incidents."""
        if self.stopped or self.interrupted:
            return EXIT_FAILED
        return EXIT_CONTINUED if self.incidents else EXIT_DONE

    def to_json_object(self) -> dict[str, Any]:
        return {
            "type": "summary",
            **asdict(self),
            "bytes_per_s": self.bytes_per_s,
            "lost": self.lost,
            "exit_code": self.exit_code,
            "up_to_date": self.up_to_date,
        }
