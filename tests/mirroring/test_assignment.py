"""The ranges to copy, and their assignment to tasks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.offsets import EARLIEST, LATEST
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected
from shoal.mirroring.assignment import assign_tasks, end_offsets, partitions_of, plan_ranges, start_offsets
from shoal.mirroring.model.ranges import CopyRange
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.two_brokers import COMMIT, NOW_MS, History, TwoBrokers, leads_elsewhere

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
FIRST = TopicPartition("topic", 0)


def test_partitions_are_ordered_by_topic_and_number(brokers: TwoBrokers) -> None:
    brokers.topic("b", 2)
    brokers.topic("a", 1)
    with Cluster(brokers.settings.source) as cluster:
        assert partitions_of(cluster, ["b", "a"]) == [("b", 0), ("b", 1), ("a", 0)]
        assert partitions_of(cluster, []) == []
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            partitions_of(cluster, ["a", "missing"])


def test_topic_whose_partitions_are_not_known_yet_is_not_one_without_any(
    brokers: TwoBrokers, history: History
) -> None:
    brokers.source.faults.add(ApiKey.METADATA, error=ErrorCode.LEADER_NOT_AVAILABLE)
    with Cluster(brokers.settings.source) as cluster:
        with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
            partitions_of(cluster, ["topic"])
        assert partitions_of(cluster, ["topic"]) == [FIRST]


def test_end_offset_is_before_the_first_open_transaction(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    history.store(history.batch(2, flags=0x10, producer_id=9, producer_epoch=0))
    history.plain(1)
    with Cluster(brokers.settings.source) as cluster:
        partitions_of(cluster, ["topic"])
        assert end_offsets(cluster, [FIRST], COMMITTED) == {FIRST: 3}
        assert end_offsets(cluster, [FIRST], UNCOMMITTED) == {FIRST: 6}
        history.marker(COMMIT, 9)
        assert end_offsets(cluster, [FIRST], COMMITTED) == {FIRST: 7}
        assert end_offsets(cluster, [], COMMITTED) == {}


def test_start_at_a_time_is_the_first_later_record_or_the_end(brokers: TwoBrokers, history: History) -> None:
    for age_ms in (3_000, 2_000, 1_000):
        history.base_timestamp = NOW_MS - age_ms
        history.plain(2)
    with Cluster(brokers.settings.source) as cluster:
        partitions_of(cluster, ["topic"])

        def start(timestamp_ms: int) -> int:
            return start_offsets(cluster, [FIRST], timestamp_ms, COMMITTED)[FIRST]

        assert start(EARLIEST) == 0
        assert start(LATEST) == 6
        assert start(NOW_MS - 2_000) == 2
        assert start(0) == 0
        assert start(NOW_MS + 1_000_000) == 6
        history.log.delete_records(1)
        assert start(EARLIEST) == 1


def test_silent_leader_is_an_error_or_omitted(brokers: TwoBrokers) -> None:
    brokers.topic("topic", 2)
    leads_elsewhere(brokers.source, "topic", 0)
    with Cluster(brokers.settings.source) as cluster:
        partitions = partitions_of(cluster, ["topic"])
        with pytest.raises(Disconnected):
            end_offsets(cluster, partitions, COMMITTED)
        assert end_offsets(cluster, partitions, COMMITTED, all_of_them=False) == {("topic", 1): 0}
        brokers.source.faults.add(ApiKey.LIST_OFFSETS, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            end_offsets(cluster, partitions, COMMITTED, all_of_them=False)


@pytest.mark.parametrize(
    ("position", "end", "planned"),
    [
        (None, 9, (2, 9)),
        (None, 2, (2, 2)),  # gets its first pair
        (5, 9, (5, 9)),
        (9, 9, None),
        (11, 9, (11, 11)),  # a task finds out how that can be
        (0, 9, (0, 9)),  # a position wins, also one before the start
    ],
)
def test_plan_ranges_returns_offsets_from_position_to_end(
    position: int | None, end: int, planned: tuple[int, int] | None
) -> None:
    positions = {} if position is None else {FIRST: position}
    ranges = plan_ranges({FIRST: 2}, {FIRST: end}, positions, {"topic": "other"})
    assert ranges == ([CopyRange("topic", 0, "other", *planned)] if planned else [])


@st.composite
def dealt(draw: st.DrawFn) -> tuple[list[CopyRange], int, dict[TopicPartition, tuple[int, int]]]:
    sizes = draw(st.lists(st.integers(0, 1000), max_size=30))
    ranges = [CopyRange("topic", number, "topic", 0, size) for number, size in enumerate(sizes)]
    brokers = st.tuples(st.integers(1, 3), st.integers(1, 3))
    leaders = {each.source: draw(brokers) for each in ranges if draw(st.booleans())}
    return ranges, draw(st.integers(1, 8)), leaders


@given(dealt())
def test_each_range_is_assigned_once_to_tasks_of_similar_weight(
    deal: tuple[list[CopyRange], int, dict[TopicPartition, tuple[int, int]]],
) -> None:
    ranges, tasks_count, leaders = deal
    tasks = assign_tasks(ranges, tasks_count, leaders)
    assert sorted(each for task in tasks for each in task) == sorted(ranges)
    assert len(tasks) <= tasks_count
    assert all(tasks)
    weights = [sum(each.end_offset + 1 for each in task) for task in tasks]
    target = sum(weights) / tasks_count
    heaviest = max((each.end_offset + 1 for each in ranges), default=0)
    assert all(weight <= target + heaviest * (tasks_count + 1) / 2 for weight in weights)


@given(dealt())
def test_partitions_of_the_same_leaders_stay_together(
    deal: tuple[list[CopyRange], int, dict[TopicPartition, tuple[int, int]]],
) -> None:
    ranges, tasks_count, leaders = deal
    order = [
        leaders.get(each.source, (-1, -1))
        for task in assign_tasks(ranges, tasks_count, leaders)
        for each in task
    ]
    changes = sum(before != after for before, after in pairwise(order))
    assert changes == max(0, len(set(order)) - 1)


def test_equal_partitions_are_distributed_evenly() -> None:
    ranges = [CopyRange("topic", number, "topic", 0, 100) for number in range(12)]
    assert [len(task) for task in assign_tasks(ranges, 4, {})] == [3, 3, 3, 3]
