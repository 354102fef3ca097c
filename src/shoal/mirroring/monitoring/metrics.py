"""
The registry of a mirror's metrics: filled by the tasks' reports, read by progress, page and Prometheus.

Counts are per partition and only grow, so that progress, ``--json``, the page and Prometheus have the same
numbers. The registry updates totals with each report, so a reader does not iterate over idle partitions.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ...errors import PartitionStopped
from ...topic_partition import TopicPartition
from ..model.groups_status import GroupsStatus
from ..model.incidents import IncidentKind
from ..model.offset_map import AcknowledgedRun
from ..model.processes import ProcessRole, ProcessUsage
from ..model.progress import ClusterSilence, HeldBack, PartitionIncident, Phase, Progress, lost_of
from ..model.reports import CopyReport, ProcessReport, TaskReport
from ..model.steering_status import SteeringStatus
from .followed import Followed
from .partition_metrics import DROPS, PartitionMetrics, PartitionStatus

__all__ = ["Metrics", "PartitionMetrics", "PartitionStatus"]

#: The newest incidents are kept; older ones are only counted.
_KEPT_INCIDENTS = 100

#: Rates are averages over this time.
_RATE_WINDOW_S = 10.0

#: A worker without a report for this long has ended: Spark ends idle ones after a minute.
_WORKER_SILENCE_S = 300.0

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Worker:
    cpu_s: float = 0.0
    rss_bytes: int = 0
    reported_at: float = 0.0


class Metrics:
    """
    The registry. All methods may be called from any thread.

    Attributes:
        task_cpu_s: CPU seconds of all tasks.
        task_peak_rss_bytes: The largest resident memory of a task's process.
        followed: The last rounds over what follows the records.
        steering: How the mirror is steered; None if nothing steers it.

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
        self._on_run = on_run
        self._once = once
        self._phase = Phase.CHECKING
        self._phase_began = time.monotonic()
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        self._version = 0
        self._samples: deque[tuple[float, int, int]] = deque([(self._started, 0, 0)])
        self._incidents: deque[PartitionIncident] = deque()
        self._incident_counts: Counter[str] = Counter()
        self._incidents_before = 0
        self._lost_before = 0
        self._bytes_in = 0
        self._reported: tuple[float, float] | None = None
        self._workers: dict[str, _Worker] = {}
        self._last_report_at: float | None = None
        self.followed = Followed()
        self.steering: SteeringStatus | None = None
        self.task_cpu_s = 0.0
        self.task_peak_rss_bytes = 0
        # Totals over _partitions.
        self._records = self._bytes_out = self._retries = self._lag_records = 0
        self._known = self._held_back = self._to_copy = 0
        self._states: Counter[PartitionStatus] = Counter()
        self._decisions: Counter[str] = Counter()
        self._stopped: dict[str, PartitionStopped] = {}
        self._waiting: dict[str, str] = {}
        self._unmirrored_since: dict[TopicPartition, float] = {}
        self._held_back_since: dict[str, tuple[int, float]] = {}
        self._groups: GroupsStatus | None = None
        #: The clusters that were looked at, each with its silence; None if it answers.
        self._clusters: Mapping[str, ClusterSilence | None] = {}

    def enter(self, phase: Phase) -> None:
        """Enter a phase. Stopping is the last one: later calls have no effect."""
        with self._lock:
            self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        if phase is not self._phase and self._phase is not Phase.STOPPING:
            self._phase = phase
            self._phase_began = time.monotonic()

    @property
    def phase(self) -> Phase:
        """The phase that the mirror is in."""
        with self._lock:
            return self._phase

    @property
    def phase_s(self) -> float:
        """Seconds since the mirror entered its phase."""
        with self._lock:
            return time.monotonic() - self._phase_began

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
                known = self._partitions.get(partition, PartitionMetrics())
                expected = known.expecting(positions.get(partition), end, held_back.get(partition), now)
                self._set(partition, expected)

    def try_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark stopped partitions as retried: they count as stopped until they have moved."""
        with self._lock:
            for partition in partitions:
                known = self._partitions.get(partition)
                if known is not None and known.stopped is not None:
                    self._set(partition, replace(known, is_tried_again=True))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that another mirror has taken; their records stay in the totals."""
        with self._lock:
            for partition in partitions:
                self._drop(partition)

    def apply(self, report: TaskReport) -> None:
        """Add a report."""
        monotonic, now = time.monotonic(), time.time()
        process = report.process
        with self._lock:
            self._bytes_in += report.bytes_in
            if process is not None:  # else the report is the planner's
                self._reported = (self._reported[0] if self._reported else monotonic, monotonic)
                self._enter(Phase.COPYING)
                self.task_cpu_s += process.cpu_s
                self.task_peak_rss_bytes = max(self.task_peak_rss_bytes, process.peak_rss_bytes)
                self._apply_worker(process, now)
            for each in report.partitions:
                self._apply_partition(each, process.name if process else None, now)
        if self._on_run:
            for each in report.partitions:
                for run in each.counters.runs:
                    self._on_run(each.partition, AcknowledgedRun(*run))

    def _apply_worker(self, process: ProcessReport, now: float) -> None:
        worker = self._workers.setdefault(process.name, _Worker())
        worker.cpu_s += process.cpu_s
        worker.rss_bytes = process.rss_bytes
        worker.reported_at = self._last_report_at = now
        # Spark starts new workers for months, so ended ones are removed.
        gone = [name for name, each in self._workers.items() if each.reported_at < now - _WORKER_SILENCE_S]
        for name in gone:
            del self._workers[name]

    def _apply_partition(self, report: CopyReport, process: str | None, now: float) -> None:
        partition, counters = report.partition, report.counters
        self._records += counters.records
        self._bytes_out += counters.bytes_out
        self._retries += counters.retries
        self._decisions.update({each.value: count for each, count in counters.decisions.items()})
        for each in counters.incidents:
            self._add(
                PartitionIncident(str(partition), each.kind.value, each.reason, each.lost, each.continued)
            )
        self._set(partition, self._partitions.get(partition, PartitionMetrics()).after(report, process, now))

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

    def _set(self, partition: TopicPartition, metrics: PartitionMetrics) -> None:
        """Set a partition's metrics, and update the totals."""
        before = self._partitions.get(partition)
        self._partitions[partition] = metrics
        if metrics == before:
            return  # a partition that moves is reported again by its next task
        if before is not None:
            self._count(before, -1)
        self._count(metrics, 1)
        state = metrics.state
        _keep(self._stopped, str(partition), metrics.stopped)
        _keep(self._waiting, str(partition), metrics.waits_for if state is PartitionStatus.WAITING else None)
        _keep(self._unmirrored_since, partition, metrics.unmirrored_since)
        since = metrics.held_back_since
        _keep(self._held_back_since, str(partition), None if since is None else (metrics.held_back, since))
        self._version += 1

    def _drop(self, partition: TopicPartition) -> None:
        before = self._partitions.pop(partition, None)
        if before is not None:
            self._count(before, -1)
            for states in (self._stopped, self._waiting, self._held_back_since):
                states.pop(str(partition), None)
            self._unmirrored_since.pop(partition, None)
            self._version += 1

    def _count(self, metrics: PartitionMetrics, times: int) -> None:
        self._known += times * (metrics.lag_records is not None)
        self._states[metrics.state] += times
        self._lag_records += times * (metrics.lag_records or 0)
        if not metrics.stopped:
            self._to_copy += times * (metrics.lag_records or 0)
        self._held_back += times * metrics.held_back

    @property
    def version(self) -> int:
        """Version counter: incremented on each change to a partition's metrics, except its process."""
        with self._lock:
            return self._version

    def partitions(self) -> dict[TopicPartition, PartitionMetrics]:
        """Return the current metrics of all partitions, as tasks have reported them."""
        with self._lock:
            return dict(self._partitions)

    def shown_partitions(self) -> dict[TopicPartition, PartitionMetrics]:
        """Return the same for users: while a cluster does not answer, all partitions wait for it."""
        with self._lock:
            silence = self._first_silence
            if silence is None:
                return dict(self._partitions)
            return {name: each.waiting_at_least(silence) for name, each in self._partitions.items()}

    def set_clusters(self, clusters: Mapping[str, ClusterSilence | None]) -> None:
        """Set which of the clusters that were looked at do not answer; None for one that does."""
        with self._lock:
            if clusters != self._clusters:
                self._clusters = dict(clusters)
                self._version += 1

    @property
    def clusters(self) -> Mapping[str, ClusterSilence | None]:
        """The clusters that were looked at, each with its silence; None if it answers."""
        with self._lock:
            return self._clusters

    @property
    def _first_silence(self) -> str | None:
        """The silence that partitions wait for; None if all clusters answer."""
        return next((each.sentence for each in self._clusters.values() if each is not None), None)

    def workers(self) -> list[ProcessUsage]:
        """Return the usage of the tasks' processes with a recent report."""
        oldest = time.time() - _WORKER_SILENCE_S
        with self._lock:
            return [
                ProcessUsage(name, ProcessRole.WORKER, each.cpu_s, each.rss_bytes, each.reported_at)
                for name, each in self._workers.items()
                if each.reported_at >= oldest
            ]

    @property
    def last_report_at(self) -> float | None:
        """Unix time of the last report of a task; None before the first."""
        with self._lock:
            return self._last_report_at

    def incidents(self) -> dict[IncidentKind, int]:
        """Return the number of incidents by kind."""
        with self._lock:
            return {kind: self._incident_counts[kind.value] for kind in IncidentKind}

    @property
    def copying_s(self) -> float | None:
        """Seconds between the first and the last report of any task; None before the first."""
        return self._reported[1] - self._reported[0] if self._reported else None

    @property
    def waiting(self) -> bool:
        """Whether any partition waits for a temporary problem to end."""
        with self._lock:
            return bool(self._waiting)

    def stopped(self) -> list[PartitionStopped]:
        """Return the reasons of all stopped partitions."""
        with self._lock:
            return list(self._stopped.values())

    def set_groups(self, status: GroupsStatus) -> None:
        """Set the state of the consumer groups that follow the records."""
        with self._lock:
            self._groups = status

    @property
    def groups(self) -> GroupsStatus | None:
        """The state of the consumer groups that follow the records; None if none do."""
        with self._lock:
            return self._groups

    def progress(self) -> Progress:
        """Return the current progress of the mirror."""
        with self._lock:
            return self._progress()

    def _progress(self) -> Progress:
        records_per_s, bytes_per_s = self._rates()
        states, waiting = self._states_and_waiting()
        return Progress(
            elapsed_s=time.monotonic() - self._started,
            partitions=len(self._partitions),
            done=states[PartitionStatus.UP_TO_DATE],
            states={state.value: states[state] for state in PartitionStatus},
            stopped={name: each.reason for name, each in self._stopped.items()},
            waiting=waiting,
            records=self._records,
            batches=sum(count for name, count in self._decisions.items() if name not in DROPS),
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            records_per_s=records_per_s,
            bytes_per_s=bytes_per_s,
            lag_records=self._lag_records,
            lag_s=self._lag_s(),
            remaining_s=self._to_copy / records_per_s if records_per_s > 0 else None,
            decisions=dict(self._decisions),
            retries=self._retries,
            incidents=tuple(self._incidents),
            incidents_before=self._incidents_before,
            lost_before=self._lost_before,
            phase=self._phase.value,
            phase_s=time.monotonic() - self._phase_began,
            once=self._once,
            held_back_records=self._held_back,
            held_back={
                partition: HeldBack(records, since)
                for partition, (records, since) in self._held_back_since.items()
            },
            consumer_groups=None if self._groups is None else self._groups.to_json_object(time.time()),
            clusters_down={name: each for name, each in self._clusters.items() if each is not None},
        )

    def _states_and_waiting(self) -> tuple[Mapping[PartitionStatus, int], dict[str, str]]:
        """Return the states of :meth:`shown_partitions`, and why partitions wait."""
        silence = self._first_silence
        if silence is None:
            return self._states, dict(self._waiting)
        stopped = self._states[PartitionStatus.STOPPED]
        waiting = {
            str(name): each.waits_for or silence
            for name, each in self._partitions.items()
            if each.state is not PartitionStatus.STOPPED
        }
        return Counter({PartitionStatus.STOPPED: stopped, PartitionStatus.WAITING: len(waiting)}), waiting

    def _lag_s(self) -> float | None:
        if self._unmirrored_since:
            return max(0.0, time.time() - min(self._unmirrored_since.values()))
        return 0.0 if self._known else None

    def _rates(self) -> tuple[float, float]:
        now = time.monotonic()
        self._samples.append((now, self._records, self._bytes_out))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_WINDOW_S:
            self._samples.popleft()
        then, records_then, bytes_then = self._samples[0]
        elapsed = max(now - then, 1e-3)
        return (self._records - records_then) / elapsed, (self._bytes_out - bytes_then) / elapsed


def _keep(values: dict[_Key, _Value], key: _Key, value: _Value | None) -> None:
    """Set a key of a dict, or remove it if the value is None."""
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
