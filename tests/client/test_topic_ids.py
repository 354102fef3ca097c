"""A fetcher lists topics by id if all have one and the broker supports it (KIP-516)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.fetch import Fetcher, FetchFrom
from shoal.error_codes import ErrorCode
from shoal.errors import ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState
from tests.client.turns import turn
from tests.world.faults import answers
from tests.world.history import History

FIRST, OTHER = TopicPartition("topic", 0), TopicPartition("other", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 3)
        running.create_topic("other")
        yield running


@pytest.fixture
def versions(broker: Broker) -> list[tuple[ApiKey, int]]:
    """The versions of the requests that reach the broker."""
    seen: list[tuple[ApiKey, int]] = []

    def watched(key: ApiKey) -> Any:
        before = broker.apis[key]

        def handle(broker: BrokerState, call: Call, request: Any) -> Any:
            seen.append((key, call.version))
            return before.handle(broker, call, request)

        return replace(before, handle=handle)

    broker.apis = {**broker.apis, **{key: watched(key) for key in (ApiKey.FETCH, ApiKey.PRODUCE)}}
    return seen


@pytest.fixture
def fetcher(broker: Broker, cluster: Cluster) -> Iterator[Fetcher]:
    opened = Fetcher(
        cluster.connect(broker.node_id),
        buffer_bytes=4 * 1024 * 1024,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        max_wait_ms=10,
    )
    yield opened
    opened.close()


def id_in(broker: Broker, partition: TopicPartition) -> uuid.UUID:
    return broker.topics.topic(partition.topic).topic_id


def recreate(broker: Broker, topic: str) -> None:
    broker.topics.delete(broker.topics.topic(topic))
    broker.create_topic(topic)


def by_id(broker: Broker, partition: TopicPartition, offset: int = 0) -> FetchFrom:
    return FetchFrom(partition, offset, topic_id=id_in(broker, partition))


def test_topics_with_ids_are_fetched_by_id(
    fetcher: Fetcher, broker: Broker, versions: list[tuple[ApiKey, int]]
) -> None:
    History(broker.log(*FIRST)).plain(3)
    fetched = turn(fetcher, by_id(broker, FIRST), by_id(broker, OTHER))
    assert {partition: each.high_watermark for partition, each in fetched.items()} == {FIRST: 3, OTHER: 0}
    assert len(fetched[FIRST].record_set)
    assert turn(fetcher, by_id(broker, FIRST, 3)) == {}
    fetcher.forget(OTHER)
    History(broker.log(*OTHER)).plain(1)
    assert turn(fetcher) == {}
    assert versions == [(ApiKey.FETCH, 13)] * 3


def test_session_with_one_topic_without_id_uses_names(
    fetcher: Fetcher, broker: Broker, versions: list[tuple[ApiKey, int]]
) -> None:
    turn(fetcher, by_id(broker, FIRST))
    assert turn(fetcher, FetchFrom(OTHER, 0)).keys() == {FIRST, OTHER}, "a new session, asked for in full"
    turn(fetcher, FetchFrom(OTHER, 1))
    fetcher.forget(OTHER)
    turn(fetcher)
    fetcher.start_over()
    assert turn(fetcher).keys() == {FIRST}
    assert [version for _, version in versions] == [13, 12, 12, 12, 13]


def test_former_topic_id_is_refused_and_the_new_one_is_fetched(fetcher: Fetcher, broker: Broker) -> None:
    turn(fetcher, by_id(broker, FIRST), by_id(broker, OTHER))
    recreate(broker, "topic")
    History(broker.log(*FIRST)).plain(3)
    History(broker.log(*OTHER)).plain(2)
    fetched = turn(fetcher)
    assert fetched[FIRST].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert (fetched[OTHER].error_code, fetched[OTHER].high_watermark) == (ErrorCode.NONE, 2)
    fetcher.start_over()
    assert turn(fetcher)[FIRST].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    found = turn(fetcher, by_id(broker, FIRST))[FIRST]
    assert (found.error_code, found.high_watermark, len(found.record_set) > 0) == (ErrorCode.NONE, 3, True)


def test_response_for_an_unrequested_topic_id_closes_the_connection(fetcher: Fetcher, broker: Broker) -> None:
    def of_another(response: FetchResponse) -> FetchResponse:
        changed = [replace(each, topic_id=uuid.UUID(int=7)) for each in response.partitions]
        return replace(response, partitions=changed)

    answers(broker, ApiKey.FETCH, of_another)
    fetcher.ask(by_id(broker, FIRST))
    fetcher.send()
    with pytest.raises(ProtocolError, match=r"request.*list"):
        fetcher.receive()
    assert fetcher.connection.closed
