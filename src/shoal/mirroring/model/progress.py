"""
The progress of a running mirror, of its processes and groups, and the summary of one that has ended.

:func:`line` has the progress in one line, the most important part first: for terminals, logs and operators.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...exit_codes import EXIT_CONTINUED, EXIT_DONE, EXIT_FAILED
from ...numbers import counter, gauge
from .incidents import Incident
from .reports import Counted
from .text import utc

__all__ = [
    "LONG_TRANSACTION_S",
    "ClusterSilence",
    "GarbageCollection",
    "GroupsStatus",
    "HeldBack",
    "Phase",
    "ProcessRole",
    "ProcessUsage",
    "Progress",
    "Summary",
    "Totals",
    "clock",
    "line",
]


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """
    The garbage collection of one JVM.

    Attributes:
        pauses: The number of pauses.
        time_s: The total time of the pauses.

    """

    pauses: int = counter(
        "shoal_jvm_gc_collections_total", "Garbage collection pauses since the mirror's start, of JVMs alone."
    )
    time_s: float = counter(
        "shoal_jvm_gc_seconds_total", "Time in these pauses since the mirror's start, of JVMs alone."
    )

    def beside(self, other: GarbageCollection) -> GarbageCollection:
        """Return the sum of two JVMs."""
        return GarbageCollection(self.pauses + other.pauses, self.time_s + other.time_s)


class ProcessRole(enum.Enum):
    """The role of a process in a mirror."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """
    The resources that one process uses.

    Attributes:
        name: ``host:pid``.
        cpu_s: User and system time since the mirror's start.
        rss_bytes: The resident memory at the last report or reading.
        last_report_at: The time of that report or reading, as Unix time.
        gc: Garbage collection since the mirror's start; None for Python processes, and for a JVM that
            publishes no counters.

    """

    name: str
    role: ProcessRole
    cpu_s: float = counter(
        "shoal_process_cpu_seconds_total", "User and system CPU time since the mirror's start."
    )
    rss_bytes: int = gauge("shoal_process_resident_memory_bytes", "Resident memory.", initial=0)
    last_report_at: float = 0.0
    gc: GarbageCollection | None = None


#: Page and warnings name transactions that are open for longer: producers' default transaction.timeout.ms.
LONG_TRANSACTION_S = 60.0


class Phase(enum.Enum):
    """The phases of a mirror, in order. The values are the names in page, progress and reports."""

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
    Records of a source partition that consumers of committed records cannot read: a transaction is open.

    Attributes:
        records: The number of offsets between the last stable offset and the high watermark.
        since: Unix time since which the last stable offset has not moved.

    """

    records: int
    since: float


@dataclass(frozen=True, slots=True)
class ClusterSilence:
    """
    A cluster that does not answer: no broker of it has answered for a while.

    Attributes:
        name: ``source`` or ``destination``.
        since: Unix time of its last answer.
        reason: The error of the last request, as a phrase.

    """

    name: str
    since: float
    reason: str

    @property
    def sentence(self) -> str:
        """The silence as a clause, the same until the cluster answers."""
        return f"the {self.name} cluster does not answer since {utc(self.since)}"


@dataclass(slots=True, kw_only=True)
class Totals(Counted):
    """
    The totals of a mirror since its start, in :class:`Progress` and :class:`Summary`; nothing changes them.

    Attributes:
        elapsed_s: The time since the start, Spark's own start included.
        partitions: The number of partitions.
        states: The number of partitions in each state (``PartitionStatus``); the sum is ``partitions``.
        stopped: The reason for each stopped partition; these need an operator.
        waiting: The reason for each waiting partition; these are transient.
        lag_records: The offsets between the positions and the last known ends, transaction markers and gaps
            included. For a stopped partition: the offsets that are missing at the destination.
        lag_s: The lag in time of the partition with the largest one
            (:meth:`.PartitionState.lag_s`); None before any position is known.
        held_back_records: The offsets that open transactions hold back, in all partitions. They are not lag.
        incidents: The newest hundred incidents.
        incidents_before: The number of earlier incidents.
        lost_before: The known losses of those, if the partition continued.
        consumer_groups: The state of the consumer groups that follow the records (``GroupsStatus``); None if
            none do.
        clusters_down: The clusters that do not answer, by name. Their partitions count as waiting.

    """

    elapsed_s: float
    partitions: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    lag_records: int = 0
    lag_s: float | None = None
    held_back_records: int = 0
    incidents: tuple[Incident, ...] = ()
    incidents_before: int = 0
    lost_before: int = 0
    consumer_groups: Mapping[str, Any] | None = None
    clusters_down: Mapping[str, ClusterSilence] = field(default_factory=dict)

    @property
    def lag_is_known(self) -> bool:
        """Whether the ends of the source's logs are current: the source answers."""
        return "source" not in self.clusters_down


@dataclass(slots=True, kw_only=True)
class Progress(Totals):
    """
    The progress of a running mirror. Partitions are the source's, as ``topic-number``.

    Attributes:
        records_per_s: The recent rate.
        bytes_per_s: The recent rate of ``bytes_out``.
        remaining_s: The time until ``lag_records`` is 0 at this rate; None if it is unknown.
        held_back: ``held_back_records`` by partition, if there are any.
        phase: The phase of the mirror (``Phase``).
        phase_s: The time since the phase began.
        once: Whether the mirror ends when everything is copied.

    """

    records_per_s: float
    bytes_per_s: float
    remaining_s: float | None
    held_back: Mapping[str, HeldBack] = field(default_factory=dict)
    phase: str = Phase.COPYING.value
    phase_s: float = 0.0
    once: bool = False

    def to_json_object(self) -> dict[str, Any]:
        """Return the progress as JSON."""
        return {"type": "progress", **asdict(self)}


@dataclass(slots=True, kw_only=True)
class Summary(Totals):
    """
    The summary of a mirror that has ended.

    Attributes:
        group: The consumer group that holds the position.
        topics: The destination topics' names by the source topics' names.
        copying_s: The time from the start of the first task to the end of the last one; None if nothing
            was copied.
        python_cpu_s: User and system time of the driver, of Spark's daemon and of all tasks.
        jvm_cpu_s: User and system time of Spark's JVMs on this machine.
        warnings: The warnings, as sentences.
        interrupted: Whether the mirror was stopped before ``once`` had copied everything.
        log_file: The file of Spark's own log.
        report: The file of the report; None without one.
        ended: The reason for the end, as a phrase; empty if it is unknown.
        jvm_gc: Garbage collection of Spark's JVMs on this machine; None if they publish no counters.
        engines: How the tasks ran the inner loops: ``native``, ``Python``, or both.

    """

    group: str
    topics: Mapping[str, str] = field(default_factory=dict)
    python_cpu_s: float = 0.0
    jvm_cpu_s: float = 0.0
    warnings: tuple[str, ...] = ()
    interrupted: bool = False
    log_file: str | None = None
    copying_s: float | None = None
    report: str | None = None
    ended: str = ""
    jvm_gc: GarbageCollection | None = None
    engines: tuple[str, ...] = ()

    @classmethod
    def of(cls, totals: Totals, **ending: Any) -> Summary:
        """Return the summary of a mirror with these totals, and with the other attributes given."""
        return cls(**{each.name: getattr(totals, each.name) for each in fields(Totals)} | ending)

    @classmethod
    def of_nothing(cls, group: str | None, elapsed_s: float, ended: str, *, once: bool) -> Summary:
        """Return the summary of a mirror that was stopped before it began."""
        return cls(group=group or "", elapsed_s=elapsed_s, interrupted=once, ended=ended)

    @property
    def up_to_date(self) -> bool:
        """Whether every partition is up to date."""
        return self.states.get("up to date", 0) == self.partitions

    @property
    def bytes_per_s(self) -> float:
        """The rate of ``bytes_out`` while tasks ran; if that time is unknown, over the whole run."""
        seconds = self.elapsed_s if self.copying_s is None else self.copying_s
        return self.bytes_out / seconds if seconds > 0 else 0.0

    @property
    def lost(self) -> int:
        """The known number of offsets or records that are never mirrored."""
        return self.lost_before + sum(each.known_loss for each in self.incidents)

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if a partition stopped or the run was interrupted, 4 after incidents, else 0."""
        if self.stopped or self.interrupted:
            return EXIT_FAILED
        return EXIT_CONTINUED if self.incidents else EXIT_DONE

    def to_json_object(self) -> dict[str, Any]:
        """Return the summary as JSON, with the values of its properties."""
        return {
            "type": "summary",
            **asdict(self),
            "bytes_per_s": self.bytes_per_s,
            "lost": self.lost,
            "exit_code": self.exit_code,
            "up_to_date": self.up_to_date,
        }


@dataclass(frozen=True, slots=True)
class GroupsStatus:
    """
    The result of the last round.

    Attributes:
        at: Unix time of the end of the last round that succeeded; None before the first.
        groups: The number of selected groups.
        offsets: The number of their offsets by exactness: ``exact``, ``ahead`` and ``at least``.
        actions: The number of their offsets by action, such as ``unchanged`` or ``refused``.
        left_alone: The groups that have members at the destination, at most a hundred.
        problems: The reason by group, if none of its offsets can be translated; at most a hundred.
        untranslated: The number of these groups, without those that have no offsets of consumers.
        failure: The reason why the last round failed; empty if it succeeded.

    """

    at: float | None = gauge(
        "shoal_consumer_groups_timestamp_seconds", "Unix time of the last translation that succeeded."
    )
    groups: int = gauge(
        "shoal_consumer_groups", "Consumer groups whose committed offsets follow the records.", initial=0
    )
    offsets: Mapping[str, int] = gauge(
        "shoal_consumer_group_offsets",
        "Committed offsets in the last translation: exact, ahead or at least.",
        label="exactness",
    )
    actions: Mapping[str, int] = gauge(
        "shoal_consumer_group_actions",
        "Committed offsets in the last translation by action, such as unchanged, active there or refused.",
        label="action",
    )
    left_alone: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    untranslated: int = gauge(
        "shoal_consumer_groups_untranslated",
        "Consumer groups of which no offset is translated, such as streams groups, and groups that the "
        "mirror may not read. Share groups and the groups of mirrors do not count.",
        initial=0,
    )
    failure: str = ""

    def to_json_object(self, now: float) -> dict[str, Any]:
        """Return the state for progress, page and reports."""
        values = asdict(self)
        del values["untranslated"]
        at = values.pop("at")
        return {"age_s": None if at is None else max(0.0, now - at), **values}


#: The phases before the copying.
_STARTING = {each.value for each in Phase} - {Phase.COPYING.value, Phase.STOPPING.value}


def line(progress: Progress) -> str:
    """Return ``1 stopped, 2 waiting, 13/16 up to date, lag 200 records``, or ``finding positions, 0:12``."""
    if progress.phase in _STARTING:
        return f"{progress.phase}, {clock(progress.phase_s)}"
    return ", ".join(_parts(progress))


def _parts(progress: Progress) -> Iterator[str]:
    if progress.phase == Phase.STOPPING.value:
        yield "stopping"
    for name in progress.clusters_down:
        yield f"{name} does not answer"
    if progress.stopped:
        yield f"{len(progress.stopped):,} stopped"
    if progress.waiting:
        yield f"{len(progress.waiting):,} waiting"
    for state in ("behind", "unknown"):
        if count := progress.states.get(state):
            yield f"{count:,} {state}"
    yield f"{progress.states.get('up to date', 0):,}/{progress.partitions:,} up to date"
    yield f"lag {'' if progress.lag_is_known else 'at least '}{progress.lag_records:,} records"
    if progress.held_back_records:
        yield f"{progress.held_back_records:,} in open transactions"
    yield f"{progress.records_per_s:,.0f} records/s"
    yield f"{progress.bytes_per_s / 1e6:,.1f} MB/s"
    if progress.remaining_s is not None and progress.lag_records:
        yield f"{clock(progress.remaining_s)} left"


def clock(seconds: float) -> str:
    """Return ``1:02``, or with hours ``1:02:03``."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
