"""The offsets of many groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.coordinator import MemberId
from shoal.client.group_offsets import CommittedValue, read_groups
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ShoalError
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker

Reader = Callable[..., Mapping[str, Mapping[TopicPartition, CommittedValue] | ShoalError]]

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)


def commit(cluster: Cluster, group: str, offset: int, partition: TopicPartition = FIRST) -> None:
    assert commit_offsets(cluster, group, {partition: Committed(offset, "m")}, MemberId()) == {}


def test_commit_of_more_than_a_batch_of_the_coordinator_is_sent_in_parts(
    broker: Broker, cluster: Cluster
) -> None:
    broker.create_topic("wide", 300)
    offsets = {TopicPartition("wide", number): Committed(number, "m" * 4_000) for number in range(300)}
    assert commit_offsets(cluster, "g", offsets, MemberId()) == {}
    assert fetch_offsets(cluster, "g", None) == offsets


@pytest.fixture(params=["several groups in a request", "one group in a request"])
def reader(request: pytest.FixtureRequest, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Reader:
    if request.param.startswith("one"):
        # As with brokers before Kafka 3.0.
        monkeypatch.setitem(cast(Any, CLIENT_VERSIONS), ApiKey.OFFSET_FETCH, (1, 7))
    return partial(read_groups, cluster)


def test_read_returns_the_offsets_of_each_group(cluster: Cluster, reader: Reader) -> None:
    names = [f"g{number}" for number in range(40)]  # more than fit in a request
    for number, name in enumerate(names):
        commit(cluster, name, number)
    answers = reader([*names, "no group"])
    assert list(answers) == [*names, "no group"]
    for number, name in enumerate(names):
        assert answers[name] == {FIRST: CommittedValue(number, "m", 0)}
    assert answers["no group"] == {}


@pytest.fixture
def pending(broker: Broker, cluster: Cluster) -> Iterator[Producer]:
    """An open transaction with an offset of a partition in which group g never committed."""
    commit(cluster, "g", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions(10.0)
    producer.begin_transaction()
    metadata = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"}).consumer_group_metadata()
    producer.send_offsets_to_transaction([ConfluentPartition("topic", 1, 2)], metadata, 10.0)
    yield producer
    with suppress(KafkaException):  # it may have been committed
        producer.abort_transaction(10.0)


def test_stable_read_of_partitions_returns_the_error_of_the_second_request(
    broker: Broker, cluster: Cluster, reader: Reader, pending: Producer
) -> None:
    broker.faults.add(ApiKey.OFFSET_FETCH)  # the first request succeeds
    broker.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.NOT_COORDINATOR)
    error = reader(["g"], stable=True, partitions={"g": [FIRST, SECOND]})["g"]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("partitions", "requests"), [([FIRST], 1), ([FIRST, SECOND], 2)])
def test_stable_read_asks_for_partitions_only_if_an_offset_is_missing(
    broker: Broker,
    cluster: Cluster,
    reader: Reader,
    partitions: list[TopicPartition],
    requests: int,
) -> None:
    commit(cluster, "g", 1)
    asked = broker.faults.add(ApiKey.OFFSET_FETCH, times=None)
    reader(["g"], stable=True, partitions={"g": partitions})
    assert asked.hits == requests
    reader(["g"], partitions={"g": partitions})
    assert asked.hits == requests + 1
