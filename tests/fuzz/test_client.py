"""Brokers that answer wrongly: each call ends with a value or one of shoal's errors.

``tests/hostile`` searches for such answers; these are defects that were found.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.admin import ConfigEntry, NewTopic, create_topic, describe_broker_config, init_producer_id
from shoal.client.cluster import Cluster
from shoal.client.groups import describe_holder
from shoal.client.scan import read_batches
from shoal.errors import BrokerError, Disconnected, ProtocolError, ShoalError
from shoal.mirroring.prepare.topic_configs import TopicState
from shoal.protocol.apis import ApiKey
from shoal.records import verify_crc
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.hostile.liar import lying, saying
from tests.world.batches import batch
from tests.world.clusters import config_of


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 2)
        for offset in range(0, 9, 3):
            running.log("topic").store(batch(3, base_offset=offset))
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    # No wait is in vain here, so the timeout may be long enough for a busy machine.
    with Cluster(replace(config_of("source", broker), request_timeout_ms=20_000)) as cluster:
        cluster.refresh()
        yield cluster


def create_topic_again(cluster: Cluster) -> None:
    create_topic(cluster, NewTopic("topic", 1, 1, {}))


def read_all(cluster: Cluster) -> None:
    for each in read_batches(cluster, TopicPartition("topic", 0), 0):
        verify_crc(each)


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_response_has_all_requested_results_or_an_error(
    broker: Broker, cluster: Cluster, count: int
) -> None:
    def topics(message: Any) -> None:
        message.topics = message.topics * count

    def results(message: Any) -> None:
        message.results = message.results * count

    with saying(broker, ApiKey.CREATE_TOPICS, topics), pytest.raises(ProtocolError, match=f"{count} results"):
        create_topic_again(cluster)
    with (
        saying(broker, ApiKey.DESCRIBE_CONFIGS, results),
        pytest.raises(ProtocolError, match=f"{count} results"),
    ):
        describe_broker_config(cluster, 1)


def test_group_missing_in_the_response_has_no_holder(broker: Broker, cluster: Cluster) -> None:
    with saying(broker, ApiKey.DESCRIBE_GROUPS, lambda message: message.groups.clear()):
        assert describe_holder(cluster, "group") is None


def test_topic_without_a_name_is_refused(broker: Broker, cluster: Cluster) -> None:
    def unname(message: Any) -> None:
        message.topics[0].name = None

    with saying(broker, ApiKey.METADATA, unname), pytest.raises(ShoalError, match=r"topic.*name"):
        cluster.refresh()


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
def test_invalid_producer_identity_is_refused(
    broker: Broker, cluster: Cluster, producer_id: int, epoch: int
) -> None:
    def change(message: Any) -> None:
        message.producer_id, message.producer_epoch = producer_id, epoch

    with saying(broker, ApiKey.INIT_PRODUCER_ID, change), pytest.raises(ProtocolError, match="producer id"):
        init_producer_id(cluster)


@pytest.mark.parametrize(
    ("host", "port"),
    [("\0", 9092), ("x" * 300, 9092), ("a..b", 9092), ("127.0.0.1", -1), ("127.0.0.1", 2**31 - 1)],
)
def test_broker_with_impossible_address_is_unreachable(
    broker: Broker, cluster: Cluster, host: str, port: int
) -> None:
    def move(message: Any) -> None:
        message.brokers[0].host, message.brokers[0].port = host, port

    with saying(broker, ApiKey.METADATA, move):
        cluster.refresh()
        with pytest.raises(Disconnected):
            cluster.connection(broker.node_id)


def test_endless_throttling_ends_the_requests(broker: Broker, cluster: Cluster) -> None:
    def throttle(message: Any) -> None:
        message.throttle_time_ms, message.responses = 1, []

    with saying(broker, ApiKey.FETCH, throttle), pytest.raises(BrokerError, match="THROTTLING") as caught:
        read_all(cluster)
    assert caught.value.retriable


def test_malformed_response_closes_the_connection(broker: Broker, cluster: Cluster) -> None:
    def one_byte_more(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
        return (len(answer) - 3).to_bytes(4) + answer[4:] + b"x"

    connection = cluster.connection(broker.node_id)
    with (
        lying(broker, [ApiKey.METADATA], [one_byte_more], random.Random(), most=1),
        pytest.raises(ProtocolError),
    ):
        connection.request(ApiKey.METADATA, topics=[])
    assert connection.closed


@pytest.mark.parametrize("text", ["", "many", "1e9", "9" * 5000])
def test_configuration_without_a_number_is_refused(text: str) -> None:
    topic = TopicState(1, {"retention.ms": ConfigEntry(text, True)})
    with pytest.raises(ProtocolError, match="not a number"):
        topic.number("retention.ms", 0)
