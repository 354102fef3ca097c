"""The planner of a running mirror assigns partitions for a window, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.coordinator import MemberId
from shoal.client.offsets import EARLIEST, LATEST
from shoal.error_codes import ErrorCode
from shoal.mirroring.control import ControlServer
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.window import WindowClock, WindowPlan
from shoal.protocol.apis import ApiKey
from shoal.spark import window_reader as slices
from shoal.spark.options import ControlAddress, Offsets, ReadOptions
from shoal.spark.window_reader import WindowReader
from shoal.topic_partition import TopicPartition
from tests.driver_events import Events
from tests.two_brokers import History, TwoBrokers, wait_until

pytestmark = pytest.mark.timeout(60)


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
        self._readers: list[WindowReader] = []

    def _keep(self, report: TaskReport) -> None:
        self.reports.append(report.to_json_object())

    def close(self) -> None:
        for reader in self._readers:
            reader.stop()
        self.server.close()

    def reader(self, starting: int = EARLIEST, lanes: int = 2) -> WindowReader:
        control = ControlAddress(*self.server.address, "secret")
        given = {
            "kafka.bootstrap.servers": self._brokers.source.bootstrap,
            "destination.kafka.bootstrap.servers": self._brokers.destination.bootstrap,
            "subscribe": ",".join(self.plan.topics),
            "group": "mirror",
            "minPartitions": str(lanes),
            "control": str(control),
        }
        options = ReadOptions.parse(given, streaming=True)
        self._readers.append(WindowReader(replace(options, starting=Offsets(starting)), control))
        return self._readers[-1]


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        yield started


@pytest.fixture
def driver(brokers: TwoBrokers) -> Iterator[Driver]:
    started = Driver(brokers, topic=2)
    yield started
    started.close()


def rows(reader: WindowReader) -> list[tuple[str, int, int, int]]:
    start = reader.initialOffset()
    lanes = reader.partitions(start, reader.latestOffset(start))
    return sorted(row for lane in lanes for row in reader.read(lane))


def test_each_partition_has_an_open_range(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)[1].plain(3)
    assert rows(driver.reader()) == [("topic", 0, 0, OPEN_END), ("topic", 1, 0, OPEN_END)]


def test_each_window_is_new_to_spark_after_a_restart(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    reader = driver.reader()
    first = reader.latestOffset(reader.initialOffset())
    second = reader.latestOffset(first)
    third = driver.reader().latestOffset()  # as PySpark 4.0 asks, in a new process
    assert len({str(each) for each in (reader.initialOffset(), first, second, third)}) == 4


def test_partition_with_position_continues_there_and_latest_is_resolved_once(
    brokers: TwoBrokers, driver: Driver
) -> None:
    first, second = brokers.topic("topic", 2)
    first.plain(3, 3)
    brokers.run(brokers.ranges()[:1])
    second.plain(4)
    reader = driver.reader(LATEST)
    assert rows(reader) == [("topic", 0, 0, OPEN_END), ("topic", 1, 4, OPEN_END)]
    second.plain(5)
    assert rows(reader)[1] == ("topic", 1, 4, OPEN_END)


def test_planner_after_a_spark_restart_knows_the_starts_of_the_previous_one(
    brokers: TwoBrokers, driver: Driver
) -> None:
    _, second = brokers.topic("topic", 2)
    second.plain(4)
    assert rows(driver.reader(LATEST)) == [("topic", 0, 0, OPEN_END), ("topic", 1, 4, OPEN_END)]
    wait_until(lambda: driver.server._starts is not None)
    second.plain(5)  # it is stuck, and has no position
    brokers.topic("later", 1)[0].plain(4)
    driver.plan = WindowPlan({**driver.plan.topics, "later": ("later", 1)})
    assert rows(driver.reader(LATEST)) == [
        ("later", 0, 0, OPEN_END),
        ("topic", 0, 0, OPEN_END),
        ("topic", 1, 4, OPEN_END),
    ]


@pytest.mark.parametrize("both", [True, False])
def test_recreated_topic_is_mirrored_from_its_beginning(
    brokers: TwoBrokers, driver: Driver, both: bool
) -> None:
    """Kafka deletes committed offsets with a topic; the old position does not apply to the new topic."""
    reset_is_gone_on_from = brokers.with_settings(continue_on=frozenset({IncidentKind.SOURCE_RESET}))
    (history, _) = brokers.topic("topic", 2)
    history.plain(3, 3)
    brokers.run()
    reader = driver.reader()
    rows(reader)
    for broker in (brokers.source, brokers.destination) if both else (brokers.source,):
        broker.topics.delete(broker.topics.topic("topic"))
        broker.create_topic("topic", 2)
    brokers.forget_pairs()
    before = 0 if both else len(brokers.copied())
    created_anew = History(brokers.source.log("topic")).plain(5, 5)
    ends = [log.log_end_offset for log in brokers.source.topics.topic("topic").logs]
    ranges = [
        CopyRange(topic, number, topic, start, ends[number]) for topic, number, start, _ in rows(reader)
    ]
    reset_is_gone_on_from.run(ranges)
    assert brokers.copied()[before:] == created_anew.committed


def test_later_topic_is_mirrored_whole(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    reader = driver.reader(LATEST)
    assert len(rows(reader)) == 2
    brokers.topic("later", 1)[0].plain(4)
    driver.plan = WindowPlan({**driver.plan.topics, "later": ("later", 1)})
    assert rows(reader)[0] == ("later", 0, 0, OPEN_END)


def test_stopped_unready_or_deleted_partitions_are_not_planned(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 3)
    driver.plan = WindowPlan(
        {"topic": ("topic", 2), "deleted": ("deleted", 4)}, frozenset({TopicPartition("topic", 0)})
    )
    assert rows(driver.reader()) == [("topic", 1, 0, OPEN_END)]
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
    reader = driver.reader()
    assert rows(reader) == [("topic", 0, 0, OPEN_END)]
    wait_until(lambda: bool(driver.reports))
    (named,) = driver.reports[0]["partitions"]
    assert (named["topic"], named["partition"]) == ("topic", 1)
    assert "to say where it begins" in named["waiting_for"]
    assert driver.reports[0]["assign_again"]  # the next slice should not be long in coming
    brokers.source.faults.clear()
    assert len(rows(reader)) == 2


def test_plan_without_running_partitions_ends_the_windows_until_it_changes(
    brokers: TwoBrokers, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "_LOOK_INTERVAL_S", 0.01)
    brokers.topic("topic", 2)
    everything = frozenset(TopicPartition("topic", number) for number in range(2))
    driver.plan = replace(driver.plan, excluded=everything)
    reader = driver.reader()
    start = reader.latestOffset(reader.initialOffset())
    assert reader.partitions(reader.initialOffset(), start) == []
    assert reader.latestOffset(start) == start
    driver.plan = replace(driver.plan, excluded=frozenset())
    assert reader.latestOffset(start) != start


@pytest.mark.parametrize("gone", ["leader", "topic"])
def test_plan_whose_partitions_were_all_skipped_is_tried_again(
    brokers: TwoBrokers, driver: Driver, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setattr(slices, "_LOOK_INTERVAL_S", 0.01)
    if gone == "leader":
        brokers.topic("topic", 2)
        brokers.source.faults.add(ApiKey.LIST_OFFSETS, times=None, error=ErrorCode.LEADER_NOT_AVAILABLE)
    reader = driver.reader()
    start = reader.latestOffset(reader.initialOffset())
    assert reader.partitions(reader.initialOffset(), start) == []
    brokers.source.faults.clear()
    if gone == "topic":
        brokers.topic("topic", 2)
    later = reader.latestOffset(start)
    assert later != start
    assert reader.partitions(start, later)


def test_busy_partitions_are_distributed_evenly(brokers: TwoBrokers) -> None:
    driver = Driver(brokers, topic=16)
    brokers.topic("topic", 16)
    busy = [TopicPartition("topic", number) for number in (0, 1)]
    driver.plan = replace(driver.plan, weights=dict.fromkeys(busy, 1000))
    reader = driver.reader()
    lanes = reader.partitions(reader.initialOffset(), reader.latestOffset(reader.initialOffset()))
    assert [sum(row[1] in (0, 1) for row in reader.read(lane)) for lane in lanes] == [1, 1]
    driver.close()


@pytest.mark.parametrize(("streams", "cores", "dealt"), [(4, 2, 2), (4, 8, 4), (8, 8, 4), (1, 8, 1)])
def test_plan_has_at_most_as_many_tasks_as_can_run(
    brokers: TwoBrokers, streams: int, cores: int, dealt: int
) -> None:
    brokers.topic("wide", 4)
    driver = Driver(brokers, wide=4)
    driver.plan = replace(driver.plan, streams=streams)
    reader = driver.reader(lanes=cores)
    start = reader.initialOffset()
    lanes = reader.partitions(start, reader.latestOffset(start))
    assert len(lanes) == dealt
    assert sorted(row[1] for lane in lanes for row in reader.read(lane)) == [0, 1, 2, 3]
    driver.close()


def test_stopping_mirror_plans_nothing(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    reader = driver.reader()
    start = reader.latestOffset(reader.initialOffset())
    driver.server.request_stop()
    assert reader.latestOffset(start) == start
    assert reader.partitions(reader.initialOffset(), start) == []
    driver.server.close()
    assert reader.latestOffset(start) == start


def test_pickled_reader_has_no_connections(brokers: TwoBrokers, driver: Driver) -> None:
    brokers.topic("topic", 2)
    reader = driver.reader()
    lanes = reader.partitions(reader.initialOffset(), reader.latestOffset(reader.initialOffset()))
    copy = pickle.loads(pickle.dumps(reader))
    assert [row for lane in lanes for row in copy.read(lane)] == [
        row for lane in lanes for row in reader.read(lane)
    ]
