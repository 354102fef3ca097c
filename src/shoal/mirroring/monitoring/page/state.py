"""
The state of a mirror as one object: ``/state.json``, and the inside of a report.

The object has no secrets. Its names are those of partitions, processes and the consumer group, and its
sentences are those that the mirror also prints.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ....printable import printable_values
from ....topic_partition import TopicPartition
from ...model.processes import GarbageCollection, ProcessUsage
from ...model.progress import Summary
from ..followed import Followed
from ..metrics import Metrics
from ..partition_metrics import PartitionMetrics
from .history import Sampler

__all__ = ["About", "Ending", "state_object"]


@dataclass(frozen=True, slots=True)
class About:
    """
    The identity of a mirror.

    Attributes:
        source: The source's bootstrap servers, as the user wrote them.
        destination: The destination's bootstrap servers, as the user wrote them.
        group: The consumer group with the committed positions; None until it is known.
        warnings: The warnings in the summary.

    """

    source: str
    destination: str
    group: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """
    The end of a mirror.

    Attributes:
        good: Whether the mirror ended without a problem.
        sentence: The result in a sentence.
        cpu_s: CPU seconds of all processes; None if only the tasks' reports are known, which lack their
            starts.
        jvm_gc: The garbage collection of Spark's JVMs, which have ended.

    """

    good: bool
    sentence: str
    cpu_s: float | None = None
    jvm_gc: GarbageCollection | None = None

    @classmethod
    def of(cls, summary: Summary) -> Ending:
        """Return the end of a mirror with a summary."""
        copied = f"{summary.records:,} records in {summary.batches:,} batches were copied"
        problem = ""
        if summary.stopped:
            problem = f", but {len(summary.stopped):,} of {summary.partitions:,} partitions stopped"
        elif summary.interrupted:
            problem = ". The mirror was interrupted, and the next run continues there"
        elif summary.clusters_down:
            problem = f", but {', and '.join(each.sentence for each in summary.clusters_down.values())}"
        elif summary.incidents:
            problem = ". The mirror continued after incidents"
        cpu_s = summary.python_cpu_s + summary.jvm_cpu_s
        return cls(not problem, f"{copied}{problem}.", cpu_s, summary.jvm_gc)


def state_object(about: About, metrics: Metrics, sampler: Sampler, ending: Ending | None) -> dict[str, Any]:
    """Return the state of a mirror now, with printable texts."""
    now = time.time()
    progress = metrics.progress()
    reported_at = metrics.last_report_at
    state = {
        **progress.to_json_object(),
        **asdict(about),
        "version": importlib.metadata.version("shoal"),
        "now_ms": int(now * 1000),
        "ending": None if ending is None else asdict(ending),
        "last_report_age_s": None if reported_at is None else max(0.0, now - reported_at),
        "clusters_down": {
            name: {**asdict(each), "sentence": each.sentence} for name, each in progress.clusters_down.items()
        },
        "followed": _followed(metrics.followed),
        "steering": None if metrics.steering is None else metrics.steering.to_json_object(),
        "processes": [_process(each) for each in sampler.processes()],
        "rows": _rows(metrics.shown_partitions(), now),
    }
    # The history needs none of that, as it has only numbers.
    return {**printable_values(state), "history": sampler.history.columns()}


def _followed(followed: Followed) -> list[dict[str, Any]]:
    return [{"kind": follower.value, **asdict(done)} for follower, done in followed.rounds().items()]


def _process(process: ProcessUsage) -> dict[str, Any]:
    return {**asdict(process), "role": process.role.value}


def _rows(partitions: Mapping[TopicPartition, PartitionMetrics], now: float) -> dict[str, list[Any]]:
    """Return the partitions as one list for each number: their names are there once."""
    rows = [
        {"topic": name.topic, "partition": name.partition, **_row(each, now)}
        for name, each in partitions.items()
    ]
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def _row(metrics: PartitionMetrics, now: float) -> dict[str, Any]:
    stopped = metrics.stopped
    return {
        "state": metrics.state.value,
        "reason": stopped.reason if stopped else metrics.waits_for,
        "lag_records": metrics.lag_records,
        "lag_s": metrics.lag_s(now),
        "records": metrics.records,
        "batches": metrics.batches,
        "bytes_out": metrics.bytes_out,
        "held_back_records": metrics.held_back,
        "held_back_since": metrics.held_back_since,
        "committed_at": metrics.committed_at,
        "process": metrics.process,
    }
