"""A stopped partition is tried again: after a while if its reason can heal, and always on request."""

from __future__ import annotations

import time

from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import FIRST, SECOND, report

INTERVAL_S = 300.0


class Mirror:
    """A registry with two partitions, and the schedule of their retries."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._later_s = 0.0
        self.work = PartitionSchedule(
            {"topic": PreparedTopic("topic", "copy", 2, created=False)}, self.metrics
        )
        self.metrics.apply(report())
        self.metrics.apply(report(SECOND))

    def stop(self, partition: TopicPartition, *, can_heal: bool = True) -> None:
        self.metrics.apply(report(partition, stopped=[5, "because", None, can_heal]))
        self._later_s = 0.0

    def due_after(self, seconds: float, *, requested: bool = False) -> list[TopicPartition]:
        """Return the partitions that are due so long after the last call or stop, and retry them."""
        self._later_s += seconds
        now = time.time() + self._later_s
        return self.work.take_due(INTERVAL_S, requested=requested, now=now)

    def is_tried(self, partition: TopicPartition) -> bool:
        return self.work.takeable([partition]) == [partition]


def test_stopped_partition_is_retried_once_after_the_interval() -> None:
    mirror = Mirror()
    mirror.stop(FIRST)
    assert mirror.due_after(0) == []
    assert mirror.due_after(INTERVAL_S - 60) == []
    assert not mirror.is_tried(FIRST)
    assert mirror.due_after(60) == [FIRST]
    assert mirror.is_tried(FIRST)
    assert mirror.due_after(2 * INTERVAL_S) == [], "it is being tried"


def test_incident_is_retried_only_on_request() -> None:
    mirror = Mirror()
    mirror.stop(FIRST, can_heal=False)
    mirror.due_after(0)
    assert mirror.due_after(10 * INTERVAL_S) == []
    assert mirror.due_after(0, requested=True) == [FIRST]
    mirror.stop(FIRST, can_heal=False)
    assert mirror.due_after(10 * INTERVAL_S) == [], "a request counts once"
