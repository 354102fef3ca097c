"""The transactions that coordinators have open (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import raise_for
from ..protocol.apis import ApiKey
from ..topic_partition import TopicPartition
from .cluster import Cluster
from .connection import Connection

__all__ = ["coordinated_partitions"]

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
            found |= _described(connection, names)
    return found


def _described(connection: Connection, transactional_ids: list[str]) -> set[tuple[int, TopicPartition]]:
    answer = connection.request(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=transactional_ids)
    return {
        (int(each.producer_id), TopicPartition(topic.topic, partition))
        for each in answer.transaction_states
        # Of an error, such as a coordinator that moves, the next question shows more.
        if not each.error_code and each.transaction_state in _OPEN_STATES
        for topic in each.topics
        for partition in topic.partitions
    }
