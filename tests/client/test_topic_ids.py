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
from shoal.errors import ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState
from tests.client.turns import turn
from tests.world.faults import answers

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


def by_id(broker: Broker, partition: TopicPartition, offset: int = 0) -> FetchFrom:
    return FetchFrom(partition, offset, topic_id=id_in(broker, partition))


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
