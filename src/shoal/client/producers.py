"""The producers of a partition that its leader still remembers."""

from __future__ import annotations

from ..errors import ProtocolError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition
from .cluster import Cluster

__all__ = ["last_sequence"]


def last_sequence(cluster: Cluster, partition: TopicPartition, producer_id: int) -> int | None:
    """
    Ask a partition's leader for the last sequence of a producer.

    Args:
        cluster: The cluster, with metadata of the partition.
        partition: The partition.
        producer_id: The producer.

    Returns:
        None if the leader does not know the producer, or is older than DescribeProducers (Kafka 2.8).

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
    for producer in described.active_producers:
        if producer.producer_id == producer_id and producer.last_sequence >= 0:
            return int(producer.last_sequence)
    return None
