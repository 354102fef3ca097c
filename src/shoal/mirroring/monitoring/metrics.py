"""
The registry of a mirror: filled by the tasks' reports, read by all views.

Counts are per partition and only grow, so that progress, ``--json``, the page and Prometheus have the same
numbers. Totals of counts move with each report; other totals are made when they are asked for.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ...errors import PartitionStopped
from ...timing import SYSTEM_CLOCK, Clock
from ...topic_partition import TopicPartition
from ..model.acknowledged import AcknowledgedRun
from ..model.follow_options import Follower
from ..model.incidents import Incident, IncidentKind
from ..model.partition import PartitionState, PartitionStatus
from ..model.progress import (
    ClusterSilence,
    GroupsStatus,
    HeldBack,
    Phase,
    ProcessRole,
    ProcessUsage,
    Progress,
)
from ..model.reports import CopyReport, Counted, ProcessReport, TaskReport
from ..model.state import FollowRound, MirrorState
from ..model.steering import SteeringStatus

__all__ = ["Metrics"]

#: The newest incidents are kept; older ones are only counted.
_KEPT_INCIDENTS = 100

#: Rates are averages over this time.
_RATE_WINDOW_S = 10.0

#: A worker without a report for this long has ended: Spark ends idle ones after a minute, and an idle task
#: reports every 15 seconds.
_WORKER_SILENCE_S = 60.0


class Metrics:
    """
    The registry. All methods may be called from any thread.

    Attributes:
        clock: The clock of all its times.
        task_cpu_s: CPU seconds of all tasks.
        engines: How tasks run the inner loops: ``native``, ``Python``, or both on machines that differ.
        followed: The last round over each kind of settings; none of what was never compared.
        steering: How the mirror is steered.
        groups: The state of the consumer groups that follow the records; None if none do.
        last_report_at: Unix time of the last report of a task; None before the first.

    """

    def __init__(
        self,
        on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None = None,
        *,
        once: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """
        Start without partitions.

        Args:
            on_run: Called with each acknowledged run, from the threads that receive reports.
            once: Whether the mirror ends when everything is copied.
            clock: The clock of all its times.
        """
        self.clock = clock
        self.followed: dict[Follower, FollowRound] = {}
        self.steering = SteeringStatus()
        self.groups: GroupsStatus | None = None
        self.last_report_at: float | None = None
        self.task_cpu_s = 0.0
        self.engines: frozenset[str] = frozenset()
        self._on_run = on_run
        self._once = once
        self._phase = Phase.CHECKING
        self._started = self._phase_began = self.clock.monotonic()
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, PartitionState] = {}
        #: Partitions that were removed.
        self._gone: dict[TopicPartition, PartitionState] = {}
        self._counted = Counted()
        self._samples: deque[tuple[float, int, int]] = deque([(self._started, 0, 0)])
        self._incidents: deque[Incident] = deque()
        self._incident_counts: Counter[str] = Counter({each.value: 0 for each in IncidentKind})
        self._lost_before = 0
        self._reported: tuple[float, float] | None = None
        self._workers: dict[str, ProcessUsage] = {}
        self._clusters: Mapping[str, ClusterSilence | None] = {}
        self._tasks_are_silent = False
        self._builds = {importlib.metadata.version("shoal"): 1}

    # Reports of the mirror and its tasks

    def enter(self, phase: Phase) -> None:
        """Enter a phase. Stopping is the last one: later calls have no effect."""
        with self._lock:
            self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        if phase is not self._phase and self._phase is not Phase.STOPPING:
            self._phase = phase
            self._phase_began = self.clock.monotonic()

    def expect(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """
        Add partitions before a task reports them.

        Args:
            positions: The next offset to mirror, by partition. A task's own report takes precedence.
            ends: The end of the records to mirror, by partition.

        """
        now = self.clock.wall()
        with self._lock:
            for partition, end in ends.items():
                known = self._known(partition)
                self._partitions[partition] = known.expecting(positions.get(partition), end, now)

    def try_again(self, partitions: Iterable[TopicPartition], accepted: IncidentKind | None = None) -> None:
        """Mark stopped partitions as retried: they count as stopped until they have moved."""
        with self._lock:
            for partition in partitions:
                known = self._partitions.get(partition)
                if known is not None and known.stopped is not None:
                    self._partitions[partition] = replace(known, is_tried_again=True, accepted=accepted)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that another mirror has taken; their counts stay in the totals."""
        with self._lock:
            for partition in partitions:
                known = self._partitions.pop(partition, None)
                if known is not None:
                    self._gone[partition] = known.forgotten()

    def apply(self, report: TaskReport) -> None:
        """Add a report."""
        monotonic, now = self.clock.monotonic(), self.clock.wall()
        process = report.process
        with self._lock:
            if process is not None:  # else the report is the planner's
                self._reported = (self._reported[0] if self._reported else monotonic, monotonic)
                self._enter(Phase.COPYING)
                self._apply_worker(process, now)
            for each in report.partitions:
                self._apply_partition(each, process.name if process else None, now)
        if self._on_run:
            for each in report.partitions:
                for run in each.counters.runs:
                    self._on_run(each.partition, AcknowledgedRun(*run))

    def _apply_worker(self, process: ProcessReport, now: float) -> None:
        self.task_cpu_s += process.cpu_s
        self.engines |= {"native" if process.is_native else "Python"}
        self.last_report_at = now
        known = self._workers.get(process.name)
        cpu_s = process.cpu_s + (known.cpu_s if known else 0.0)
        usage = ProcessUsage(process.name, ProcessRole.WORKER, cpu_s, process.rss_bytes, now)
        # Spark starts new workers for months, so ended ones are removed.
        self._workers = {each.name: each for each in self.workers() if each.name != process.name}
        self._workers[process.name] = usage

    def _apply_partition(self, report: CopyReport, process: str | None, now: float) -> None:
        partition = report.partition
        for each in report.counters.incidents:
            self._add(replace(each, partition=str(partition)))
        before = self._known(partition)
        after = self._partitions[partition] = before.after(report, process, now)
        if after.counts is not before.counts:
            self._counted = self._counted.moved(before.counts, after.counts)

    def _known(self, partition: TopicPartition) -> PartitionState:
        if known := self._partitions.get(partition):
            return known
        gone = self._gone.get(partition, PartitionState(partition, self.clock))
        return replace(gone, silence=self._silence)

    def count(self, incident: Incident) -> None:
        """Count an incident that is in no report."""
        with self._lock:
            self._add(incident)

    def _add(self, incident: Incident) -> None:
        """Count an incident, and keep the newest: there may be thousands of foreign batches."""
        self._incident_counts[incident.kind] += 1
        self._incidents.append(incident)
        if len(self._incidents) > _KEPT_INCIDENTS:
            self._lost_before += self._incidents.popleft().known_loss

    def set_clusters(self, clusters: Mapping[str, ClusterSilence | None]) -> None:
        """Set which of the clusters that were looked at do not answer; None for one that does."""
        with self._lock:
            if clusters != self._clusters:
                self._clusters = dict(clusters)
                self._spread_silence()

    def set_tasks_silent(self, are_silent: bool) -> None:
        """Set whether all partitions wait for a task, since none reports."""
        with self._lock:
            if are_silent != self._tasks_are_silent:
                self._tasks_are_silent = are_silent
                self._spread_silence()

    def _spread_silence(self) -> None:
        silence = self._silence
        self._partitions |= {
            each: replace(row, silence=silence)
            for each, row in self._partitions.items()
            if row.silence != silence
        }

    # Values for views

    @property
    def phase(self) -> Phase:
        """The phase that the mirror is in."""
        return self._phase

    @property
    def phase_s(self) -> float:
        """Seconds since the mirror entered its phase."""
        return self.clock.monotonic() - self._phase_began

    @property
    def clusters(self) -> Mapping[str, ClusterSilence | None]:
        """The clusters that were looked at, each with its silence; None if it answers."""
        return self._clusters

    @property
    def copying_s(self) -> float | None:
        """Seconds between the first and the last report of any task; None before the first."""
        return self._reported[1] - self._reported[0] if self._reported else None

    def stopped(self) -> list[PartitionStopped]:
        """Return the reasons of all stopped partitions."""
        with self._lock:
            return [each.stopped for each in self._partitions.values() if each.stopped]

    @property
    def has_work(self) -> bool:
        """Whether a partition is not stopped."""
        return any(each.stopped is None for each in self.partitions().values())

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        """Return the current state of all partitions."""
        with self._lock:
            return dict(self._partitions)

    def workers(self) -> list[ProcessUsage]:
        """Return the usage of the tasks' processes with a recent report."""
        oldest = self.clock.wall() - _WORKER_SILENCE_S
        return [each for each in self._workers.values() if each.last_report_at >= oldest]

    def progress(self) -> Progress:
        """Return the current progress of the mirror."""
        with self._lock:
            return self._progress()

    def state(self, processes: Sequence[ProcessUsage]) -> MirrorState:
        """Return the whole state, with these processes and those of the tasks."""
        with self._lock:
            progress = self._progress()
            partitions = list(self._partitions.values())
            incidents = dict(self._incident_counts)
        return MirrorState(
            progress=progress,
            partitions=partitions,
            processes=[*processes, *self.workers()],
            followed={follower.value: done for follower, done in list(self.followed.items())},
            groups=self.groups,
            steering=self.steering,
            states=progress.states,
            incidents=incidents,
            clusters_up={name: each is None for name, each in self._clusters.items()},
            last_report_at=self.last_report_at,
            builds=self._builds,
        )

    @property
    def _silence(self) -> str | None:
        """The silence that partitions wait for; None if clusters and tasks answer."""
        of_clusters = (each.sentence for each in self._clusters.values() if each is not None)
        return next(of_clusters, "a task" if self._tasks_are_silent else None)

    def _progress(self) -> Progress:
        now, (records_per_s, bytes_per_s) = self.clock.monotonic(), self._rates()
        rows = self._partitions
        # Of ten thousand partitions, most are idle.
        idle = PartitionStatus.UP_TO_DATE
        others = {
            name: each
            for name, each in rows.items()
            if each.state is not idle or each.held_back_since is not None
        }
        states = Counter(each.state for each in others.values())
        states[idle] += len(rows) - len(others)
        to_copy = sum(each.lag_records or 0 for each in others.values() if not each.stopped)
        reasons = {
            state: {str(name): each.reason or "" for name, each in others.items() if each.state is state}
            for state in (PartitionStatus.STOPPED, PartitionStatus.WAITING)
        }
        ages = [age for each in others.values() if (age := each.lag_s) is not None]
        return Progress(
            **self._counted.counts(),
            elapsed_s=now - self._started,
            partitions=len(rows),
            states={state.value: states[state] for state in PartitionStatus},
            stopped=reasons[PartitionStatus.STOPPED],
            waiting=reasons[PartitionStatus.WAITING],
            records_per_s=records_per_s,
            bytes_per_s=bytes_per_s,
            lag_records=sum(each.lag_records or 0 for each in others.values()),
            lag_s=max(ages, default=0.0 if states[idle] else None),
            remaining_s=to_copy / records_per_s if records_per_s > 0 else None,
            incidents=tuple(self._incidents),
            incidents_before=sum(self._incident_counts.values()) - len(self._incidents),
            lost_before=self._lost_before,
            phase=self._phase.value,
            phase_s=now - self._phase_began,
            once=self._once,
            held_back_records=sum(each.held_back_records for each in others.values()),
            held_back={
                str(name): HeldBack(each.held_back_records, each.held_back_since)
                for name, each in others.items()
                if each.held_back_since is not None
            },
            consumer_groups=None if self.groups is None else self.groups.to_json_object(self.clock.wall()),
            clusters_down={name: each for name, each in self._clusters.items() if each is not None},
        )

    def _rates(self) -> tuple[float, float]:
        now, counted = self.clock.monotonic(), self._counted
        self._samples.append((now, counted.records, counted.bytes_out))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_WINDOW_S:
            self._samples.popleft()
        then, records_then, bytes_then = self._samples[0]
        elapsed = max(now - then, 1e-3)
        return (counted.records - records_then) / elapsed, (counted.bytes_out - bytes_then) / elapsed
