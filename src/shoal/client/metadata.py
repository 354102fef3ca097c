"""The metadata of a cluster: brokers, topics, partitions and leaders."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..error_codes import ErrorCode
from ..errors import BrokerError, ProtocolError
from ..net.address import Address
from ..topic_partition import TopicPartition

__all__ = [
    "Metadata",
    "PartitionMetadata",
    "TopicMetadata",
    "leader_in",
    "read_coordinators",
    "read_metadata",
]


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """
    A partition in the metadata.

    Attributes:
        leader: The leader's node id, or -1 if there is none.
        leader_epoch: The leader's epoch, or -1 if the broker is too old.
        replicas: The node ids of the replicas.

    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """
    A topic in the metadata.

    Attributes:
        topic_id: The topic's id; None if the broker is too old for ids.
        internal: Whether Kafka keeps its own state in the topic.
        partitions: The partitions by number.

    """

    name: str
    topic_id: uuid.UUID | None
    internal: bool
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class Metadata:
    """
    The response to a Metadata request.

    Attributes:
        cluster_id: The cluster's id; None if the broker is too old.
        brokers: The brokers' addresses by node id.
        controller: The node id of the controller.
        topics: The topics by name that exist and that this principal may describe.
        errors: Kafka's code for each requested topic that is not in ``topics``.

    """

    cluster_id: str | None
    brokers: Mapping[int, Address]
    controller: int
    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, int]

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return the partitions of those topics that are in the metadata, by their numbers."""
        found = (self.topics[name] for name in topics if name in self.topics)
        return [TopicPartition(topic.name, number) for topic in found for number in sorted(topic.partitions)]

    def with_others_from(self, older: Metadata) -> Metadata:
        """Return this metadata with the other topics of an older response."""
        others = {
            name: topic
            for name, topic in older.topics.items()
            if name not in self.topics and name not in self.errors
        }
        return replace(self, topics={**others, **self.topics})


def leader_in(metadata: Metadata | None, partition: TopicPartition) -> int | None:
    """Return the node id of a partition's leader; None if it has none or the metadata lack it."""
    topic = metadata.topics.get(partition.topic) if metadata else None
    found = topic.partitions.get(partition.partition) if topic else None
    return found.leader if metadata and found and found.leader in metadata.brokers else None


def read_metadata(response: Any) -> Metadata:
    """
    Convert a Metadata response.

    Raises:
        ProtocolError: A topic has no name, although the request has no ids.

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
        )
        for partition in topic.partitions
    }
    return TopicMetadata(topic.name, _topic_id(topic), bool(topic.is_internal), partitions)


def _topic_id(topic: Any) -> uuid.UUID | None:
    topic_id = getattr(topic, "topic_id", None)
    return topic_id if isinstance(topic_id, uuid.UUID) and topic_id.int else None


def read_coordinators(response: Any, groups: Sequence[str], cluster: str) -> dict[str, int | BrokerError]:
    """
    Return the node id of each group's coordinator, or its error; of the first alone before Kafka 3.0.

    Args:
        response: A FindCoordinator response.
        groups: The groups of the request.
        cluster: The cluster's name in errors.

    Raises:
        ProtocolError: The response has another group.

    """
    answers = {each.key: each for each in response.coordinators or ()} or {groups[0]: response}
    if not answers.keys() <= set(groups):
        raise ProtocolError(f"the coordinator of group {groups[0]!r} on {cluster}: an answer about {answers}")
    return {
        group: BrokerError(
            each.error_code, f"the coordinator of group {group!r} on {cluster}", each.error_message
        )
        if each.error_code
        else each.node_id
        for group, each in answers.items()
    }
