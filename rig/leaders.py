"""Move leaders; those of ``__consumer_offsets`` are the coordinators of consumer groups."""

from confluent_kafka.admin import AdminClient
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

__all__ = ["CONSUMER_OFFSETS", "first_coordinator", "move_leaders"]

CONSUMER_OFFSETS = "__consumer_offsets"

_PREFERRED = 0


def move_leaders(bootstrap: str, topic: str, steps: int) -> None:
    """Move each partition's leadership to the replica this many steps after its first.

    Nothing happens if there is no such topic.
    """
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=30)
    if topic not in found.topics:
        return
    partitions = found.topics[topic].partitions
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        admin.alter_partition_reassignments(
            {
                TopicPartition(topic, number): each.replicas[steps:] + each.replicas[:steps]
                for number, each in partitions.items()
            }
        )
        admin.elect_leaders(_PREFERRED, {topic: list(partitions)}, raise_errors=False)
    finally:
        admin.close()


def first_coordinator(bootstrap: str) -> int | None:
    """Return the broker that coordinates the groups of the first partition; None without any group."""
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=30)
    offsets = found.topics.get(CONSUMER_OFFSETS)
    return offsets.partitions[0].leader if offsets and offsets.partitions[0].leader > 0 else None
