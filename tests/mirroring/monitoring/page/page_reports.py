"""Tasks' reports to the page's registry: of a running task, or made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.topic_partition import TopicPartition
from tests.two_brokers import Watched

__all__ = ["Told", "expected", "partition_of", "report_of"]


class Told(Watched):
    """A task's control that reports to a registry."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def report(self, report: TaskReport) -> None:
        super().report(report)
        self._metrics.apply(report)


def expected(ranges: Sequence[CopyRange]) -> Metrics:
    """Return a registry with the partitions to copy."""
    metrics = Metrics()
    ends = {TopicPartition(each.topic, each.partition): each.end_offset for each in ranges}
    metrics.expect(dict.fromkeys(ends, 0), ends)
    return metrics


def report_of(*partitions: dict[str, Any], **task: Any) -> TaskReport:
    """A task's report."""
    known = {"bytes_in": 120_000, "cpu_s": 0.5, "peak_rss_bytes": 90_000_000, "rss_bytes": 80_000_000}
    return TaskReport.from_json_object(
        {**known, "pid_host": "executor-1:4242", "partitions": list(partitions), **task}
    )


def partition_of(topic: str, partition: int, **changes: Any) -> dict[str, Any]:
    """A task's report of one partition."""
    return {
        "topic": topic,
        "partition": partition,
        "source_offset": 1000,
        "end_offset": 1500,
        "committed_offset": 1000,
        "newest_ms": None,
        "decisions": {"copied": 20, "rebuilt: holes": 1, "dropped: control": 3},
        "records": 1000,
        "bytes_in": 120_000,
        "bytes_out": 110_000,
        "retries": 1,
        "runs": [],
        "waiting_for": None,
        "commit_waits_for": None,
        "held_back": None,
        "stopped": None,
        "incidents": [],
        **changes,
    }
