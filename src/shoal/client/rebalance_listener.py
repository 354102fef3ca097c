"""The settings of a member of a group, and the base class for its reactions to a rebalance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..topic_partition import TopicPartition
from .assignors import assignors_named
from .properties import integer, java, names

__all__ = ["MembershipSettings", "RebalanceListener"]


def _assignors(value: str) -> tuple[str, ...]:
    return tuple(assignors_named(names(value)))


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """
    Settings of a member; names and defaults are those of Java's consumer.

    Attributes:
        group: ``group.id``.
        assignors: ``partition.assignment.strategy``, by name, the preferred one first.
        instance_id: ``group.instance.id``: a static member (KIP-345) keeps its partitions over a restart.
        session_timeout_ms: The time without a heartbeat after which the coordinator removes the member.
        heartbeat_interval_ms: The time between two heartbeats.
        max_poll_interval_ms: The time without a poll after which the member leaves.
        metadata_max_age_ms: The time between two checks of the topics.

    """

    group: str = java("group.id", None)
    assignors: Sequence[str] = java("partition.assignment.strategy", "range", _assignors)
    instance_id: str | None = java("group.instance.id", None)
    session_timeout_ms: int = java("session.timeout.ms", "45000", integer(1))
    heartbeat_interval_ms: int = java("heartbeat.interval.ms", "3000", integer(1))
    max_poll_interval_ms: int = java("max.poll.interval.ms", "300000", integer(1))
    metadata_max_age_ms: int = java("metadata.max.age.ms", "300000", integer(1))


class RebalanceListener:
    """
    Base class for reactions to a rebalance (``ConsumerRebalanceListener``).

    The consumer calls the methods from within ``poll``. If one raises, ``poll`` raises the same exception
    after the rebalance.

    Examples:
        Commit before another member takes the partitions:

        >>> import shoal
        >>> class CommitFirst(shoal.RebalanceListener):
        ...     def __init__(self, consumer):
        ...         self.consumer = consumer
        ...
        ...     def on_partitions_revoked(self, partitions):
        ...         self.consumer.commit()
        >>> consumer = shoal.RawConsumer({"bootstrap.servers": "localhost:9092", "group.id": "till"})
        >>> consumer.subscribe(["orders"], CommitFirst(consumer))
        >>> consumer.close()

    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Flush and commit before partitions go to another member.

        A rebalance revokes all partitions. The other members wait for this call, up to
        ``max.poll.interval.ms``.

        """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for added partitions, perhaps none, before the consumer fetches them."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Release partitions that another member may have already: the coordinator would refuse a commit.

        By default this calls :meth:`on_partitions_revoked`.

        """
        self.on_partitions_revoked(partitions)
