"""Offsets of consumer groups, committed as their consumers do, and read back."""

from __future__ import annotations

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.coordinator import MemberId
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.world.clusters import config_of

__all__ = ["commit", "committed"]


def commit(
    broker: Broker, group: str, offset: int, topic: str = "topic", partition: int = 0, metadata: str = ""
) -> None:
    """Commit an offset of a group without members; not by confluent-kafka, which adds to metadata."""
    wanted = {TopicPartition(topic, partition): Committed(offset, metadata)}
    with Cluster(config_of("cluster", broker)) as cluster:
        assert commit_offsets(cluster, group, wanted, MemberId()) == {}


def committed(broker: Broker, group: str, topic: str = "topic", partition: int = 0) -> Committed | None:
    """Return the committed offset of a group, if there is one."""
    key = TopicPartition(topic, partition)
    with Cluster(config_of("cluster", broker)) as cluster:
        return fetch_offsets(cluster, group, [key]).get(key)
