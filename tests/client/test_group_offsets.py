"""The offsets of many groups, read again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from shoal.client import group_offsets
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.coordinator import MemberId
from shoal.client.group_offsets import CommittedValue, FetchedGroup, GroupOffsetsReader
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ShoalError
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey
from shoal.protocol.codec import decode_response
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)


def commit(cluster: Cluster, group: str, offset: int, partition: TopicPartition = FIRST) -> None:
    assert commit_offsets(cluster, group, {partition: Committed(offset, "m")}, MemberId()) == {}


@pytest.fixture(params=["several groups in a request", "one group in a request"])
def reader(
    request: pytest.FixtureRequest, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> GroupOffsetsReader:
    if request.param.startswith("one"):
        # As with brokers before Kafka 3.0.
        monkeypatch.setitem(cast(Any, CLIENT_VERSIONS), ApiKey.OFFSET_FETCH, (1, 7))
    return GroupOffsetsReader(cluster)


def test_read_returns_the_offsets_of_each_group(cluster: Cluster, reader: GroupOffsetsReader) -> None:
    names = [f"g{number}" for number in range(40)]  # more than fit in a request
    for number, name in enumerate(names):
        commit(cluster, name, number)
    answers = reader.read([*names, "no group"])
    assert list(answers) == [*names, "no group"]
    for number, name in enumerate(names):
        answer = answers[name]
        assert isinstance(answer, FetchedGroup)
        assert answer.topics["topic"] == {0: CommittedValue(number, "m", 0)}
    assert isinstance(answers["no group"], FetchedGroup)
    assert answers["no group"].topics == {}


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
    broker: Broker, cluster: Cluster, reader: GroupOffsetsReader, pending: Producer
) -> None:
    broker.faults.add(ApiKey.OFFSET_FETCH)  # the first request succeeds
    broker.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.NOT_COORDINATOR)
    error = reader.read(["g"], stable=True, partitions={"g": {"topic": [0, 1]}})["g"]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("partitions", "requests"), [({"topic": [0]}, 1), ({"topic": [0, 1]}, 2)])
def test_stable_read_asks_for_partitions_only_if_an_offset_is_missing(
    broker: Broker,
    cluster: Cluster,
    reader: GroupOffsetsReader,
    partitions: dict[str, list[int]],
    requests: int,
) -> None:
    commit(cluster, "g", 1)
    asked = broker.faults.add(ApiKey.OFFSET_FETCH, times=None)
    reader.read(["g"], stable=True, partitions={"g": partitions})
    assert asked.hits == requests
    reader.read(["g"], partitions={"g": partitions})
    assert asked.hits == requests + 1


def test_read_again_decodes_only_answers_that_changed(
    cluster: Cluster, reader: GroupOffsetsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{number}" for number in range(40)]
    for name in names:
        commit(cluster, name, 1)
    before = reader.read(names)
    decoded: list[ApiKey] = []

    def counted(api_key: ApiKey, *rest: Any) -> Any:
        decoded.append(api_key)
        return decode_response(api_key, *rest)

    monkeypatch.setattr(group_offsets, "decode_response", counted)
    assert reader.read(names) == before
    assert decoded == []
    commit(cluster, "g7", 2)
    assert offsets_by_name(reader.read(names)) == {**dict.fromkeys(names, 1), "g7": 2}
    assert decoded == [ApiKey.OFFSET_FETCH]


def offsets_by_name(answers: Mapping[str, FetchedGroup | ShoalError]) -> dict[str, int]:
    return {
        name: each.topics["topic"][0].offset
        for name, each in answers.items()
        if isinstance(each, FetchedGroup)
    }
