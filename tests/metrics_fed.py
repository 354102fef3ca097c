"""A registry with every possible event, and its output."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from shoal.mirroring.model.follow_options import Follower
from shoal.mirroring.model.progress import GarbageCollection, GroupsStatus, ProcessRole, ProcessUsage
from shoal.mirroring.model.reports import CopyReport, ProcessReport, TaskReport
from shoal.mirroring.model.state import FollowRound
from shoal.mirroring.model.steering import SteeringStatus
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.mirroring.monitoring.shown import exposition
from shoal.topic_partition import TopicPartition

__all__ = [
    "FIRST",
    "JVM",
    "SECOND",
    "WORKER",
    "busy_metrics",
    "labels_by_metric",
    "parsed",
    "partition_of",
    "report",
    "samples",
]

#: Values by a metric's name and its sorted labels.
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)

WORKER = "executor-3:4711"

JVM = ProcessUsage(
    "host:4712", ProcessRole.JVM, 3.0, 300_000_000, last_report_at=1.0, gc=GarbageCollection(7, 0.25)
)
"""Usage of Spark's JVM, after seven garbage collections."""


#: Each report is the first of another task, so that their counts add up.
_takes = itertools.count(1)


def partition_of(partition: TopicPartition, **changes: Any) -> dict[str, Any]:
    """Return the report of a task that has just taken a partition, as JSON: a count not named here is 0."""
    values = CopyReport(partition).as_json() | {"since": next(_takes)} | changes
    made = (n for name, n in values["decisions"].items() if not name.startswith(("dropped", "skipped")))
    return {**values, "batches": sum(made)}


def report(
    partition: TopicPartition = FIRST, *, process: Mapping[str, Any] | None = None, **changes: Any
) -> TaskReport:
    """Return the report of a task that has just taken a partition."""
    of_partition = partition_of(
        partition,
        **{
            "source_offset": 5,
            "end_offset": 10,
            "decisions": {"copied": 2},
            "records": 4,
            "bytes_in": 110,
            "bytes_out": 100,
            "retries": 1,
            **changes,
        },
    )
    used = ProcessReport(WORKER, 0.5, 900, is_native=False)
    return TaskReport([CopyReport.of_json(of_partition)], replace(used, **(process or {})))


def busy_metrics() -> Metrics:
    """Return a registry with every kind of event in it."""
    metrics = Metrics()
    metrics.apply(report(committed_offset=4, waiting_for="a leader"))
    metrics.apply(report(SECOND, stopped=[5, "because"], decisions={"copied": 1, "dropped: control": 3}))
    for follower in Follower:
        metrics.followed[follower] = FollowRound(1_700_000_000.0, False, 1, ("a difference",))
    offsets, actions = {"exact": 3, "ahead": 1}, {"unchanged": 3, "refused": 1}
    metrics.groups = GroupsStatus(1_700_000_000.0, 2, offsets, actions)
    metrics.set_clusters({"source": None, "destination": None})
    metrics.steering = SteeringStatus(
        paused=frozenset({"logs"}), paused_expressions=("logs",), limit=50_000_000
    )
    return metrics


def samples(metrics: Metrics, *, by_topic: bool = False) -> Samples:
    """Return a registry's output, read by Prometheus's own library: by name and sorted labels."""
    processes = LocalProcesses()
    return parsed(exposition(metrics, lambda: [*processes(), JVM], by_topic=by_topic))


def parsed(text: bytes) -> Samples:
    """Return a scrape's values, by name and sorted labels."""
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(text.decode())
        for each in family.samples
    }


def labels_by_metric(found: Samples) -> dict[str, frozenset[str]]:
    """Return the names of the labels of all metrics."""
    labels: dict[str, frozenset[str]] = defaultdict(frozenset)
    for name, names_and_values in found:
        labels[name] |= {label for label, _ in names_and_values}
    return dict(labels)
