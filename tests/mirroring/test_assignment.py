"""The ranges to copy, and their assignment to tasks."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.offsets import EARLIEST, LATEST
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected
from shoal.mirroring.assignment import (
    Wanted,
    assign_tasks,
    end_offsets,
    partitions_of,
    share_out,
    start_offsets,
)
from shoal.mirroring.model.ranges import CopyRange
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers
from tests.world.faults import leads_elsewhere
from tests.world.history import COMMIT, NOW_MS, History

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
    dirty = replace(brokers.settings.source, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    with Cluster(brokers.settings.source) as cluster, Cluster(dirty) as uncommitted:
        partitions_of(cluster, ["topic"])
        partitions_of(uncommitted, ["topic"])
        assert end_offsets(cluster, [FIRST]) == {FIRST: 3}
        assert end_offsets(uncommitted, [FIRST]) == {FIRST: 6}
        history.marker(COMMIT, 9)
        assert end_offsets(cluster, [FIRST]) == {FIRST: 7}
        assert end_offsets(cluster, []) == {}


def test_start_at_a_time_is_the_first_later_record_or_the_end(brokers: TwoBrokers, history: History) -> None:
    for age_ms in (3_000, 2_000, 1_000):
        history.base_timestamp = NOW_MS - age_ms
        history.plain(2)
    with Cluster(brokers.settings.source) as cluster:
        partitions_of(cluster, ["topic"])

        def start(timestamp_ms: int) -> int:
            return start_offsets(cluster, [FIRST], timestamp_ms)[FIRST]

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
            end_offsets(cluster, partitions)
        assert end_offsets(cluster, partitions, all_of_them=False) == {("topic", 1): 0}
        brokers.source.faults.add(ApiKey.LIST_OFFSETS, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            end_offsets(cluster, partitions, all_of_them=False)


@st.composite
def dealt(draw: st.DrawFn) -> tuple[list[Wanted], int]:
    weights = draw(st.lists(st.integers(0, 1000), max_size=30))
    brokers = st.tuples(st.integers(1, 3), st.integers(1, 3)) | st.just((-1, -1))
    ranges = [CopyRange("topic", number, "topic", 0, 1) for number in range(len(weights))]
    wanted = [Wanted(each, draw(brokers), weight) for each, weight in zip(ranges, weights, strict=True)]
    return wanted, draw(st.integers(1, 8))


@given(dealt())
def test_partitions_of_the_same_leaders_stay_together(deal: tuple[list[Wanted], int]) -> None:
    leaders = {each.range: each.leaders for each in deal[0]}
    order = [leaders[each] for task in assign_tasks(*deal) for each in task]
    changes = sum(before != after for before, after in pairwise(order))
    assert changes == max(0, len(set(order)) - 1)


def test_equal_partitions_are_distributed_evenly() -> None:
    wanted = wanted_of(dict.fromkeys(range(12), 100))
    assert [len(task) for task in assign_tasks(wanted.values(), 4)] == [3, 3, 3, 3]


def wanted_of(weights: dict[int, int], leaders: int = 1) -> dict[TopicPartition, Wanted]:
    return {
        TopicPartition("topic", number): Wanted(
            CopyRange("topic", number, "topic", 0, 1), (number % leaders, 0), weight
        )
        for number, weight in weights.items()
    }


def of_each(shared: dict[TopicPartition, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition, member in sorted(shared.items()):
        found.setdefault(member, []).append(partition.partition)
    return found


def test_share_out_moves_no_partition_of_even_tasks() -> None:
    wanted = wanted_of({0: 5, 1: 7, 2: 6, 3: 5}, leaders=4)
    holders = {each: "ab"[each.partition % 2] for each in wanted}
    assert share_out(wanted, ["a", "b"], holders) == holders


def test_share_out_gives_partitions_of_a_task_that_is_gone_to_the_others() -> None:
    wanted = wanted_of(dict.fromkeys(range(6), 5), leaders=6)
    holders = {each: "abc"[each.partition % 3] for each in wanted}
    shared = share_out(wanted, ["a", "b"], holders)
    assert {each: shared[each] for each, holder in holders.items() if holder != "c"} == {
        each: holder for each, holder in holders.items() if holder != "c"
    }
    assert [len(each) for each in of_each(shared).values()] == [3, 3]


def test_share_out_moves_half_of_them_to_a_task_that_joined() -> None:
    wanted = wanted_of(dict.fromkeys(range(4), 5), leaders=4)
    shared = share_out(wanted, ["a", "b"], dict.fromkeys(wanted, "a"))
    assert [len(each) for each in of_each(shared).values()] == [2, 2]


def test_share_out_separates_busy_partitions() -> None:
    wanted = wanted_of({0: 1000, 1: 1000, **dict.fromkeys(range(2, 16), 0)})
    shared = share_out(wanted, ["a", "b"], dict.fromkeys(wanted, "a"))
    assert shared[TopicPartition("topic", 0)] != shared[TopicPartition("topic", 1)]


def test_share_out_needs_no_more_tasks_than_fill_their_requests() -> None:
    wanted = wanted_of(dict.fromkeys(range(4), 5))
    assert len(of_each(share_out(wanted, ["a", "b", "c"], {}))) == 1


@given(
    st.dictionaries(st.integers(0, 30), st.integers(0, 100), min_size=1),
    st.integers(1, 6),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_share_out_gives_each_partition_to_one_task_and_is_settled(
    weights: dict[int, int], leaders: int, tasks: int, dice: random.Random
) -> None:
    wanted = wanted_of(weights, leaders)
    members = list(range(tasks))
    holders = {each: dice.randrange(tasks + 1) for each in wanted if dice.random() < 0.8}
    shared = share_out(wanted, members, holders)
    assert shared.keys() == wanted.keys()
    assert set(shared.values()) <= set(members)
    assert share_out(wanted, members, shared) == shared
