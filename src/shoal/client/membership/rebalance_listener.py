"""Who is told when partitions come and go."""

from __future__ import annotations

from collections.abc import Sequence

from ...topic_partition import TopicPartition

__all__ = ["RebalanceListener"]


class RebalanceListener:
    """
    Told of a rebalance, from within ``poll``; to be derived from (``ConsumerRebalanceListener``).

    An exception goes on to who polls; the rebalance has gone on by then.

    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Let go of partitions that are still ours: the place to flush, and to commit.

        With an eager assignor all of them at each rebalance, with a cooperative one those that go.
        The others wait for this, up to ``max.poll.interval.ms``.

        """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Take what was added; perhaps nothing. Called before anything of them is fetched."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Let go of partitions that may be another's already: a commit would be refused.

        By default as if they were revoked.

        """
        self.on_partitions_revoked(partitions)
