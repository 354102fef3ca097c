"""Produce requests on one connection, as the copy loop makes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal.client.produce import ProduceConnection
from shoal.error_codes import ErrorCode
from shoal.errors import Disconnected, ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.records import split, stamp
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests import batches
from tests.two_brokers import answers

pytestmark = pytest.mark.timeout(30)

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)
OTHER = TopicPartition("other", 0)


@pytest.fixture
def producer(broker: Broker, cluster: Cluster) -> Iterator[ProduceConnection]:
    producer = ProduceConnection(cluster.connect(broker.node_id), timeout_ms=1_000)
    yield producer
    producer.close()


def stamped(count: int, sequence: int, producer_id: int = 9) -> memoryview:
    data = memoryview(batches.batch(count))
    (batch,) = split(data)
    stamp(batch, producer_id, 0, sequence)
    return data


def test_receive_returns_outcomes_in_request_order(broker: Broker, producer: ProduceConnection) -> None:
    for sequence in range(0, 10, 2):
        producer.send({FIRST: [stamped(2, sequence)], OTHER: [stamped(2, sequence)]})
    assert producer.in_flight == 5
    for base_offset in range(0, 10, 2):
        outcomes = producer.receive()
        assert outcomes.keys() == {FIRST, OTHER}
        assert {each.base_offset for each in outcomes.values()} == {base_offset}
    assert producer.in_flight == 0
    assert broker.log(*FIRST).log_end_offset == 10


def test_produce_with_refused_partition_acknowledges_the_others(
    broker: Broker, producer: ProduceConnection
) -> None:
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, partition=1)
    producer.send({FIRST: [stamped(1, 0)], SECOND: [stamped(1, 0)]})
    outcomes = producer.receive()
    assert outcomes[FIRST].error_code == ErrorCode.NONE
    assert outcomes[SECOND].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcomes[SECOND].base_offset == -1


def test_produce_of_two_batches_to_stock_broker_is_refused(
    broker: Broker, producer: ProduceConnection
) -> None:
    producer.send({FIRST: [stamped(1, 0), stamped(1, 1)]})
    assert producer.receive()[FIRST].error_code == ErrorCode.INVALID_RECORD
    assert broker.log(*FIRST).log_end_offset == 0


def test_produce_of_repeated_batch_returns_its_offset(broker: Broker, producer: ProduceConnection) -> None:
    for _ in range(3):
        producer.send({FIRST: [stamped(2, 0)]})
        assert producer.receive()[FIRST].base_offset == 0
    assert broker.log(*FIRST).log_end_offset == 2


def test_receive_with_other_partitions_closes_connection(broker: Broker, producer: ProduceConnection) -> None:
    def elsewhere(response: object) -> object:
        response.responses[0].partition_responses[0].index = 1  # type: ignore[attr-defined]
        return response

    answers(broker, ApiKey.PRODUCE, elsewhere)
    producer.send({FIRST: [stamped(1, 0)]})
    with pytest.raises(ProtocolError, match=r"acknowledged.*partitions"):
        producer.receive()
    with pytest.raises(Disconnected):
        producer.send({FIRST: [stamped(1, 1)]})


def test_receive_with_too_many_partitions_stops_decoding(broker: Broker, producer: ProduceConnection) -> None:
    def many(response: object) -> object:
        response.responses[0].partition_responses *= 1000  # type: ignore[attr-defined]
        return response

    answers(broker, ApiKey.PRODUCE, many)
    producer.send({FIRST: [stamped(1, 0)]})
    with pytest.raises(ProtocolError, match=r"1,000.*partitions.*1"):
        producer.receive()
    with pytest.raises(Disconnected):
        producer.send({FIRST: [stamped(1, 1)]})


@pytest.mark.parametrize("drop", ["before", "within", "after"])
def test_receive_after_lost_connection_raises(broker: Broker, producer: ProduceConnection, drop: str) -> None:
    broker.faults.add(ApiKey.PRODUCE, drop=drop)  # type: ignore[arg-type]
    producer.send({FIRST: [stamped(1, 0)]})
    with pytest.raises(Disconnected):
        producer.receive()
    assert broker.log(*FIRST).log_end_offset == (0 if drop == "before" else 1)
