"""How far a mirror is while it runs, and what it did in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..exit_codes import EXIT_CONTINUED, EXIT_DONE, EXIT_FAILED

__all__ = ["PartitionIncident", "Progress", "Summary", "lost_of"]


@dataclass(frozen=True, slots=True)
class PartitionIncident:
    """
    An incident (:class:`~shoal.mirroring.incidents.Incident`) and where it happened, for reports.

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
        done: How many have nothing left to copy now.
        stopped: Why, by partition: these need a person.
        waiting: What for, by partition: time can heal these.
        records: That were acknowledged at the destination.
        batches: Likewise.
        bytes_in: Fetched from the source.
        bytes_out: Produced to the destination.
        records_per_s: Of late.
        bytes_per_s: Of late; of ``bytes_out``.
        lag_records: Between the positions and the ends that were last seen:
            in offsets, so transaction markers and holes count too.
        remaining_s: Until ``lag_records`` is nothing, at this rate; None
            where there is no telling.
        decisions: How many batches met which (copy, drop …).
        retries: Requests that had to be repeated.
        incidents: What happened to the clusters that cannot be made good: the newest hundred.
        incidents_before: How many came before these.
        lost_before: What was lost with those, where the mirror went on.
        lag_s: The same lag in time, of the partition that is furthest behind
            (:meth:`PartitionMetrics.lag_s`); None before any position is
            known. Stopped partitions count in neither: they are named.

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
            where no task began.
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
        interrupted: Somebody asked for an end before ``once`` had copied all.
        log_file: Where Spark's own log is.

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
        """0; 1 where a partition was stopped, or not all was copied; else 4 where there were incidents."""
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
        }
