"""A mirror that shares its group assigns partitions to its tasks, and revokes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.client.coordinator import MemberId
from shoal.errors import Stopped
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.handover import InheritedPosition
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.window import WindowClock, WindowPlan
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.create import PreparedTopic
from shoal.mirroring.task.task import run_copy_task
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import FIRST, SECOND, report
from tests.two_brokers import History, RunningTask, TwoBrokers, wait_until

LEFT = InheritedPosition(
    MirrorPosition(7, 7, ProducerIdentity(1, 0), (0, 0), None, None, None, -1, "rules"), (1, 1)
)
TOPIC = PreparedTopic("topic", "topic", 3, created=False)
PARTITION = TopicPartition("topic", 0)


class Driver:
    """The driver of a mirror that has the partitions that :attr:`work` says."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.work = PartitionSchedule({}, self.metrics, shares=True, streams=2)
        self.server = ControlServer(
            "127.0.0.1",
            "secret",
            self.work,
            windows=WindowClock(60.0),
        )
        self.server.renew(MemberId(), 60.0)

    def connect(self) -> ControlConnection:
        return ControlConnection(self.server.address, "secret")


@pytest.fixture
def driver() -> Iterator[Driver]:
    started = Driver()
    yield started
    started.server.close()


def test_plan_has_the_mirror_s_partitions(driver: Driver) -> None:
    def plan() -> WindowPlan:
        told = driver.server.plan()
        assert told is not None
        return told

    assert not plan().includes(PARTITION)
    driver.work.take({"topic": TOPIC}, [PARTITION, TopicPartition("topic", 2)])
    planned = plan()
    assert [number for number in range(3) if planned.includes(TopicPartition("topic", number))] == [0, 2]
    assert planned.streams == 2
    driver.work.give_up([PARTITION])
    assert not plan().includes(PARTITION)


def test_late_task_does_not_take_a_revoked_partition(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(3)
    driver.work.take({"topic": TOPIC}, [PARTITION])
    driver.work.give_up([PARTITION])
    with driver.connect() as control:
        result = run_copy_task([CopyRange("topic", 0, "topic", 0, OPEN_END)], brokers.settings, control)
    assert result.stopped == ()
    assert brokers.copied() == []


def test_tasks_of_revoked_partitions_commit_and_end_at_once(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(3)
    driver.work.take({"topic": TOPIC}, [PARTITION])
    with driver.connect() as control:
        ranges = [CopyRange("topic", 0, "topic", 0, OPEN_END)]
        running = RunningTask(lambda: run_copy_task(ranges, brokers.settings, control))
        wait_until(lambda: brokers.copied() == history.committed)
        driver.work.give_up([PARTITION])
        closing = RunningTask(lambda: driver.server.end_tasks(30.0))  # type: ignore[arg-type, return-value]
        running.result()  # long before its window ends
    assert closing.result() is True  # type: ignore[comparison-overlap]
    assert brokers.position().source_offset == history.next_offset


def test_task_that_does_not_end_becomes_an_orphan(driver: Driver) -> None:
    with driver.connect() as stuck:
        assert not driver.server.end_tasks(0.05)
        wait_until(lambda: is_orphan(stuck))


def is_orphan(control: ControlConnection) -> bool:
    try:
        control.check_lease()
    except Stopped:
        return True
    return False


def test_ended_lease_is_over_until_renewed(driver: Driver) -> None:
    def lapsed(control: ControlConnection) -> bool:
        return control.interruptions > 0 or lease_is_over(control)

    with driver.connect() as control:
        control.check_lease()
        driver.server.end_lease()
        wait_until(lambda: lapsed(control))
        driver.server.renew(MemberId("again", 2), 60.0)
        wait_until(lambda: not lease_is_over(control))
        assert control.interruptions == 1


def lease_is_over(control: ControlConnection) -> bool:
    try:
        control.check_lease()
    except Exception:
        return True
    return False


def test_position_left_by_a_revoked_task_is_not_used_after_reassignment(driver: Driver) -> None:
    driver.work.take({"topic": TOPIC}, [PARTITION])
    with driver.connect() as task:
        task.take([PARTITION])
        task.report(TaskReport(leaves={PARTITION: LEFT}))
    with driver.connect() as task:
        assert task.take([PARTITION]).given_up == frozenset()
    driver.server.give_up([PARTITION])
    driver.work.give_up([PARTITION])
    with driver.connect() as task:
        handover = task.take([PARTITION])
        assert handover.given_up == {PARTITION}
        assert handover.left == {}


def test_revoked_partitions_are_not_counted_but_their_records_are() -> None:
    metrics = Metrics()
    metrics.apply(report())
    metrics.apply(report(SECOND, waiting_for="somebody"))
    before = metrics.progress()
    metrics.forget([SECOND])
    after = metrics.progress()
    assert (before.partitions, after.partitions) == (2, 1)
    assert (list(before.waiting), list(after.waiting)) == (["topic-1"], [])
    assert after.records == before.records
    assert after.lag_records == before.lag_records / 2
    metrics.forget([SECOND])
    assert metrics.progress().partitions == 1
    metrics.forget([FIRST])
    assert (metrics.progress().lag_records, metrics.progress().lag_s) == (0, None)
