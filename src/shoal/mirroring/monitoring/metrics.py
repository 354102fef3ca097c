"""
The registry of a mirror: filled by the tasks' reports, read by all views.

Counts are per partition and only grow, so that progress, ``--json``, the page and Prometheus have the same
numbers. Totals of counts move with each report; other totals are made when they are asked for, once for each
change.
"""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import PartitionStopped
from ...topic_partition import TopicPartition
from ..model.acknowledged import AcknowledgedRun
from ..model.counts import Counted
from ..model.follow_options import Follower
from ..model.groups_status import GroupsStatus
from ..model.incidents import IncidentKind
from ..model.processes import ProcessRole, ProcessUsage
from ..model.progress import ClusterSilence, HeldBack, PartitionIncident, Phase, Progress, lost_of
from ..model.reports import CopyReport, ProcessReport, TaskReport
from ..model.state import FollowRound, MirrorState, PartitionState, PartitionStatus
from ..model.steering import SteeringStatus
from .partition_metrics import PartitionMetrics

__all__ = ["Metrics", "PartitionMetrics", "PartitionStatus"]

#: The newest incidents are kept; older ones are only counted.
_KEPT_INCIDENTS = 100

#: Rates are averages over this time.
_RATE_WINDOW_S = 10.0

#: A worker without a report for this long has ended: Spark ends idle ones after a minute.
_WORKER_SILENCE_S = 300.0


@dataclass(slots=True)
class _Sums:
    """The totals over all partitions that are no counts, at one version."""

    version: int
    states: Counter[PartitionStatus] = field(default_factory=Counter)
    stopped: dict[str, PartitionStopped] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    held_back: dict[str, HeldBack] = field(default_factory=dict)
    held_back_records: int = 0
    lag_records: int = 0
    to_copy: int = 0
    is_lag_known: bool = False
    unmirrored_since: float | None = None

    def add(self, name: TopicPartition, row: PartitionMetrics, silence: str | None) -> None:
        """Add a partition; with a silence, it waits for that."""
        state, lag = row.state, row.lag_records
        reason = row.waits_for or silence
        if row.stopped is not None:
            self.stopped[str(name)] = row.stopped
        elif reason is not None:
            state = PartitionStatus.WAITING
            self.waiting[str(name)] = reason
        self.states[state] += 1
        if lag is not None:
            self.is_lag_known = True
            self.lag_records += lag
            self.to_copy += 0 if row.stopped else lag
        if row.held_back_since is not None:
            self.held_back[str(name)] = HeldBack(row.held_back, row.held_back_since)
        self.held_back_records += row.held_back
        since = row.unmirrored_since
        if since is not None and (self.unmirrored_since is None or since < self.unmirrored_since):
            self.unmirrored_since = since

    def lag_s(self, now: float) -> float | None:
        """Return the largest lag in time; None if none is known."""
        if self.unmirrored_since is not None:
            return max(0.0, now - self.unmirrored_since)
        return 0.0 if self.is_lag_known else None


class Metrics:
    """
    The registry. All methods may be called from any thread.

    Attributes:
        task_cpu_s: CPU seconds of all tasks.
        task_peak_rss_bytes: The largest resident memory of a task's process.
        engines: How tasks run the inner loops: ``native``, ``Python``, or both on machines that differ.
        followed: The last round over each kind of settings; none of what was never compared.
        steering: How the mirror is steered; None if nothing steers it.
        groups: The state of the consumer groups that follow the records; None if none do.
        last_report_at: Unix time of the last report of a task; None before the first.

    """

    def __init__(
        self,
        on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None = None,
        *,
        once: bool = False,
    ) -> None:
        """
        Start without partitions.

        Args:
            on_run: Called with each acknowledged run, from the threads that receive reports.
            once: Whether the mirror ends when everything is copied.
        """
        self.followed: dict[Follower, FollowRound] = {}
        self.steering: SteeringStatus | None = None
        self.groups: GroupsStatus | None = None
        self.last_report_at: float | None = None
        self.task_cpu_s = 0.0
        self.task_peak_rss_bytes = 0
        self.engines: frozenset[str] = frozenset()
        self._on_run = on_run
        self._once = once
        self._phase = Phase.CHECKING
        self._started = self._phase_began = time.monotonic()
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        #: Partitions that were removed: a late report has counts that are in the totals.
        self._gone: dict[TopicPartition, PartitionMetrics] = {}
        self._counted = Counted()
        self._version = 0
        self._sums = _Sums(-1)
        self._samples: deque[tuple[float, int, int]] = deque([(self._started, 0, 0)])
        self._incidents: deque[PartitionIncident] = deque()
        self._incident_counts: Counter[str] = Counter({each.value: 0 for each in IncidentKind})
        self._incidents_before = 0
        self._lost_before = 0
        self._reported: tuple[float, float] | None = None
        self._workers: dict[str, ProcessUsage] = {}
        self._clusters: Mapping[str, ClusterSilence | None] = {}
        self._builds = {importlib.metadata.version("shoal"): 1}

    # Reports of the mirror and its tasks

    def enter(self, phase: Phase) -> None:
        """Enter a phase. Stopping is the last one: later calls have no effect."""
        with self._lock:
            self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        if phase is not self._phase and self._phase is not Phase.STOPPING:
            self._phase = phase
            self._phase_began = time.monotonic()

    def expect(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        held_back: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """
        Add partitions before a task reports them.

        Args:
            positions: The next offset to mirror, by partition. A task's own report takes precedence.
            ends: The end of the records to mirror, by partition.
            held_back: The number of offsets behind these ends, in open transactions.

        """
        held_back = held_back or {}
        now = time.time()
        with self._lock:
            for partition, end in ends.items():
                known = self._known(partition)
                expected = known.expecting(positions.get(partition), end, held_back.get(partition), now)
                self._set(partition, expected)

    def try_again(self, partitions: Iterable[TopicPartition], accepted: IncidentKind | None = None) -> None:
        """Mark stopped partitions as retried: they count as stopped until they have moved."""
        with self._lock:
            for partition in partitions:
                known = self._partitions.get(partition)
                if known is not None and known.stopped is not None:
                    self._set(partition, replace(known, is_tried_again=True, accepted=accepted))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that another mirror has taken; their counts stay in the totals."""
        with self._lock:
            for partition in partitions:
                known = self._partitions.pop(partition, None)
                if known is not None:
                    self._gone[partition] = PartitionMetrics(lives=known.lives)
            self._version += 1

    def apply(self, report: TaskReport) -> None:
        """Add a report."""
        monotonic, now = time.monotonic(), time.time()
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
        self.task_peak_rss_bytes = max(self.task_peak_rss_bytes, process.peak_rss_bytes)
        self.engines |= {"native" if process.is_native else "Python"}
        self.last_report_at = now
        known = self._workers.get(process.name)
        cpu_s = process.cpu_s + (known.cpu_s if known else 0.0)
        usage = ProcessUsage(process.name, ProcessRole.WORKER, cpu_s, process.rss_bytes, now)
        # Spark starts new workers for months, so ended ones are removed.
        self._workers = {
            name: each
            for name, each in {**self._workers, process.name: usage}.items()
            if each.last_report_at >= now - _WORKER_SILENCE_S
        }

    def _apply_partition(self, report: CopyReport, process: str | None, now: float) -> None:
        partition = report.partition
        for each in report.counters.incidents:
            self._add(
                PartitionIncident(str(partition), each.kind.value, each.reason, each.lost, each.continued)
            )
        before = self._known(partition)
        after = before.after(report, process, now)
        if after.counts is not before.counts:
            self._counted = self._counted.moved(before.counts, after.counts)
        self._set(partition, after)

    def _known(self, partition: TopicPartition) -> PartitionMetrics:
        return self._partitions.get(partition) or self._gone.get(partition) or PartitionMetrics()

    def _set(self, partition: TopicPartition, metrics: PartitionMetrics) -> None:
        if metrics != self._partitions.get(partition):  # a task may report the same again
            self._version += 1
        self._partitions[partition] = metrics

    def count(self, incident: PartitionIncident) -> None:
        """Count an incident that is in no report."""
        with self._lock:
            self._add(incident)

    def _add(self, incident: PartitionIncident) -> None:
        """Count an incident, and keep the newest: there may be thousands of foreign batches."""
        self._incident_counts[incident.kind] += 1
        self._incidents.append(incident)
        if len(self._incidents) > _KEPT_INCIDENTS:
            oldest = self._incidents.popleft()
            self._incidents_before += 1
            self._lost_before += lost_of(oldest)

    def set_clusters(self, clusters: Mapping[str, ClusterSilence | None]) -> None:
        """Set which of the clusters that were looked at do not answer; None for one that does."""
        with self._lock:
            if clusters != self._clusters:
                self._clusters = dict(clusters)
                self._version += 1

    def set_groups(self, status: GroupsStatus) -> None:
        """Set the state of the consumer groups that follow the records."""
        self.groups = status

    # Values for views

    @property
    def phase(self) -> Phase:
        """The phase that the mirror is in."""
        return self._phase

    @property
    def phase_s(self) -> float:
        """Seconds since the mirror entered its phase."""
        return time.monotonic() - self._phase_began

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
            return list(self._summed().stopped.values())

    def partitions(self) -> dict[TopicPartition, PartitionMetrics]:
        """Return the current metrics of all partitions, as tasks have reported them."""
        with self._lock:
            return dict(self._partitions)

    def workers(self) -> list[ProcessUsage]:
        """Return the usage of the tasks' processes with a recent report."""
        oldest = time.time() - _WORKER_SILENCE_S
        return [each for each in self._workers.values() if each.last_report_at >= oldest]

    def progress(self) -> Progress:
        """Return the current progress of the mirror."""
        with self._lock:
            return self._progress()

    def state(self, processes: Sequence[ProcessUsage]) -> MirrorState:
        """Return the whole state; while a cluster does not answer, all partitions wait for it."""
        now = time.time()
        with self._lock:
            progress, silence = self._progress(), self._silence
            rows = list(self._partitions.items())
            incidents = dict(self._incident_counts)
        return MirrorState(
            progress=progress,
            partitions=[_shown(name, row, silence, now) for name, row in rows],
            processes=processes,
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
        """The silence that partitions wait for; None if all clusters answer."""
        return next((each.sentence for each in self._clusters.values() if each is not None), None)

    def _summed(self) -> _Sums:
        if self._sums.version != self._version:
            sums, silence = _Sums(self._version), self._silence
            for name, row in self._partitions.items():
                sums.add(name, row, silence)
            self._sums = sums
        return self._sums

    def _progress(self) -> Progress:
        records_per_s, bytes_per_s = self._rates()
        sums, now = self._summed(), time.monotonic()
        return Progress(
            **self._counted.counts(),
            elapsed_s=now - self._started,
            partitions=len(self._partitions),
            states={state.value: sums.states[state] for state in PartitionStatus},
            stopped={name: each.reason for name, each in sums.stopped.items()},
            waiting=dict(sums.waiting),
            records_per_s=records_per_s,
            bytes_per_s=bytes_per_s,
            lag_records=sums.lag_records,
            lag_s=sums.lag_s(time.time()),
            remaining_s=sums.to_copy / records_per_s if records_per_s > 0 else None,
            incidents=tuple(self._incidents),
            incidents_before=self._incidents_before,
            lost_before=self._lost_before,
            phase=self._phase.value,
            phase_s=now - self._phase_began,
            once=self._once,
            held_back_records=sums.held_back_records,
            held_back=dict(sums.held_back),
            consumer_groups=None if self.groups is None else self.groups.to_json_object(time.time()),
            clusters_down={name: each for name, each in self._clusters.items() if each is not None},
        )

    def _rates(self) -> tuple[float, float]:
        now, counted = time.monotonic(), self._counted
        self._samples.append((now, counted.records, counted.bytes_out))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_WINDOW_S:
            self._samples.popleft()
        then, records_then, bytes_then = self._samples[0]
        elapsed = max(now - then, 1e-3)
        return (counted.records - records_then) / elapsed, (counted.bytes_out - bytes_then) / elapsed


def _shown(name: TopicPartition, row: PartitionMetrics, silence: str | None, now: float) -> PartitionState:
    stopped = row.stopped
    reason = stopped.reason if stopped else row.waits_for or silence
    is_waiting = stopped is None and reason is not None
    return PartitionState(
        name.topic,
        name.partition,
        PartitionStatus.WAITING if is_waiting else row.state,
        reason,
        row.process,
        row.held_back_since,
        row.counts,
        row.lag_records,
        row.held_back,
        row.lag_s(now),
        row.committed_at,
        is_waiting,
        stopped is not None,
    )
