"""Copies that were deleted or truncated are found even if no record is to be copied."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.mirroring.driver.lookout import CopyWatch, Lookout
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.changes import Prepared, PreparedTopic
from shoal.mirroring.prepare.copies import CopyState, compare_copies
from shoal.mirroring.prepare.create import prepare
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from tests.running_mirror import running
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched
from tests.world.faults import answers
from tests.world.history import History
from tests.world.logs import lose_tail
from tests.world.waiting import wait_until

PARTITION = TopicPartition("topic", 0)


@pytest.fixture
def mirrored(brokers: TwoBrokers, history: History) -> TwoBrokers:
    """A topic of which all is mirrored."""
    history.plain(3, 4)
    assert brokers.run().complete
    return brokers


def delete_copy(brokers: TwoBrokers) -> None:
    brokers.destination.topics.delete(brokers.destination.topics.topic("topic"))


def recreate_copy(brokers: TwoBrokers) -> None:
    delete_copy(brokers)
    brokers.destination.create_topic("topic", 1)


def states(brokers: TwoBrokers, *partitions: TopicPartition) -> dict[TopicPartition, CopyState]:
    wanted = partitions or (PARTITION,)
    with Cluster(brokers.settings.source) as source, Cluster(brokers.settings.destination) as destination:
        positions = GroupPositions(source, "mirror", MemberId).read(wanted)
        destination.refresh({each.topic for each in wanted})
        return compare_copies(destination, positions, {each: each for each in wanted})


# Comparing


def test_copy_with_silent_leader_is_unseen(mirrored: TwoBrokers) -> None:
    mirrored.destination.faults.add(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, times=None, error=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    lose_tail(mirrored.destination, "topic", 3)
    assert states(mirrored) == {PARTITION: CopyState.UNSEEN}


def test_many_partitions_take_one_request_per_broker(brokers: TwoBrokers) -> None:
    for history in brokers.topic("topic", 30):
        history.plain(1)
    brokers.run()
    asked: list[Any] = []

    def note(response: Any) -> Any:
        asked.append(response)
        return response

    answers(brokers.destination, ApiKey.OFFSET_FOR_LEADER_EPOCH, note, 99)
    partitions = [TopicPartition("topic", number) for number in range(30)]
    assert states(brokers, *partitions) == {}
    assert len(asked) == 1


# At the start


def options_of(brokers: TwoBrokers, **changes: Any) -> MirrorOptions:
    wanted: dict[str, Any] = {
        "topics": TopicSelection("topic"),
        "group": "mirror",
        "refresh_s": 1.0,
        "timing": Timing(deletion_confirmed_s=0.0),
    }
    return replace(
        MirrorOptions(brokers.settings.source, brokers.settings.destination, wanted.pop("topics")),
        **(wanted | changes),
    )


def prepared(brokers: TwoBrokers, **changes: Any) -> Prepared:
    options = options_of(brokers, **changes)
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        return prepare(options, source, destination)


def test_copy_back_at_the_second_look_is_not_deleted(mirrored: TwoBrokers) -> None:
    # The broker that answers first may just have started.
    mirrored.destination.faults.add(
        ApiKey.METADATA, times=1, topic="topic", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    topic = prepared(mirrored).topics["topic"]
    assert (topic.deleted, topic.creation) == (None, None)


# While it runs


class Control:
    """The partitions that the next tasks have to align, in one list for each finding."""

    def __init__(self) -> None:
        self.recalled: list[list[TopicPartition]] = []

    def recall(self, partitions: Iterable[TopicPartition]) -> None:
        self.recalled.append(list(partitions))


class Driver:
    """A mirror's driver, and its watch's reports."""

    def __init__(self, brokers: TwoBrokers, **changes: Any) -> None:
        self.metrics = Metrics()
        self.metrics.expect({PARTITION: 7}, {PARTITION: 7})
        self.warnings: list[str] = []
        self.notices: list[str] = []
        self._brokers = brokers
        self._changes = changes
        self.options = options_of(brokers, **changes)
        self._control = Control()
        parts = running(
            self.options,
            PartitionSchedule({"topic": PreparedTopic("topic", "topic", 1)}, self.metrics),
            self.metrics,
            control=self._control,
            warn=self.warnings.append,
            notify=self.notices.append,
        )
        self.lookout = Lookout(parts, CopyWatch(parts, self._create_again))

    @property
    def doubted(self) -> list[list[TopicPartition]]:
        return self._control.recalled

    def _create_again(self, topics: Collection[str]) -> Collection[str]:
        assert list(topics) == ["topic"]
        return prepared(self._brokers, **self._changes).warnings

    def look(self) -> None:
        with Cluster(self.options.source) as source, Cluster(self.options.destination) as destination:
            self.lookout.look(source, destination)


def test_differing_setting_of_a_recreated_copy_warns_once(brokers: TwoBrokers) -> None:
    brokers.source.create_topic("topic", 1, {"segment.ms": "1"})
    brokers.destination.create_topic("topic", 1)
    driver = Driver(brokers)
    for _ in range(2):
        delete_copy(brokers)
        driver.look()
    (warning,) = driver.warnings
    assert "segment.ms=1 " in warning


def test_copy_deleted_before_its_first_commit_is_recreated_and_filled(
    brokers: TwoBrokers, history: History
) -> None:
    """Nothing was written to it: the first position is committed before."""
    history.plain(3, 4)
    driver = Driver(brokers)
    delete_copy(brokers)
    control = Watched()
    # With quick retries the task itself would soon be sure that the copy is gone, and stop.
    running = brokers.with_settings(timing=Timing()).start(control=control)
    wait_until(lambda: any("UNKNOWN_TOPIC" in each for each in control.waited_for))
    driver.look()
    assert running.result().complete
    brokers.assert_exact(history)
    assert driver.metrics.progress().incidents == ()
    (notice,) = driver.notices
    assert all(each in notice for each in ("topic topic", "created again"))


def test_copy_deleted_with_its_source_topic_is_recreated(mirrored: TwoBrokers) -> None:
    """Kafka deletes the positions of a deleted topic, and nothing of the new one was mirrored."""
    driver = Driver(mirrored)
    driver.look()
    mirrored.source.topics.delete(mirrored.source.topics.topic("topic"))
    mirrored.source.create_topic("topic", 1)
    mirrored.forget_pairs()
    delete_copy(mirrored)
    driver.look()
    assert driver.metrics.stopped() == []
    assert mirrored.destination.topics.get("topic") is not None


def test_copy_without_position_back_at_the_second_look_is_kept(brokers: TwoBrokers, history: History) -> None:
    driver = Driver(brokers)
    gone = brokers.destination.faults.add(
        ApiKey.METADATA, times=1, topic="topic", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    created = brokers.destination.faults.add(ApiKey.CREATE_TOPICS, times=None)
    driver.look()
    assert (gone.hits, created.hits) == (1, 0)


@pytest.mark.parametrize(
    "damage", [recreate_copy, lambda brokers: lose_tail(brokers.destination, "topic", 3)]
)
def test_copy_with_lost_records_is_given_to_a_task_once(mirrored: TwoBrokers, damage: Any) -> None:
    driver = Driver(mirrored)
    damage(mirrored)
    driver.look()
    driver.look()
    assert driver.doubted == [[PARTITION]]


def test_uncommitted_records_are_no_loss(mirrored: TwoBrokers) -> None:
    driver = Driver(mirrored)
    History(mirrored.destination.log("topic")).plain(1)
    driver.look()
    assert driver.doubted == []


def test_watch_looks_at_each_refresh_and_survives_errors(mirrored: TwoBrokers) -> None:
    mirrored.source.faults.add(ApiKey.OFFSET_FETCH, times=2, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    driver = Driver(mirrored)
    delete_copy(mirrored)
    with driver.lookout:
        wait_until(lambda: bool(driver.metrics.stopped()))
    (warning,) = driver.warnings
    assert all(each in warning for each in ("cannot be compared", "GROUP_AUTHORIZATION_FAILED"))
