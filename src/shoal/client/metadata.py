"""What a cluster says of itself: brokers, topics, partitions, leaders."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..error_codes import ErrorCode
from ..errors import ProtocolError
from ..net.address import Address
from ..topic_partition import TopicPartition

__all__ = ["Metadata", "PartitionMetadata", "TopicMetadata", "leader_in", "read_metadata"]


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """
    Attributes:
        leader: The leader's node id, or -1 while there is none.
        leader_epoch: Its epoch, or -1 where the broker is too old to tell.
        replicas: Node ids.
        in_sync: Node ids of the in-sync replicas.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """
    Attributes:
        topic_id: None where the broker is too old to have ids.
        internal: Whether Kafka keeps its own state in it.
        partitions: By number.
    """

    name: str
    topic_id: uuid.UUID | None
    internal: bool
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class Metadata:
    """
    Attributes:
        cluster_id: None where the broker is too old to have one.
        brokers: By node id.
        controller: A node id.
        topics: By name: those that exist and may be described.
        errors: Kafka's code for each topic that was asked for and is not in ``topics``.
    """

    cluster_id: str | None
    brokers: Mapping[int, Address]
    controller: int
    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, int]

    def with_others_from(self, older: Metadata) -> Metadata:
        """Return this metadata, and older knowledge of the topics that it does not speak of."""
        others = {
            name: topic
            for name, topic in older.topics.items()
            if name not in self.topics and name not in self.errors
        }
        return replace(self, topics={**others, **self.topics})


def leader_in(metadata: Metadata | None, partition: TopicPartition) -> int | None:
    """Return a partition's leader by node id; None where it has none, or nobody knows."""
    topic = metadata.topics.get(partition.topic) if metadata else None
    found = topic.partitions.get(partition.partition) if topic else None
    return found.leader if metadata and found and found.leader in metadata.brokers else None


def read_metadata(response: Any) -> Metadata:
    """
    Take what matters out of a Metadata response.

    Raises:
        ProtocolError: It has a topic without a name, although none was asked for by its id.

    """
    topics, errors = {}, {}
    for topic in response.topics:
        if topic.name is None:
            raise ProtocolError("a MetadataResponse with a topic that has no name")
        if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            topics[topic.name] = _read_topic(topic)
        else:
            errors[topic.name] = topic.error_code
    brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
    return Metadata(response.cluster_id, brokers, response.controller_id, topics, errors)


def _read_topic(topic: Any) -> TopicMetadata:
    partitions = {
        partition.partition_index: PartitionMetadata(
            partition.leader_id,
            partition.leader_epoch if partition.leader_epoch is not None else -1,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in topic.partitions
    }
    return TopicMetadata(topic.name, _topic_id(topic), bool(topic.is_internal), partitions)


def _topic_id(topic: Any) -> uuid.UUID | None:
    topic_id = getattr(topic, "topic_id", None)
    return topic_id if isinstance(topic_id, uuid.UUID) and topic_id.int else None
