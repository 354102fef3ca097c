"""The first or the last offsets of a cluster's partitions, asked for now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from ...client.cluster import Cluster
from ...client.offsets import list_offsets
from ...topic_partition import TopicPartition

__all__ = ["LogBounds"]


class LogBounds:
    """One bound of each partition of some topics."""

    def __init__(self, cluster: Cluster, timestamp: int, *, keep_s: float = math.inf) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            cluster: The cluster, with metadata of the topics.
            timestamp: ListOffsets' ``EARLIEST`` or ``LATEST``.
            keep_s: How long a bound is believed.

        """
        self._cluster = cluster
        self._timestamp = timestamp
        self._keep_s = keep_s
        self._asked_at: dict[str, float] = {}
        self._bounds: dict[TopicPartition, int] = {}

    def ask(self, topics: Iterable[str]) -> None:
        """Ask for the bounds of topics that were not asked for lately. Partitions that refuse have none."""
        now = time.monotonic()
        due = [each for each in topics if now - self._asked_at.get(each, -math.inf) >= self._keep_s]
        known = self._cluster.metadata.topics
        partitions = [
            TopicPartition(topic, number)
            for topic in due
            if topic in known
            for number in known[topic].partitions
        ]
        if partitions:
            level = self._cluster.config.isolation_level
            answers = list_offsets(self._cluster, dict.fromkeys(partitions, self._timestamp), level)
            self._bounds |= {each: answer for each, answer in answers.items() if isinstance(answer, int)}
        self._asked_at |= dict.fromkeys(due, now)

    def of(self, partition: TopicPartition) -> int | None:
        """Return the bound of a partition, if it is known."""
        return self._bounds.get(partition)
