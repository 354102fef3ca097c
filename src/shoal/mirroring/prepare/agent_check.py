"""Before a mirror begins that must send several batches in a request: whether all brokers take them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing

from ...client.cluster import Cluster
from ...client.multi_batch import marked, query_multi_batch
from ...client.topic_listing import TopicListing
from ...errors import AccessRefused, BrokerError, Disconnected, OptionError
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition
from ..model.text import first_few

__all__ = ["require_multi_batch"]


def require_multi_batch(destination: Cluster, topics: Iterable[str]) -> None:
    """
    Ask each broker that may lead a partition of the topics; also one that leads none now answers.

    A broker that is down is not waited for: the task that sends to it asks again.

    Args:
        destination: The destination cluster, with metadata of the topics.
        topics: The topics at the destination; those that it does not have are left out.

    Raises:
        ConfigError: A broker takes no several batches in a request; names it.

    """
    refusing = {
        node_id: refused
        for node_id, partitions in _by_replica(destination, topics).items()
        if (refused := _refused_by(destination, node_id, partitions))
    }
    if refusing:
        refused = min(refusing.items())[1]
        brokers = first_few([f"{each} ({destination.metadata.brokers[each]})" for each in sorted(refusing)])
        raise OptionError(
            "{multi_batch} required: node {brokers} of {destination} takes one batch of a partition in a "
            "request, such as of topic {topics}. Install the agent there (docs/java-agent.md) and allow it "
            "this client, or set {multi_batch} to auto",
            brokers=brokers,
            destination=str(destination),
            topics=first_few(refused),
        )


def _by_replica(destination: Cluster, topics: Iterable[str]) -> dict[int, dict[str, TopicPartition]]:
    """Return one partition of each topic for each broker that has any of it."""
    found: dict[int, dict[str, TopicPartition]] = defaultdict(dict)
    for name in topics:
        topic = destination.metadata.topics.get(name)
        for number, partition in topic.partitions.items() if topic else ():
            for node_id in partition.replicas:
                found[node_id][name] = TopicPartition(name, number)
    return {node_id: each for node_id, each in found.items() if node_id in destination.metadata.brokers}


def _refused_by(destination: Cluster, node_id: int, partitions: dict[str, TopicPartition]) -> list[str]:
    """Return the topics of which a broker takes one batch in a request."""
    try:
        connection = destination.connect(node_id, client_id=marked(destination.config.client_id))
        with closing(connection):
            listing = TopicListing.of(connection.version(ApiKey.PRODUCE), None)
            answers = query_multi_batch(connection, list(partitions.values()), listing)
    except AccessRefused:
        raise
    except (Disconnected, BrokerError):
        return []
    return sorted(partition.topic for partition, takes in answers.items() if not takes)
