"""The base class for reactions to a rebalance."""

from __future__ import annotations

from collections.abc import Sequence

from ...topic_partition import TopicPartition

__all__ = ["RebalanceListener"]


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

        An eager assignor revokes all partitions at each rebalance, a cooperative one only those that move.
        The other members wait for this call, up to ``max.poll.interval.ms``.

        """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for added partitions, perhaps none, before the consumer fetches them."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Release partitions that another member may have already: the coordinator would refuse a commit.

        By default this calls :meth:`on_partitions_revoked`.

        """
        self.on_partitions_revoked(partitions)
