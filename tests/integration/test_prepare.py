"""Topics that a mirror creates at a real cluster."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from rig import KafkaCluster, create_topic
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.changes import Prepared
from shoal.mirroring.prepare.create import prepare

#: Those that a mirror gives a copy whose source has none of its own.
OF_EACH = {
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}


def prepared(source: KafkaCluster, destination: KafkaCluster, topic: str) -> Prepared:
    left, right = (
        ClientConfig.from_properties(name, {"bootstrap.servers": cluster.bootstrap})[0]
        for name, cluster in (("source", source), ("destination", destination))
    )
    with Cluster(left) as read, Cluster(right) as written:
        return prepare(MirrorOptions(left, right, TopicSelection(topic)), read, written)


@pytest.mark.parametrize(
    ("source_config", "copy_config"),
    [
        (
            {
                "segment.ms": "3600000",
                "max.message.bytes": "2000000",
                "message.timestamp.type": "LogAppendTime",
            },
            {"cleanup.policy": "delete", "max.message.bytes": "2000000", "segment.ms": "3600000"},
        ),
        # Since Kafka 4.2, an empty policy keeps records for ever.
        ({"cleanup.policy": ""}, {"cleanup.policy": ""}),
    ],
    ids=["settings", "no policy"],
)
def test_missing_topic_is_created_like_the_source(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    topic: str,
    source_config: dict[str, str],
    copy_config: dict[str, str],
) -> None:
    create_topic(source_cluster.bootstrap, topic, partitions=3, config=source_config)
    for is_created in (True, False):
        found = prepared(source_cluster, destination_cluster, topic)
        assert (found.topics[topic].partitions, found.topics[topic].creation is not None) == (3, is_created)
        assert found.warnings == ()
    assert found.group == f"shoal.{source_cluster.cluster_id}.{destination_cluster.cluster_id}"
    assert found.producer_id_expiration_ms == 86_400_000
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": destination_cluster.bootstrap})
    entries = admin.describe_configs([resource])[resource].result()
    set_on_topic = {name: entry.value for name, entry in entries.items() if entry.source == 1}
    # The rig's brokers keep all records by default.
    assert set_on_topic == {**OF_EACH, **copy_config}
