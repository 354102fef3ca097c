"""Real destination brokers: their clock, and the producers that they remember."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rig import KafkaCluster
from rig.load import create_topic
from shoal.client.broker_state import controller_ahead_ms
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.offsets import log_end_offsets
from shoal.net.address import parse_bootstrap
from shoal.spark import write_rows as write_module
from shoal.spark.write_rows import new_writer, write_rows
from shoal.topic_partition import TopicPartition
from tests import batches
from tests.late_requests import arrive, given_to_send
from tests.two_brokers import NOW_MS, Killed


class Row(NamedTuple):
    topic: str
    partition: int
    batch: bytes


@pytest.fixture
def destination(destination_cluster: KafkaCluster) -> ClientConfig:
    return ClientConfig("destination", tuple(parse_bootstrap(destination_cluster.bootstrap)))


def test_controller_ahead_of_real_kafka_is_near_0(destination: ClientConfig) -> None:
    with Cluster(destination) as cluster:
        assert controller_ahead_ms(cluster) == pytest.approx(0, abs=5000)


def test_late_request_of_a_failed_attempt_is_not_duplicated(
    destination_cluster: KafkaCluster,
    destination: ClientConfig,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topic(destination_cluster.bootstrap, topic, 1)
    rows = [
        Row(topic, 0, bytes(batches.batch([b"%d" % offset], base_offset=offset, base_timestamp=NOW_MS)))
        for offset in range(12)
    ]
    writer = new_writer(destination)
    given = given_to_send(monkeypatch, write_module, die_after=2)
    with pytest.raises(Killed):
        list(write_rows(rows, destination, str, False, writer))
    late = given[2]
    list(write_rows(rows, destination, str, False, writer))
    arrive(destination, [late], topic)
    partition = TopicPartition(topic, 0)
    with Cluster(destination) as cluster:
        cluster.refresh([topic])
        assert log_end_offsets(cluster, [partition])[partition] == len(rows)
