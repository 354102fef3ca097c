"""The base class of users' rebalance listeners (KIP-3)."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MirrorMakerRebalanceListener"]


class MirrorMakerRebalanceListener:
    """
    Receives the rebalances of the group. Derive your class from it.

    ``--consumer.rebalance.listener`` names the class. Each process makes one object of it, with the text of
    ``--rebalance.listener.args`` if there is any. One thread of the driver calls it. An exception ends the
    mirror maker, and the positions of acknowledged records are committed.

    """

    def before_releasing_partitions(self, partition_ownership: Mapping[str, frozenset[int]]) -> None:
        """
        Handle revoked partitions: their tasks have ended, and their positions are committed.

        The group waits for this call, up to ``max.poll.interval.ms``. There is no call if the group has
        already assigned the partitions to others, because this process sent no heartbeat for too long.

        Args:
            partition_ownership: The revoked partitions, by source topic.

        """

    def before_starting_fetchers(
        self, consumer_id: str, partition_assignment: Mapping[str, Mapping[int, str]]
    ) -> None:
        """
        Handle the group's assignment, before tasks read the new partitions.

        Args:
            consumer_id: This process's member id.
            partition_assignment: The member id of each partition of the whole group, by source topic and
                partition.

        """
