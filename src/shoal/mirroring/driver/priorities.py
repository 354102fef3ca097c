"""
Topics by priority: the important ones catch up first.

As long as a topic of a higher priority is behind by more than some seconds, all topics of a lower one wait.
A partition that waits for a broker, is stopped or is paused delays no other: it would not catch up sooner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...topic_partition import TopicPartition
from ..monitoring.partition_metrics import PartitionMetrics

__all__ = ["Priorities"]

#: A partition catches up from the first of these lags on, until it is below the second. Between two reports
#: of a task half a second passes, and two seconds if it copies nothing.
_BEHIND_S, _CAUGHT_UP_S = 10.0, 3.0


class Priorities:
    """The topics that wait for more important ones."""

    def __init__(self) -> None:
        self._catching_up: set[TopicPartition] = set()

    def later(
        self,
        ranks: Sequence[Collection[str]],
        partitions: Mapping[TopicPartition, PartitionMetrics],
        paused: Collection[str],
        now: float,
    ) -> frozenset[str]:
        """
        Return the topics that wait now.

        Args:
            ranks: The topics of each priority, the highest first; topics in none of them have the lowest.
            partitions: The partitions of the mirror.
            paused: The topics that are not copied anyway.
            now: Unix time.

        """
        if not ranks:
            self._catching_up.clear()
            return frozenset()
        rank_of = {topic: rank for rank in reversed(range(len(ranks))) for topic in ranks[rank]}
        self._catching_up = {
            partition
            for partition, metrics in partitions.items()
            if partition.topic in rank_of
            and partition.topic not in paused
            and self._catches_up(partition, metrics, now)
        }
        first = min((rank_of[each.topic] for each in self._catching_up), default=len(ranks))
        return frozenset(
            each.topic
            for each in partitions
            if rank_of.get(each.topic, len(ranks)) > first and each.topic not in paused
        )

    def _catches_up(self, partition: TopicPartition, metrics: PartitionMetrics, now: float) -> bool:
        if not metrics.lag_records or metrics.stopped or metrics.waits_for:
            return False
        if metrics.newest_ms is None and not metrics.was_up_to_date:
            return True  # nothing is copied yet: its lag in time is not known
        lag_s = metrics.lag_s(now) or 0.0
        return lag_s > (_CAUGHT_UP_S if partition in self._catching_up else _BEHIND_S)
