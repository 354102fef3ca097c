"""The driver finds what its tasks are to copy: places to begin and to end, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from shoal.client.coordinator import MemberId
from shoal.client.offsets import EARLIEST, LATEST
from shoal.error_codes import ErrorCode
from shoal.errors import ShoalError
from shoal.mirroring.control import ControlServer
from shoal.mirroring.driver.places import Places
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.driver.starts import Starts
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.window import Start, Until
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import report
from tests.running_mirror import running
from tests.world.clusters import TwoBrokers
from tests.world.history import History
from tests.world.waiting import wait_until


class Driver:
    """The places of a mirror, and a task that has a document with all of them."""

    def __init__(self, brokers: TwoBrokers, topics: Mapping[str, int], **given: Any) -> None:
        self.metrics = Metrics()
        prepared = {name: PreparedTopic(name, name, count) for name, count in topics.items()}
        self.work = PartitionSchedule(prepared, self.metrics)
        streams = given.pop("streams", None)
        self.server = ControlServer("127.0.0.1", "secret", self.work)
        self.server.renew(MemberId(), 60.0)
        start = Start(given.pop("start", EARLIEST))
        timing = Timing(plan_look_s=0.01, places_look_s=0.05)
        options = brokers.options("topic", start=start, timing=timing, **given)
        starts = Starts(options, "mirror", options.topics, since_ms=0)
        self.warnings: list[str] = []
        parts = running(options, self.work, self.metrics, control=self.server, warn=self.warnings.append)
        self.places = Places(parts, starts, streams)
        self.wanted: dict[TopicPartition, CopyRange] = {}
        want = self.server.want

        def keep(wanted: Any) -> None:
            self.wanted = {each: known.range for each, known in wanted.items()}
            want(wanted)

        self.server.want = keep  # type: ignore[method-assign]

    @property
    def rows(self) -> list[tuple[str, int, int, int]]:
        return sorted(
            (each.topic, each.partition, each.start_offset, each.end_offset) for each in self.wanted.values()
        )

    def waiting(self) -> dict[str, str]:
        return dict(self.metrics.progress().waiting)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def begun(stack: ExitStack, brokers: TwoBrokers, topics: Mapping[str, int], **given: Any) -> Driver:
    driver = Driver(brokers, topics, **given)
    stack.callback(driver.server.close)
    stack.enter_context(driver.places)
    driver.places.begin()
    return driver


def awaited(driver: Driver, *rows: tuple[str, int, int, int]) -> None:
    wait_until(lambda: driver.rows == list(rows))


def test_partition_with_position_continues_there_and_latest_is_resolved_once(
    brokers: TwoBrokers, stack: ExitStack
) -> None:
    first, second = brokers.topic("topic", 2)
    first.plain(3, 3)
    brokers.with_settings(first_start=FirstStart.now()).run(brokers.ranges()[:1])
    second.plain(4)
    driver = begun(stack, brokers, {"topic": 2}, start=LATEST)
    awaited(driver, ("topic", 0, 0, OPEN_END), ("topic", 1, 4, OPEN_END))
    second.plain(5)
    looks = brokers.source.faults.add(ApiKey.METADATA, times=None)
    wait_until(lambda: looks.hits >= 3)
    assert driver.rows[1] == ("topic", 1, 4, OPEN_END)


@pytest.mark.parametrize("both", [True, False])
def test_recreated_topic_is_mirrored_from_its_beginning(
    brokers: TwoBrokers, stack: ExitStack, both: bool
) -> None:
    """Kafka deletes committed offsets with a topic; the old position does not apply to the new topic."""
    reset_is_gone_on_from = brokers.going_on(IncidentKind.SOURCE_RESET)
    (history, _) = brokers.topic("topic", 2)
    history.plain(3, 3)
    brokers.run()
    driver = begun(stack, brokers, {"topic": 2})
    awaited(driver, ("topic", 0, 0, OPEN_END), ("topic", 1, 0, OPEN_END))
    for broker in (brokers.source, brokers.destination) if both else (brokers.source,):
        broker.topics.delete(broker.topics.topic("topic"))
        broker.create_topic("topic", 2)
    brokers.forget_pairs()
    before = 0 if both else len(brokers.copied())
    created_anew = History(brokers.source.log("topic")).plain(2, 3)
    looks = brokers.source.faults.add(ApiKey.LIST_OFFSETS, times=None)
    wait_until(lambda: looks.hits >= 1 and len(driver.rows) == 2)
    ends = [log.log_end_offset for log in brokers.source.topics.topic("topic").logs]
    reset_is_gone_on_from.run(
        [each._replace(end_offset=ends[each.partition]) for each in driver.wanted.values()]
    )
    assert brokers.copied()[before:] == created_anew.committed


def test_stopped_unready_or_deleted_partitions_are_not_wanted(brokers: TwoBrokers, stack: ExitStack) -> None:
    brokers.topic("topic", 3)
    driver = begun(stack, brokers, {"topic": 2, "deleted": 4})
    driver.work.apply(report(stopped=[7, "a reason", None, True]))
    awaited(driver, ("topic", 1, 0, OPEN_END))
    waiting = driver.waiting()
    assert list(waiting) == [f"deleted-{number}" for number in range(4)]
    assert "it was deleted" in waiting["deleted-0"]


def test_topic_that_may_no_longer_be_described_is_not_called_deleted(
    brokers: TwoBrokers, stack: ExitStack
) -> None:
    brokers.topic("topic", 1)
    brokers.topic("hidden", 1)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    brokers.source.faults.add(ApiKey.METADATA, times=None, topic="hidden", error=refused)
    driver = begun(stack, brokers, {"topic": 1, "hidden": 1})
    awaited(driver, ("topic", 0, 0, OPEN_END))
    wait_until(lambda: "hidden-0" in driver.waiting())
    hidden = driver.waiting()["hidden-0"]
    assert all(each in hidden for each in ("--operation Describe", "--topic hidden"))
    assert "deleted" not in hidden


def test_topic_whose_start_cannot_be_committed_waits_alone_and_is_named(
    brokers: TwoBrokers, stack: ExitStack
) -> None:
    brokers.topic("topic", 1)
    driver = begun(stack, brokers, {"topic": 1}, start=LATEST)
    awaited(driver, ("topic", 0, 0, OPEN_END))
    refused = brokers.source.faults.add(
        ApiKey.OFFSET_COMMIT, times=None, topic="refused", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    for later in ("refused", "taken"):
        brokers.topic(later, 1)[0].plain(4)
        driver.work.add(PreparedTopic(later, later, 1))
    awaited(driver, ("taken", 0, 0, OPEN_END), ("topic", 0, 0, OPEN_END))
    wait_until(lambda: "TOPIC_AUTHORIZATION_FAILED" in driver.waiting().get("refused-0", ""))
    brokers.source.faults.remove(refused)
    wait_until(lambda: ("refused", 0, 0, OPEN_END) in driver.rows)


def test_error_that_time_does_not_heal_is_a_warning(brokers: TwoBrokers, stack: ExitStack) -> None:
    for name in ("topic", "later"):
        brokers.topic(name, 1)
    driver = begun(stack, brokers, {"topic": 1})
    brokers.source.faults.add(ApiKey.OFFSET_FETCH, times=None, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    driver.work.add(PreparedTopic("later", "later", 1))
    wait_until(lambda: bool(driver.warnings))
    assert "GROUP_AUTHORIZATION_FAILED" in driver.warnings[0]


@pytest.mark.parametrize(("streams", "cores", "tasks"), [(4, 2, 2), (4, 8, 4), (1, 8, 1), (None, 8, 1)])
def test_as_many_tasks_are_of_use_as_can_run_and_fill_their_requests(
    brokers: TwoBrokers, stack: ExitStack, streams: int | None, cores: int, tasks: int
) -> None:
    brokers.topic("wide", 4)
    driver = begun(stack, brokers, {"wide": 4}, streams=streams)
    wait_until(lambda: len(driver.rows) == 4)
    assert driver.places.tasks_of_use(cores) == tasks


# With an end


def test_range_until_an_offset_waits_for_its_records(brokers: TwoBrokers, stack: ExitStack) -> None:
    (history,) = brokers.topic("topic", 1)
    history.plain(3)
    driver = begun(stack, brokers, {"topic": 1}, until=Until(offset=7))
    awaited(driver, ("topic", 0, 0, 3))
    history.plain(9)
    awaited(driver, ("topic", 0, 0, 7))


def test_once_that_gets_no_answer_fails(
    brokers: TwoBrokers, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic("topic", 1)
    brokers.source.faults.add(ApiKey.LIST_OFFSETS, times=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ShoalError, match="TOPIC_AUTHORIZATION_FAILED"):
        begun(stack, brokers, {"topic": 1}, once=True)
