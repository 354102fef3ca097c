"""A fetcher's requests in a session (KIP-227): the listed partitions, full requests and shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.fetch import Fetcher, FetchFrom
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.client.turns import turn
from tests.world.faults import answers, before_each_request
from tests.world.history import History
from tests.world.logs import begin_at

FIRST, SECOND, THIRD = (TopicPartition("topic", number) for number in range(3))
OTHER = TopicPartition("other", 0)
MIB = 1024 * 1024


@dataclass
class Asked:
    """The partitions that a Fetch request listed."""

    session_id: int
    epoch: int
    listed: list[tuple[TopicPartition, int]]
    forgotten: list[TopicPartition]
    max_bytes: dict[TopicPartition, int] = field(repr=False)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [partition for partition, _ in self.listed]


def read(request: Any) -> Asked:
    entries = [
        (TopicPartition(topic.topic, each.partition), each)
        for topic in request.topics
        for each in topic.partitions
    ]
    return Asked(
        request.session_id,
        request.session_epoch,
        [(partition, each.fetch_offset) for partition, each in entries],
        [
            TopicPartition(topic.topic, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ],
        {partition: each.partition_max_bytes for partition, each in entries},
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 3)
        running.create_topic("other")
        yield running


@pytest.fixture
def asked(broker: Broker) -> list[Asked]:
    """The requests that reach the broker."""
    seen: list[Asked] = []
    before_each_request(broker, ApiKey.FETCH, lambda request: seen.append(read(request)))
    return seen


NewFetcher = Callable[..., Fetcher]


@pytest.fixture
def new_fetcher(broker: Broker, cluster: Cluster) -> Iterator[NewFetcher]:
    opened: list[Fetcher] = []

    def new(buffer_bytes: int = 4 * MIB, **options: Any) -> Fetcher:
        fetcher = Fetcher(
            cluster.connect(broker.node_id),
            buffer_bytes=buffer_bytes,
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=10,
            **options,
        )
        opened.append(fetcher)
        return fetcher

    yield new
    for each in opened:
        each.close()


@pytest.fixture
def fetcher(new_fetcher: NewFetcher) -> Fetcher:
    return new_fetcher()


def history(broker: Broker, partition: TopicPartition, *counts: int) -> History:
    return History(broker.log(*partition)).plain(*counts)


def is_full(request: Asked) -> bool:
    return request.epoch <= 0


# Listed partitions


def test_request_lists_only_changed_partitions(fetcher: Fetcher, broker: Broker, asked: list[Asked]) -> None:
    everything = [FetchFrom(each, 0) for each in (FIRST, SECOND, OTHER)]
    assert turn(fetcher, *everything).keys() == {FIRST, SECOND, OTHER}
    assert turn(fetcher) == {}
    history(broker, SECOND, 2)
    assert turn(fetcher).keys() == {SECOND}
    assert turn(fetcher, FetchFrom(SECOND, 2)) == {}
    fetcher.forget(FIRST)
    history(broker, FIRST, 2)
    assert turn(fetcher, FetchFrom(THIRD, 0)).keys() == {THIRD}
    (session_id,) = {each.session_id for each in asked[1:]}
    assert session_id > 0
    assert [(each.epoch, each.listed, each.forgotten) for each in asked] == [
        (0, [(FIRST, 0), (SECOND, 0), (OTHER, 0)], []),
        (1, [], []),
        (2, [], []),
        (3, [(SECOND, 2)], []),
        (4, [(THIRD, 0)], [FIRST]),
    ]


# Sessions that end


def without_partitions(response: FetchResponse) -> FetchResponse:
    return replace(response, partitions=())


def for_others_too(response: FetchResponse) -> FetchResponse:
    more = [replace(each, topic="unknown", partition=9) for each in response.partitions]
    return replace(response, partitions=[*response.partitions, *more])


@pytest.mark.parametrize("change", [without_partitions, for_others_too])
def test_response_with_other_partitions_leads_to_a_full_request(
    fetcher: Fetcher, broker: Broker, asked: list[Asked], change: Callable[[FetchResponse], FetchResponse]
) -> None:
    answers(broker, ApiKey.FETCH, change)
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0))
    assert turn(fetcher).keys() == {FIRST, SECOND}
    turn(fetcher)
    assert [is_full(each) for each in asked] == [True, True, False]
    assert len(broker.fetch_sessions) == 1


# An answer that has nothing of a partition proves nothing


def silent(response: FetchResponse) -> FetchResponse:
    """Leave out all that has records."""
    return replace(response, partitions=[each for each in response.partitions if not each.record_set])


def test_empty_response_below_the_known_end_leads_to_a_full_request(
    fetcher: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    partly = history(broker, SECOND, 2)
    turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND)])
    partly.plain(2)
    answers(broker, ApiKey.FETCH, silent)
    assert turn(fetcher, FetchFrom(SECOND, 2)) == {}
    assert [is_full(each) for each in asked] == [True, False], "its end was 2"
    partly.plain(2)
    turn(fetcher)  # its end is 6, without a new request
    answers(broker, ApiKey.FETCH, silent)
    turn(fetcher)
    turn(fetcher)
    assert [is_full(each) for each in asked[2:]] == [False, False, True]
    assert asked[-1].partitions == [SECOND, FIRST]
    assert fetcher.first_of_full == SECOND


def test_known_end_of_the_request_counts_like_the_broker_s(fetcher: Fetcher, asked: list[Asked]) -> None:
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0, known_end=3))
    turn(fetcher)
    turn(fetcher)
    assert [is_full(each) for each in asked] == [True, False, True]
    assert asked[-1].partitions == [SECOND, FIRST]


def test_empty_throttled_response_leads_to_no_full_request(
    fetcher: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    turn(fetcher, FetchFrom(FIRST, 0, known_end=3))
    answers(broker, ApiKey.FETCH, lambda response: replace(response, throttle_time_ms=1), times=3)
    for _ in range(4):
        turn(fetcher)
    assert [is_full(each) for each in asked] == [True, False, False, False, False]


def test_empty_response_at_the_end_leads_to_no_full_request(
    fetcher: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    history(broker, FIRST, 2)
    begin_at(broker.log(*SECOND), 5)
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 5), FetchFrom(THIRD, 0))
    turn(fetcher, FetchFrom(FIRST, 2))
    for _ in range(3):
        turn(fetcher)
    assert [is_full(each) for each in asked] == [True] + [False] * 4


def test_partition_unserved_for_long_is_requested_first(
    new_fetcher: NewFetcher, broker: Broker, asked: list[Asked]
) -> None:
    fetcher = new_fetcher(timing=Timing(longest_left_out_s=0.0))
    busy = history(broker, FIRST, 1)
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0, known_end=9))
    for offset in (1, 2):
        busy.plain(1)
        assert len(turn(fetcher, FetchFrom(FIRST, offset))[FIRST].record_set)
    assert [is_full(each) for each in asked] == [True, False, True]
    assert asked[-1].partitions == [SECOND, FIRST]


# Shares of the response


def test_busy_partition_has_the_whole_response(
    new_fetcher: NewFetcher, broker: Broker, asked: list[Asked]
) -> None:
    fetcher = new_fetcher(buffer_bytes=8 * MIB)
    all_of_it = 8 * MIB - 65_536
    busy = history(broker, FIRST, 1)
    turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND, THIRD, OTHER)])
    assert set(asked[-1].max_bytes.values()) == {all_of_it // 4}
    busy.plain(1)
    turn(fetcher, FetchFrom(FIRST, 1))
    assert asked[-1].max_bytes == {FIRST: all_of_it}


@pytest.mark.parametrize(("busy_for_s", "share"), [(60.0, 2), (0.0, 1)])
def test_partition_with_recent_records_counts_as_busy(
    new_fetcher: NewFetcher, broker: Broker, asked: list[Asked], busy_for_s: float, share: int
) -> None:
    fetcher = new_fetcher(buffer_bytes=8 * MIB, timing=Timing(busy_for_s=busy_for_s))
    for partition in (FIRST, SECOND):
        history(broker, partition, 1)
    turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND, THIRD, OTHER)])
    turn(fetcher, FetchFrom(FIRST, 1), FetchFrom(SECOND, 1))
    assert set(asked[-1].max_bytes.values()) == {(8 * MIB - 65_536) // share}
