"""
The state of brokers besides their logs.

That is producers and transactions (KIP-664), the operations that a principal may do (KIP-430), and the
controller's clock. Kafka's protocol has no request for a broker's clock, but one response contains it.
DescribeQuorum v1 (KIP-836, Kafka 3.3) has for each voter the time at which it caught up last. For the leader,
the active controller, that is its current wall clock (``LeaderState.describeReplicaState``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..error_codes import ErrorCode
from ..errors import ProtocolError, ShoalError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition
from .acls import AclOperation
from .cluster import Cluster
from .connection import Connection
from .groups import descriptions

__all__ = [
    "ActiveProducer",
    "active_producers",
    "controller_ahead_ms",
    "coordinated_partitions",
    "group_operations",
    "last_sequence",
    "topic_operations",
]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """
    A producer that a leader remembers.

    Attributes:
        producer_id: Its id.
        producer_epoch: The newest epoch of that id.
        last_sequence: The sequence of its last record; -1 if it sent none.
        last_timestamp_ms: The largest timestamp of its last batch, in milliseconds since 1970.
        transaction_start: The first offset of its open transaction; None without one.

    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int | None


def last_sequence(cluster: Cluster, partition: TopicPartition, producer_id: int) -> int | None:
    """
    Ask a partition's leader for the last sequence of a producer.

    Args:
        cluster: The cluster, with metadata of the partition.

    Returns:
        None if the leader does not know the producer, or is older than DescribeProducers (Kafka 2.8).

    Raises:
        BrokerError: The leader refuses; this takes READ on the topic.
        ProtocolError: The response is for another partition.

    """
    for producer in active_producers(cluster, partition) or ():
        if producer.producer_id == producer_id and producer.last_sequence >= 0:
            return producer.last_sequence
    return None


def active_producers(cluster: Cluster, partition: TopicPartition) -> list[ActiveProducer] | None:
    """
    Ask a partition's leader for the producers that it remembers.

    Args:
        cluster: The cluster, with metadata of the partition.

    Returns:
        None if the leader is older than DescribeProducers (Kafka 2.8).

    Raises:
        BrokerError: The leader refuses; this takes READ on the topic.
        ProtocolError: The response is for another partition.

    """
    connection = cluster.connection(cluster.partition(partition).leader)
    if not connection.speaks(ApiKey.DESCRIBE_PRODUCERS):
        return None
    topic = request_class(ApiKey.DESCRIBE_PRODUCERS).TopicRequest
    response = connection.request(
        ApiKey.DESCRIBE_PRODUCERS,
        topics=[topic(name=partition.topic, partition_indexes=[partition.partition])],
    )
    where = f"DescribeProducers of {partition} on {cluster}"
    try:
        (answered,) = response.topics
        (described,) = answered.partitions
    except ValueError as error:
        raise ProtocolError(f"{where}: an answer for another partition") from error
    raise_for(described.error_code, where, described.error_message)
    return [
        ActiveProducer(
            producer_id=int(each.producer_id),
            producer_epoch=int(each.producer_epoch),
            last_sequence=int(each.last_sequence),
            last_timestamp_ms=int(each.last_timestamp),
            transaction_start=start if (start := int(each.current_txn_start_offset)) >= 0 else None,
        )
        for each in described.active_producers
    ]


#: A transaction that the coordinator ends, or has begun to end: its markers follow.
_OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def coordinated_partitions(
    cluster: Cluster, producer_ids: Iterable[int]
) -> set[tuple[int, TopicPartition]] | None:
    """
    Ask all brokers which partitions are part of the open transactions that they coordinate.

    A coordinator lists the transactional ids alone that the client may describe.

    Args:
        cluster: The cluster, with metadata.
        producer_ids: The producers of the transactions.

    Returns:
        Each producer id with each partition of its open transaction; None if a broker is older than
        ListTransactions (Kafka 3.0).

    Raises:
        ShoalError: A broker refuses, or does not answer.

    """
    wanted = sorted(set(producer_ids))
    found: set[tuple[int, TopicPartition]] = set()
    for node_id in list(cluster.metadata.brokers):
        connection = cluster.connection(node_id)
        if not connection.speaks(ApiKey.LIST_TRANSACTIONS):
            return None
        listed = connection.request(ApiKey.LIST_TRANSACTIONS, state_filters=[], producer_id_filters=wanted)
        raise_for(listed.error_code, f"ListTransactions on {cluster}")
        names = [
            each.transactional_id
            for each in listed.transaction_states
            if each.transaction_state in _OPEN_STATES
        ]
        if names:
            found |= _described(cluster, connection, names)
    return found


def _described(
    cluster: Cluster, connection: Connection, transactional_ids: list[str]
) -> set[tuple[int, TopicPartition]]:
    answer = connection.request(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=transactional_ids)
    for each in answer.transaction_states:
        # Without an answer, such as of a coordinator that moves, the transaction may be open all the same.
        if each.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise_for(each.error_code, f"DescribeTransactions of {each.transactional_id!r} on {cluster}")
    return {
        (int(each.producer_id), TopicPartition(topic.topic, partition))
        for each in answer.transaction_states
        if each.transaction_state in _OPEN_STATES
        for topic in each.topics
        for partition in topic.partitions
    }


_OPERATIONS = {each.value: each.name for each in AclOperation}

_REFUSED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})


def topic_operations(cluster: Cluster, topics: Iterable[str]) -> dict[str, frozenset[str] | None]:
    """
    Return the allowed operations by topic; None if the cluster does not return them.

    Brokers return them since Kafka 2.3, and only for topics that exist.

    Raises:
        Disconnected: The cluster does not answer.

    """
    topic = request_class(ApiKey.METADATA).MetadataRequestTopic
    response = cluster.ask_anyone(
        ApiKey.METADATA,
        topics=[topic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    return {
        each.name: _operations_of(each.error_code, each.authorized_operations) for each in response.topics
    }


def group_operations(cluster: Cluster, group: str) -> frozenset[str] | None:
    """
    Return the allowed operations of a group; None if the cluster does not return them.

    Sends the request to each broker, not to the group's coordinator: see :func:`~.groups.descriptions`.

    """
    for described in descriptions(cluster, group, with_operations=True):
        if described is not None:
            found = _operations_of(described.error_code, described.authorized_operations)
            if found is not None:
                return found
    return None


def _operations_of(error_code: int, bits: Any) -> frozenset[str] | None:
    """Read a set of bits; None if the broker is too old or returns none."""
    if error_code in _REFUSED:
        return frozenset()
    if error_code or not isinstance(bits, (set, frozenset)):
        return None
    return frozenset(_OPERATIONS[bit] for bit in bits if bit in _OPERATIONS)


_METADATA_TOPIC = "__cluster_metadata"


def controller_ahead_ms(cluster: Cluster) -> float | None:
    """
    Return how far the controller's clock is ahead of ours, exact to half of the request's duration.

    Returns:
        Milliseconds, below 0 if it is behind. None if the cluster uses ZooKeeper, is older than Kafka 3.3, or
        does not allow this principal DESCRIBE on the cluster.

    """
    asked_ms = time.time() * 1000
    try:
        reading_ms = _controller_ms(cluster)
    except ShoalError:
        return None
    return reading_ms - (asked_ms + time.time() * 1000) / 2


def _controller_ms(cluster: Cluster) -> int:
    topic = request_class(ApiKey.DESCRIBE_QUORUM).TopicData
    response = cluster.any_connection().request(
        ApiKey.DESCRIBE_QUORUM,
        topics=[topic(topic_name=_METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)])],
    )
    raise_for(response.error_code, f"DescribeQuorum of {cluster}", right="DESCRIBE on the cluster")
    for described in response.topics:
        for partition in described.partitions:
            raise_for(partition.error_code, f"DescribeQuorum of {cluster}", right="DESCRIBE on the cluster")
            for voter in partition.current_voters:
                if voter.replica_id == partition.leader_id and voter.last_caught_up_timestamp > 0:
                    return int(voter.last_caught_up_timestamp)
    raise ProtocolError(f"{cluster} describes a quorum without its leader")
