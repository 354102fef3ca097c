"""The planner of a mirror assigns partitions to the tasks of its jobs, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.coordinator import MemberId
from shoal.client.offsets import EARLIEST, LATEST
from shoal.error_codes import ErrorCode
from shoal.mirroring.control import ControlServer
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.options import MirrorOptions, Start
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import WindowClock, WindowPlan
from shoal.mirroring.prepare.create import Prepared
from shoal.protocol.apis import ApiKey
from shoal.spark.mirror_planning import WindowPlanner
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from tests.driver_events import Events
from tests.two_brokers import History, TwoBrokers, wait_until


class Driver:
    def __init__(self, brokers: TwoBrokers, **topics: int) -> None:
        self.reports: list[dict[str, Any]] = []
        self.plan = WindowPlan({name: (name, count) for name, count in topics.items()})
        self.server = ControlServer(
            "127.0.0.1",
            "secret",
            Events(self._keep, on_plan=lambda: self.plan),
            windows=WindowClock(15.0),
        )
        self.server.renew(MemberId(), 60.0)
        self._brokers = brokers
        self._planners: list[WindowPlanner] = []

    def _keep(self, report: TaskReport) -> None:
        self.reports.append(report.to_json_object())

    def close(self) -> None:
        for planner in self._planners:
            planner.close()
        self.server.close()

    def planner(self, start: int = EARLIEST, most_tasks: int = 2) -> WindowPlanner:
        source, destination = self._brokers.settings.source, self._brokers.settings.destination
        selection, timing = TopicSelection("topic"), Timing(plan_look_s=0.01)
        options = MirrorOptions(source, destination, selection, start=Start(start), timing=timing)
        prepared = Prepared("mirror", None, None, {}, (), 0)
        job = CopyJob(options, prepared, self.server, FirstStart.now(), is_first_start=True)
        self._planners.append(WindowPlanner(job, most_tasks))
        return self._planners[-1]


@pytest.fixture
def driver(brokers: TwoBrokers) -> Iterator[Driver]:
    started = Driver(brokers, topic=2)
    yield started
    started.close()


def tasks_of(planner: WindowPlanner) -> list[list[CopyRange]]:
    return planner.next_tasks(threading.Event())


def rows(planner: WindowPlanner) -> list[tuple[str, int, int, int]]:
    return sorted(
        (each.topic, each.partition, each.start_offset, each.end_offset)
        for task in tasks_of(planner)
        for each in task
    )


def test_each_partition_has_an_open_range(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)[1].plain(3)
    assert rows(driver.planner()) == [("topic", 0, 0, OPEN_END), ("topic", 1, 0, OPEN_END)]


def test_partition_with_position_continues_there_and_latest_is_resolved_once(
    brokers: TwoBrokers, driver: Driver
) -> None:
    first, second = brokers.topic("topic", 2)
    first.plain(3, 3)
    brokers.run(brokers.ranges()[:1])
    second.plain(4)
    planner = driver.planner(LATEST)
    assert rows(planner) == [("topic", 0, 0, OPEN_END), ("topic", 1, 4, OPEN_END)]
    second.plain(5)
    assert rows(planner)[1] == ("topic", 1, 4, OPEN_END)


@pytest.mark.parametrize("both", [True, False])
def test_recreated_topic_is_mirrored_from_its_beginning(
    brokers: TwoBrokers, driver: Driver, both: bool
) -> None:
    """Kafka deletes committed offsets with a topic; the old position does not apply to the new topic."""
    reset_is_gone_on_from = brokers.with_settings(continue_after=frozenset({IncidentKind.SOURCE_RESET}))
    (history, _) = brokers.topic("topic", 2)
    history.plain(3, 3)
    brokers.run()
    planner = driver.planner()
    rows(planner)
    for broker in (brokers.source, brokers.destination) if both else (brokers.source,):
        broker.topics.delete(broker.topics.topic("topic"))
        broker.create_topic("topic", 2)
    brokers.forget_pairs()
    before = 0 if both else len(brokers.copied())
    created_anew = History(brokers.source.log("topic")).plain(2, 3)
    ends = [log.log_end_offset for log in brokers.source.topics.topic("topic").logs]
    ranges = [
        CopyRange(topic, number, topic, start, ends[number]) for topic, number, start, _ in rows(planner)
    ]
    reset_is_gone_on_from.run(ranges)
    assert brokers.copied()[before:] == created_anew.committed


def test_later_topic_is_mirrored_whole(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    planner = driver.planner(LATEST)
    assert len(rows(planner)) == 2
    brokers.topic("later", 1)[0].plain(4)
    driver.plan = WindowPlan({**driver.plan.topics, "later": ("later", 1)})
    assert rows(planner)[0] == ("later", 0, 0, OPEN_END)


def test_stopped_unready_or_deleted_partitions_are_not_planned(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 3)
    driver.plan = WindowPlan(
        {"topic": ("topic", 2), "deleted": ("deleted", 4)}, frozenset({TopicPartition("topic", 0)})
    )
    assert rows(driver.planner()) == [("topic", 1, 0, OPEN_END)]
    wait_until(lambda: bool(driver.reports))
    assert [(each["topic"], each["partition"]) for each in driver.reports[0]["partitions"]] == [
        ("deleted", number) for number in range(4)
    ]
    assert "it was deleted" in driver.reports[0]["partitions"][0]["waiting_for"]
    assert "assign_again" not in driver.reports[0]


def test_partition_without_start_offset_is_skipped_and_named(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    brokers.source.faults.add(
        ApiKey.LIST_OFFSETS, times=None, error=ErrorCode.LEADER_NOT_AVAILABLE, partition=1
    )
    planner = driver.planner()
    assert rows(planner) == [("topic", 0, 0, OPEN_END)]
    wait_until(lambda: bool(driver.reports))
    (named,) = driver.reports[0]["partitions"]
    assert (named["topic"], named["partition"]) == ("topic", 1)
    assert all(each in named["waiting_for"] for each in ("source", "start offset"))
    assert driver.reports[0]["assign_again"]  # the next window should not be long in coming
    brokers.source.faults.clear()
    assert len(rows(planner)) == 2


def test_next_tasks_with_all_partitions_stopped_waits_for_a_new_plan(
    brokers: TwoBrokers, driver: Driver
) -> None:
    brokers.topic("topic", 2)
    everything = frozenset(TopicPartition("topic", number) for number in range(2))
    driver.plan = replace(driver.plan, excluded=everything)
    planner = driver.planner()
    with ThreadPoolExecutor(1) as thread:
        planned = thread.submit(tasks_of, planner)
        wait_until(lambda: brokers.source.faults.add(ApiKey.METADATA, times=None).hits == 0)
        assert not planned.done()
        driver.plan = replace(driver.plan, excluded=frozenset())
        assert planned.result(30)


@pytest.mark.parametrize("gone", ["leader", "topic"])
def test_next_tasks_with_all_partitions_skipped_tries_the_plan_again(
    brokers: TwoBrokers, driver: Driver, gone: str
) -> None:
    if gone == "leader":
        brokers.topic("topic", 2)
        brokers.source.faults.add(ApiKey.LIST_OFFSETS, times=None, error=ErrorCode.LEADER_NOT_AVAILABLE)
    planner = driver.planner()
    with ThreadPoolExecutor(1) as thread:
        planned = thread.submit(tasks_of, planner)
        wait_until(lambda: bool(driver.reports))
        assert not planned.done()
        brokers.source.faults.clear()
        if gone == "topic":
            brokers.topic("topic", 2)
        assert planned.result(30)


def test_busy_partitions_are_distributed_evenly(brokers: TwoBrokers) -> None:
    driver = Driver(brokers, topic=16)
    brokers.topic("topic", 16)
    busy = [TopicPartition("topic", number) for number in (0, 1)]
    driver.plan = replace(driver.plan, weights=dict.fromkeys(busy, 1000))
    tasks = tasks_of(driver.planner())
    assert [sum(each.partition in (0, 1) for each in task) for task in tasks] == [1, 1]
    driver.close()


@pytest.mark.parametrize(("streams", "cores", "dealt"), [(4, 2, 2), (4, 8, 4), (8, 8, 4), (1, 8, 1)])
def test_plan_has_at_most_as_many_tasks_as_can_run(
    brokers: TwoBrokers, streams: int, cores: int, dealt: int
) -> None:
    brokers.topic("wide", 4)
    driver = Driver(brokers, wide=4)
    driver.plan = replace(driver.plan, streams=streams)
    tasks = tasks_of(driver.planner(most_tasks=cores))
    assert len(tasks) == dealt
    assert sorted(each.partition for task in tasks for each in task) == [0, 1, 2, 3]
    driver.close()


def test_next_tasks_of_a_mirror_that_stops_are_none(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    planner = driver.planner()
    driver.server.request_stop()
    assert tasks_of(planner) == []


def test_next_tasks_end_their_wait_for_a_cluster_at_a_stop(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    brokers.source.faults.add(ApiKey.METADATA, times=None, drop="before")
    stop = threading.Event()
    planner = driver.planner()
    with ThreadPoolExecutor(1) as thread:
        planned = thread.submit(planner.next_tasks, stop)
        stop.set()
        assert planned.result(30) == []


def test_topic_that_may_no_longer_be_described_is_not_called_deleted(
    brokers: TwoBrokers, driver: Driver
) -> None:
    brokers.topic("topic", 1)
    brokers.topic("hidden", 1)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    brokers.source.faults.add(ApiKey.METADATA, times=None, topic="hidden", error=refused)
    driver.plan = WindowPlan({"topic": ("topic", 1), "hidden": ("hidden", 1)})
    assert rows(driver.planner()) == [("topic", 0, 0, OPEN_END)]
    wait_until(lambda: bool(driver.reports))
    (hidden,) = driver.reports[0]["partitions"]
    assert all(each in hidden["waiting_for"] for each in ("--operation Describe", "--topic hidden"))
    assert "deleted" not in hidden["waiting_for"]
