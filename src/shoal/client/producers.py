"""The producers of a partition that its leader still remembers."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProtocolError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition
from .cluster import Cluster

__all__ = ["ActiveProducer", "active_producers", "last_sequence"]


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
