"""
The one object that the page shows, live or in a report; ``page.js`` reads it.

The object has no secrets. Its names are those of partitions, processes and the consumer group, and its
sentences are those that the mirror also prints.
"""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ....printable import printable, printable_values
from ....records import Decision
from ....topic_partition import TopicPartition
from ...model.processes import ProcessRole, ProcessUsage
from ...model.progress import LONG_TRANSACTION_S, ClusterSilence, PartitionIncident, Progress, Summary
from ..followed import Followed
from ..partition_metrics import PartitionMetrics, PartitionStatus
from .history import Sample, columns
from .sampler import Sampler

__all__ = ["Ending", "PageData"]

#: The number of partitions on the page unless the user chooses all.
_SLOWEST = 20
#: The limits for reasons why partitions wait or are stopped, and for the partitions named with each.
_REASONS = 200
_NAMED = 20
_INCIDENTS = 200
_TOPICS = 100

#: Rates are averages between two samples this far apart, or less if the page was opened later.
_RATE_WINDOW_S = 10.0
_LEAST_RATE_WINDOW_S = 0.9


@dataclass(frozen=True, slots=True)
class Ending:
    """
    The end of a mirror.

    Attributes:
        good: Whether the mirror ended without a problem.
        sentence: The result in a sentence.
        cpu_s: CPU seconds of all processes; None if only the tasks' reports are known, which lack their
            starts.

    """

    good: bool
    sentence: str
    cpu_s: float | None = None

    @classmethod
    def of(cls, summary: Summary) -> Ending:
        """Return the end of a mirror with a summary."""
        cpu_s = summary.python_cpu_s + summary.jvm_cpu_s
        copied = f"{summary.records:,} records in {summary.batches:,} batches were copied"
        if summary.stopped:
            stopped = f"{len(summary.stopped):,} of {summary.partitions:,} partitions stopped"
            return cls(False, f"{copied}, but {stopped}.", cpu_s)
        if summary.interrupted:
            return cls(
                False, f"{copied}. The mirror was interrupted, and the next run continues there.", cpu_s
            )
        if summary.clusters_down:
            silent = ", and ".join(each.sentence for each in summary.clusters_down.values())
            return cls(False, f"{copied}, but {silent}.", cpu_s)
        if summary.incidents:
            return cls(False, f"{copied}. The mirror continued after incidents.", cpu_s)
        return cls(True, f"{copied}.", cpu_s)

    @classmethod
    def failed(cls, sentence: str) -> Ending:
        """Return the end of a mirror that failed with an error."""
        return cls(False, f"The mirror failed: {sentence}")


@dataclass(frozen=True, slots=True)
class _Look:
    """A sample; two of them make rates."""

    at_s: float
    partitions: Mapping[TopicPartition, PartitionMetrics]
    cpu_s: Mapping[str, float]


class PageData:
    """Makes the object. For all threads."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._looks: deque[_Look] = deque()
        self._lock = threading.Lock()

    def live(self, *, whole: bool, every_partition: bool) -> dict[str, Any]:
        """
        Return the current state of the mirror.

        Args:
            whole: Include the history since the start; else of the last ten minutes.
            every_partition: Include all partitions; else the slowest.

        """
        history = self._sampler.history
        return self._printable_object(history.whole() if whole else history.recent(), every_partition)

    def at_the_end(self, ending: Ending) -> dict[str, Any]:
        """Return the final state of the mirror, for a report, with its peak memory."""
        samples = self._sampler.history.whole()
        data = self._printable_object(samples, every_partition=True)
        data["ending"] = {"good": ending.good, "sentence": printable(ending.sentence)}
        totals = data["totals"]
        totals["rss_bytes"] = max(_rss_bytes(each) for each in samples)
        totals["cpu_s"] = totals["cpu_s"] if ending.cpu_s is None else ending.cpu_s
        return data

    def _printable_object(self, samples: Sequence[Sample], every_partition: bool) -> dict[str, Any]:
        """Return the object with printable texts; the history needs none of that, as it has only numbers."""
        data = self._object(samples, every_partition)
        history = data.pop("history")
        return {**printable_values(data), "history": history}

    def _object(self, samples: Sequence[Sample], every_partition: bool) -> dict[str, Any]:
        now = time.time()
        about, metrics = self._sampler.about, self._sampler.metrics
        progress = metrics.progress()
        processes = self._sampler.processes()
        look = _Look(
            time.monotonic(), metrics.shown_partitions(), {each.name: each.cpu_s for each in processes}
        )
        rates = _Rates(self._earlier(look), look)
        slowest = sorted(look.partitions, key=lambda name: _slowness(look.partitions[name], now))
        shown = slowest if every_partition else slowest[:_SLOWEST]
        return {
            "about": {
                "source": about.source,
                "destination": about.destination,
                "group": about.group,
                "version": importlib.metadata.version("shoal"),
            },
            "started_ms": int(self._sampler.started_at * 1000),
            "now_ms": int(now * 1000),
            "ending": None,
            "warnings": list(about.warnings),
            "totals": _totals(progress, samples[-1], metrics.last_report_at, now),
            "clusters_down": [_silence(each) for each in progress.clusters_down.values()],
            "stopped": _named(progress.stopped),
            "waiting": _named(progress.waiting),
            "held_back": _held_back(progress, now),
            "incidents": _gone_on_from(progress.incidents),
            "decisions": dict(progress.decisions),
            "conversions": _conversions(progress),
            "followed": _followed(metrics.followed, now),
            "steering": [] if metrics.steering is None else metrics.steering.sentences,
            "consumer_groups": None if progress.consumer_groups is None else dict(progress.consumer_groups),
            "partitions": {
                "count": len(slowest),
                "rows": [_partition(name, look.partitions[name], rates, now) for name in shown],
            },
            "topics": _topics(look.partitions),
            "processes": [_process(each, look.partitions, rates) for each in processes],
            "history": columns(samples),
        }

    def _earlier(self, look: _Look) -> _Look | None:
        """Return the sample to compare with, if there is one old enough; keep this one."""
        with self._lock:
            while len(self._looks) > 1 and self._looks[1].at_s <= look.at_s - _RATE_WINDOW_S:
                self._looks.popleft()
            earlier = self._looks[0] if self._looks else None
            if not self._looks or look.at_s - self._looks[-1].at_s >= _LEAST_RATE_WINDOW_S:
                self._looks.append(look)
        if earlier is None or look.at_s - earlier.at_s < _LEAST_RATE_WINDOW_S:
            return None
        # If the page was closed for long, rates start again.
        return earlier if look.at_s - earlier.at_s <= 2 * _RATE_WINDOW_S else None


@dataclass(frozen=True, slots=True)
class _Rates:
    """Rates per second between two samples; None without an earlier one."""

    before: _Look | None
    now: _Look

    def bytes_per_s(self, name: TopicPartition) -> float | None:
        if self.before is None:
            return None
        known = self.before.partitions.get(name, PartitionMetrics())
        return (self.now.partitions[name].bytes_out - known.bytes_out) / self._seconds

    def cores(self, process: str) -> float | None:
        if self.before is None or process not in self.before.cpu_s:
            return None
        return (self.now.cpu_s[process] - self.before.cpu_s[process]) / self._seconds

    @property
    def _seconds(self) -> float:
        assert self.before is not None
        return self.now.at_s - self.before.at_s


def _totals(progress: Progress, sample: Sample, reported_at: float | None, now: float) -> dict[str, Any]:
    return {
        "elapsed_s": progress.elapsed_s,
        "last_report_age_s": None if reported_at is None else max(0.0, now - reported_at),
        "partitions": progress.partitions,
        "states": dict(progress.states),
        "held_back_records": progress.held_back_records,
        "phase": progress.phase,
        "phase_s": progress.phase_s,
        "records": progress.records,
        "batches": progress.batches,
        "bytes_in": progress.bytes_in,
        "bytes_out": progress.bytes_out,
        "records_per_s": progress.records_per_s,
        "bytes_per_s": progress.bytes_per_s,
        "lag_records": progress.lag_records,
        "lag_s": progress.lag_s,
        "remaining_s": progress.remaining_s,
        "retries": progress.retries,
        "cpu_s": sample.driver_cpu_s + sample.jvm_cpu_s + sample.tasks_cpu_s,
        "rss_bytes": _rss_bytes(sample),
        "gc_s": sample.jvm_gc_s,
    }


def _rss_bytes(sample: Sample) -> int:
    return sample.driver_rss_bytes + sample.jvm_rss_bytes + sample.tasks_rss_bytes


def _silence(silence: ClusterSilence) -> dict[str, str]:
    return {"cluster": silence.name, "sentence": silence.sentence, "reason": silence.reason}


def _named(reasons: Mapping[str, str]) -> dict[str, Any]:
    by_reason: dict[str, list[str]] = {}
    for partition, reason in reasons.items():
        by_reason.setdefault(reason, []).append(partition)
    most_first = sorted(by_reason.items(), key=lambda each: -len(each[1]))
    return {
        "count": len(reasons),
        "reasons": [
            {"reason": reason, "partitions": partitions[:_NAMED], "count": len(partitions)}
            for reason, partitions in most_first[:_REASONS]
        ],
    }


def _held_back(progress: Progress, now: float) -> list[dict[str, Any]]:
    """Return the partitions with a transaction that is open for long, the longest first."""
    open_long = {
        name: each for name, each in progress.held_back.items() if now - each.since >= LONG_TRANSACTION_S
    }
    longest = sorted(open_long, key=lambda name: open_long[name].since)[:_REASONS]
    return [
        {
            "partition": name,
            "records": open_long[name].records,
            "since_ms": int(open_long[name].since * 1000),
        }
        for name in longest
    ]


def _gone_on_from(incidents: Sequence[PartitionIncident]) -> list[dict[str, Any]]:
    """Return the last incidents without those that stopped a partition, which are its reason."""
    return [asdict(each) for each in incidents if each.continued][-_INCIDENTS:]


def _conversions(progress: Progress) -> dict[str, Any]:
    """
    Return the numbers of batches copied unopened, decoded and dropped.

    The registry has bytes by partition, not by decision. So the bytes of unopened batches are known only if
    the mirror opened none, and None otherwise.
    """
    unopened = progress.decisions.get(Decision.COPY.value, 0)
    opened = progress.batches - unopened
    skipped_offsets = progress.decisions.get(Decision.SKIP_GAP.value, 0)  # no batches
    return {
        "unopened": unopened,
        "unopened_bytes": None if opened else progress.bytes_out,
        "opened": opened,
        "dropped": sum(progress.decisions.values()) - progress.batches - skipped_offsets,
    }


def _followed(followed: Followed, now: float) -> list[dict[str, Any]]:
    return [
        {
            "kind": follower.value,
            "synced": done.is_synced,
            "differing": done.differing,
            "age_s": max(0.0, now - done.at_s),
            "sentences": list(done.sentences),
        }
        for follower, done in followed.rounds().items()
    ]


def _slowness(metrics: PartitionMetrics, now: float) -> tuple[int, float, int]:
    """Return the sort key of a partition: stopped ones first, then waiting ones, then by lag."""
    trouble = {PartitionStatus.STOPPED: 0, PartitionStatus.WAITING: 1}.get(metrics.state, 2)
    return (trouble, -(metrics.lag_s(now) or 0.0), -(metrics.lag_records or 0))


def _partition(name: TopicPartition, metrics: PartitionMetrics, rates: _Rates, now: float) -> dict[str, Any]:
    return {
        "partition": str(name),
        "state": metrics.state.value,
        "lag_records": metrics.lag_records,
        "lag_s": metrics.lag_s(now),
        "records": metrics.records,
        "bytes_out": metrics.bytes_out,
        "bytes_per_s": rates.bytes_per_s(name),
        "commit_age_s": None if metrics.committed_at is None else now - metrics.committed_at,
        "process": metrics.process,
    }


def _topics(partitions: Mapping[TopicPartition, PartitionMetrics]) -> dict[str, Any]:
    by_topic: dict[str, list[PartitionMetrics]] = {}
    for name, metrics in partitions.items():
        by_topic.setdefault(name.topic, []).append(metrics)
    rows = sorted((_topic(*each) for each in by_topic.items()), key=lambda row: -row["bytes_out"])
    return {"count": len(rows), "rows": rows[:_TOPICS]}


def _topic(topic: str, partitions: Sequence[PartitionMetrics]) -> dict[str, Any]:
    records, batches, bytes_out = (
        sum(getattr(each, count) for each in partitions) for count in ("records", "batches", "bytes_out")
    )
    return {
        "topic": topic,
        "partitions": len(partitions),
        "records": records,
        "bytes_out": bytes_out,
        "records_per_batch": records / batches if batches else None,
        "bytes_per_batch": bytes_out / batches if batches else None,
        "lag_records": sum(each.lag_records or 0 for each in partitions),
        "stopped": sum(each.stopped is not None for each in partitions),
    }


def _process(
    process: ProcessUsage, partitions: Mapping[TopicPartition, PartitionMetrics], rates: _Rates
) -> dict[str, Any]:
    """Return one row; for a task's process with the partitions that it reported last."""
    row: dict[str, Any] = {
        "name": process.name,
        "kind": _KINDS[process.role],
        "cpu_s": process.cpu_s,
        "cores": rates.cores(process.name),
        "rss_bytes": process.rss_bytes,
        "gc": None if process.gc is None else asdict(process.gc),
        "partitions": None,
        "bytes_per_s": None,
    }
    if process.role is ProcessRole.WORKER:
        own = [name for name, metrics in partitions.items() if metrics.process == process.name]
        row["partitions"] = len(own)
        speeds = [rate for rate in map(rates.bytes_per_s, own) if rate is not None]
        row["bytes_per_s"] = sum(speeds) if rates.before else None
    return row


_KINDS = {ProcessRole.DRIVER: "driver", ProcessRole.JVM: "Spark's JVM", ProcessRole.WORKER: "task"}
