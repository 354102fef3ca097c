"""The last sequence of a producer, as its partition's leader has it."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.client.broker_state import last_sequence
from shoal.client.cluster import Cluster
from shoal.client.connection import Connection
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests import batches
from tests.two_brokers import answers, config_of

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Any:
    with Broker() as started:
        started.create_topic("orders")
        written = batches.batch(3, producer_id=7, producer_epoch=0, base_sequence=5)
        started.log("orders").store(memoryview(written))
        yield started


def ask(broker: Broker, producer_id: int) -> int | None:
    with Cluster(config_of("a", broker)) as cluster:
        cluster.refresh(["orders"])
        return last_sequence(cluster, ORDERS, producer_id)


def test_last_sequence_of_known_producer_is_that_of_its_last_record(broker: Broker) -> None:
    assert ask(broker, 7) == 7


def test_last_sequence_of_unknown_producer_is_none(broker: Broker) -> None:
    assert ask(broker, 8) is None


def test_last_sequence_of_broker_without_the_api_is_none(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "speaks", lambda self, api: api is not ApiKey.DESCRIBE_PRODUCERS)
    assert ask(broker, 7) is None


def test_last_sequence_refused_by_the_leader_raises(broker: Broker) -> None:
    broker.faults.add(ApiKey.DESCRIBE_PRODUCERS, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="DescribeProducers of orders-0"):
        ask(broker, 7)


def test_last_sequence_answer_without_the_partition_raises(broker: Broker) -> None:
    def empty(response: Any) -> Any:
        response.topics = []
        return response

    answers(broker, ApiKey.DESCRIBE_PRODUCERS, empty)
    with pytest.raises(ProtocolError, match=r"another.*partition"):
        ask(broker, 7)
