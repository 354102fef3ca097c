"""Preparing a mirror between real clusters: its topics and its messages."""

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from rig import KafkaCluster, create_topic
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.changes import Prepared
from shoal.mirroring.prepare.create import prepare
from shoal.topic_partition import TopicPartition


class Sides:
    """Both clusters, as shoal and other projects' clients see them."""

    def __init__(self, source: KafkaCluster, destination: KafkaCluster) -> None:
        self.source = source
        self.destination = destination

    def prepare(self, topics: str, rename: str | None = None, **changes: Any) -> Prepared:
        options = self._options(topics, rename, **changes)
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            prepared = prepare(options, source, destination)
            for topic in prepared.topics.values():
                for number in range(topic.partitions):
                    assert destination.partition(TopicPartition(topic.destination, number)).leader >= 0
            return prepared

    def _options(self, topics: str, rename: str | None, **changes: Any) -> MirrorOptions:
        options = MirrorOptions(
            config_of("source", self.source),
            config_of("destination", self.destination),
            TopicSelection(topics, rename=rename),
        )
        return replace(options, **changes)


def config_of(name: str, cluster: KafkaCluster) -> ClientConfig:
    config, _ = ClientConfig.from_properties(name, {"bootstrap.servers": cluster.bootstrap})
    return config


def configs_set_on(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entries = admin.describe_configs([resource])[resource].result()
    dynamic_topic_config = 1
    return {name: entry.value for name, entry in entries.items() if entry.source == dynamic_topic_config}


@pytest.fixture
def sides(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> Sides:
    return Sides(source_cluster, destination_cluster)


def test_missing_topic_is_created_like_the_source(sides: Sides, topic: str) -> None:
    create_topic(
        sides.source.bootstrap,
        topic,
        partitions=3,
        config={
            "segment.ms": "3600000",
            "max.message.bytes": "2000000",
            "message.timestamp.type": "LogAppendTime",
        },
    )
    prepared = sides.prepare(topic)
    found = prepared.topics[topic]
    assert (list(prepared.topics), found.destination, found.partitions) == ([topic], topic, 3)
    assert found.created
    assert prepared.group == f"shoal.{sides.source.cluster_id}.{sides.destination.cluster_id}"
    assert prepared.producer_id_expiration_ms == 86_400_000
    assert configs_set_on(sides.destination, topic) == {
        "compression.type": "producer",
        "cleanup.policy": "delete",
        "max.message.bytes": "2000000",
        "message.timestamp.after.max.ms": "3600000",
        "retention.bytes": "-1",
        "retention.ms": "-1",  # the rig's brokers' default
        "segment.ms": "3600000",
    }
    assert prepared.warnings == ()


def test_topic_without_a_cleanup_policy_is_created_without_one(sides: Sides, topic: str) -> None:
    """Since Kafka 4.2, an empty policy keeps records for ever."""
    create_topic(sides.source.bootstrap, topic, config={"cleanup.policy": ""})
    assert sides.prepare(topic).warnings == ()
    assert configs_set_on(sides.destination, topic)["cleanup.policy"] == ""
    assert sides.prepare(topic).warnings == ()
