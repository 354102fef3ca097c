"""The base class of users' rebalance listeners (KIP-3)."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MirrorMakerRebalanceListener"]


class MirrorMakerRebalanceListener:
    """
    Told of rebalances; to be derived from, and named with ``--consumer.rebalance.listener``.

    One object for each process, made with the text of ``--rebalance.listener.args``, if there is any. It is
    called in the driver, by one thread. An exception ends the mirror maker, and the positions of
    acknowledged records are committed.

    """

    def before_releasing_partitions(self, partition_ownership: Mapping[str, frozenset[int]]) -> None:
        """
        Let go of partitions: nothing is copied from them any more, and all that was copied is committed.

        The group waits for this, up to ``max.poll.interval.ms``. Not called where the partitions are lost
        already, because this process was silent for too long.

        Args:
            partition_ownership: The partitions that go, by source topic.

        """

    def before_starting_fetchers(
        self, consumer_id: str, partition_assignment: Mapping[str, Mapping[int, str]]
    ) -> None:
        """
        Take partitions: the group has agreed, and nothing is read from the new ones yet.

        Args:
            consumer_id: This process's member id.
            partition_assignment: The member id of each partition of the whole group, by source topic and
                partition.

        """
