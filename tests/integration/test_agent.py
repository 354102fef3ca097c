"""
Real Kafka with the Java agent: several batches of a partition in one Produce request.

Every test runs on each line of Kafka versions that the agent supports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from batches import CONTROL, TRANSACTIONAL, message, patched
from integration.raw_producer import ALL_CODECS, Identity, RawProducer, following, records_in

from rig import KafkaCluster, create_topic, dump_partition, read_topic
from rig.agent import agent_jar
from rig.jars import KAFKA_3_VERSION, KAFKA_VERSION
from shoal.client.config import ClientConfig
from shoal.errors import ErrorCode
from shoal.records import Codec, split

VERSIONS = (KAFKA_VERSION, "4.1.1", KAFKA_3_VERSION)


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(version=request.param, broker_jvm={1: [f"-javaagent:{agent_jar()}"]}) as cluster:
        yield cluster


@pytest.fixture
def producer(kafka: KafkaCluster) -> Iterator[RawProducer]:
    with RawProducer(kafka.bootstrap) as connected:
        yield connected


@pytest.fixture
def created(kafka: KafkaCluster, topic: str) -> str:
    """A topic with one partition."""
    create_topic(kafka.bootstrap, topic)
    return topic


def stored(kafka: KafkaCluster, topic: str, node_id: int = 1) -> list[bytes]:
    """Return the batches in a partition's segment files, as they are."""
    segments = sorted(kafka.partition_dir(topic, 0, node_id).glob("*.log"))
    return [bytes(each.view) for file in segments for each in split(memoryview(file.read_bytes()))]


def as_sent(batches: Sequence[bytes | bytearray]) -> list[bytes]:
    """Return what a broker may not change: all from the magic on."""
    return [bytes(each[16:]) for each in batches]


@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_batches_are_written_as_they_were_sent(
    kafka: KafkaCluster, producer: RawProducer, created: str, count: int
) -> None:
    batches = following(0, count, codecs=ALL_CODECS)
    assert producer.accepted(created, batches) == 0
    assert as_sent(stored(kafka, created)) == as_sent(batches)
    dumped = dump_partition(kafka.partition_dir(created, 0), deep=True)
    assert [each.base_offset for each in dumped] == list(range(0, count * 3, 3))
    assert [each.base_sequence for each in dumped] == list(range(0, count * 3, 3))
    assert all(each.is_valid and each.partition_leader_epoch == 0 for each in dumped)
    assert [record.offset for each in dumped for record in each.records] == list(range(count * 3))
    read = read_topic(kafka.bootstrap, created)[0]
    assert [record.offset for record in read] == list(range(count * 3))
