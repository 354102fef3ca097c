"""
The one registry of what a mirror does: fed by the tasks' reports, read by whoever shows it.

Counts are per partition and only grow, so that progress, ``--json`` and
whatever else shows them speak of the same numbers.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..client.metadata import TopicPartition
from ..errors import PartitionStopped
from ..records import Decision
from .progress import PartitionIncident, Progress
from .runs import AcknowledgedRun

__all__ = ["Metrics", "PartitionMetrics"]

#: Rates are those of the last so many seconds.
_RATE_WINDOW_S = 10.0


@dataclass(slots=True)
class PartitionMetrics:
    """
    One partition's counts since the start.

    Attributes:
        source_offset: The next to mirror; None until a task has found out.
        end_offset: Up to where there is something to copy.
    """

    source_offset: int | None = None
    end_offset: int = 0
    records: int = 0
    bytes_out: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    waiting_for: str | None = None
    stopped: PartitionStopped | None = None

    @property
    def lag_records(self) -> int:
        return max(0, self.end_offset - self.source_offset) if self.source_offset is not None else 0

    @property
    def is_done(self) -> bool:
        return self.source_offset is not None and self.source_offset >= self.end_offset


class Metrics:
    """The registry. All methods may be called from any thread."""

    def __init__(self, on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None = None) -> None:
        """
        Args:
            on_run: Told of each acknowledged run, from the threads that hear the tasks.
        """
        self._on_run = on_run
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        self._samples: deque[tuple[float, int, int]] = deque([(self._started, 0, 0)])
        self._incidents: list[PartitionIncident] = []
        self._bytes_in = 0
        self._heard: tuple[float, float] | None = None
        self.task_cpu_s = 0.0
        self.task_peak_rss_bytes = 0

    def expect(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Count partitions in before a task reports of them: where each goes on, and its end."""
        with self._lock:
            for partition, end in ends.items():
                metrics = self._partitions.setdefault(partition, PartitionMetrics())
                metrics.source_offset = positions.get(partition)
                metrics.end_offset = max(metrics.end_offset, end)

    def apply(self, report: Mapping[str, Any]) -> None:
        """Add a task's report (its shape: ``lane._report``)."""
        now = time.monotonic()
        with self._lock:
            self._heard = (self._heard[0] if self._heard else now, now)
            self._bytes_in += report["bytes_in"]
            self.task_cpu_s += report["cpu_s"]
            self.task_peak_rss_bytes = max(self.task_peak_rss_bytes, report["peak_rss_bytes"])
            for each in report["partitions"]:
                self._apply_partition(each)
        if self._on_run:
            for each in report["partitions"]:
                for run in each["runs"]:
                    self._on_run(TopicPartition(each["topic"], each["partition"]), AcknowledgedRun(*run))

    def _apply_partition(self, report: Mapping[str, Any]) -> None:
        partition = TopicPartition(report["topic"], report["partition"])
        metrics = self._partitions.setdefault(partition, PartitionMetrics())
        if report["source_offset"] is not None:
            metrics.source_offset = report["source_offset"]
        metrics.end_offset = max(metrics.end_offset, report["end_offset"])
        metrics.records += report["records"]
        metrics.bytes_out += report["bytes_out"]
        metrics.decisions.update(report["decisions"])
        metrics.retries += report["retries"]
        self._incidents += [PartitionIncident(str(partition), *each) for each in report["incidents"]]
        metrics.waiting_for = report["waiting_for"]
        if report["stopped"]:
            metrics.stopped = PartitionStopped(*partition, *report["stopped"])

    @property
    def copying_s(self) -> float | None:
        """From the first task's first report to the last one's last; None where there was no task."""
        return self._heard[1] - self._heard[0] if self._heard else None

    @property
    def waiting(self) -> bool:
        """Whether any partition waits for something that time can heal."""
        with self._lock:
            return any(each.waiting_for for each in self._partitions.values())

    def stopped(self) -> list[PartitionStopped]:
        with self._lock:
            return [each.stopped for each in self._partitions.values() if each.stopped]

    def progress(self) -> Progress:
        """Return how far the mirror is, now."""
        with self._lock:
            return self._progress()

    def _progress(self) -> Progress:
        partitions = self._partitions
        records = sum(each.records for each in partitions.values())
        bytes_out = sum(each.bytes_out for each in partitions.values())
        decisions: Counter[str] = Counter()
        for each in partitions.values():
            decisions.update(each.decisions)
        records_per_s, bytes_per_s = self._rates(records, bytes_out)
        lag_records = sum(each.lag_records for each in partitions.values() if not each.stopped)
        return Progress(
            elapsed_s=time.monotonic() - self._started,
            partitions=len(partitions),
            done=sum(each.is_done for each in partitions.values()),
            stopped={str(name): each.stopped.reason for name, each in partitions.items() if each.stopped},
            waiting={str(name): each.waiting_for for name, each in partitions.items() if each.waiting_for},
            records=records,
            batches=sum(count for name, count in decisions.items() if not Decision(name).is_drop),
            bytes_in=self._bytes_in,
            bytes_out=bytes_out,
            records_per_s=records_per_s,
            bytes_per_s=bytes_per_s,
            lag_records=lag_records,
            remaining_s=lag_records / records_per_s if records_per_s > 0 else None,
            decisions=dict(decisions),
            retries=sum(each.retries for each in partitions.values()),
            incidents=tuple(self._incidents),
        )

    def _rates(self, records: int, bytes_out: int) -> tuple[float, float]:
        now = time.monotonic()
        self._samples.append((now, records, bytes_out))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_WINDOW_S:
            self._samples.popleft()
        then, records_then, bytes_then = self._samples[0]
        elapsed = max(now - then, 1e-3)
        return (records - records_then) / elapsed, (bytes_out - bytes_then) / elapsed
