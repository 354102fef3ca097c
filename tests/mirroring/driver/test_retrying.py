"""A stopped partition is tried again: after a while if its reason can heal, and always on request."""

from __future__ import annotations

import time
from dataclasses import replace

from shoal.json_values import read_value
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import Assigned, TaskReport
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.mirroring.task.partition import PartitionCopy
from shoal.mirroring.task.reports import WorkerReports
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import FIRST, SECOND, report
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched

INTERVAL_S = 300.0
POSITION = MirrorPosition(0, 0, ProducerIdentity(1, 0), (0, 0), None, None, "rules", OffsetMap.begun_at(0, 0))


class Mirror:
    """A registry with two partitions, and the schedule of their retries."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._later_s = 0.0
        self.work = PartitionSchedule({"topic": PreparedTopic("topic", "copy", 2)}, self.metrics)
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


def test_partition_with_too_large_record_continues_once_accepted(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic("topic", max_message_bytes="600")
    history.plain(1).plain(100)
    mirror = Mirror()

    def copy() -> None:
        control = Watched()
        brokers.start(control=control).result()
        for each in control.reports:
            mirror.metrics.apply(read_value(TaskReport, each))

    copy()
    assert mirror.metrics.progress().states["stopped"] == 1
    mirror.due_after(0)
    log = brokers.destination.log("topic")
    log.config = replace(log.config, max_message_bytes=1_000_000)
    assert mirror.due_after(INTERVAL_S) == [FIRST]
    copy()
    assert mirror.metrics.progress().stopped == {}
    brokers.assert_exact(history)


def test_last_report_of_a_stopped_task_does_not_change_the_partition(brokers: TwoBrokers) -> None:
    brokers.topic("topic")[0].plain(4)
    mirror = Mirror()
    copy = PartitionCopy(Assigned(1, CopyRange("topic", 0, "topic", 0, OPEN_END)), brokers.settings)

    def apply(told: TaskReport) -> None:
        mirror.metrics.apply(replace(report(), partitions=told.partitions))

    reports = WorkerReports(apply, brokers.settings.timing)

    copy.update_end_offset(1)
    copy.stop("too large")
    reports.send([copy])
    mirror.metrics.expect({}, {FIRST: 4})
    lag = mirror.metrics.progress().lag_records
    assert mirror.due_after(0, requested=True) == [FIRST]
    copy.keep_commit(POSITION)  # its last commit
    reports.send([copy])
    assert mirror.is_tried(FIRST)
    progress = mirror.metrics.progress()
    assert (progress.states["stopped"], progress.lag_records) == (1, lag)
