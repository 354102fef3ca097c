"""The settings of a member of a group, and the base class for its reactions to a rebalance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..topic_partition import TopicPartition

__all__ = ["MembershipSettings", "RebalanceListener"]


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

    group: str
    assignors: Sequence[str] = ("range",)
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    metadata_max_age_ms: int = 300_000


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
