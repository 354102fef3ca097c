"""
The metadata of both clusters, as fresh as a worker needs them.

A copy loop begins only with metadata of the last second. The answers to Fetch and Produce do not show
everything after which a partition must be aligned again: not a topic that was deleted and created again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ...client.cluster import Cluster
from ...error_codes import ErrorCode
from ...errors import ShoalError
from ...timing import Timing
from .partition import PartitionCopy
from .resume import still_aligned

__all__ = ["FreshMetadata"]


class FreshMetadata:
    """
    The metadata of a worker's two clusters.

    Attributes:
        source: The source cluster.
        destination: The destination cluster.
        is_stale: Whether an error, or another partition, needs newer metadata than these, whatever their age.

    """

    def __init__(self, source: Cluster, destination: Cluster, known_at: float, timing: Timing) -> None:
        """
        Use metadata that are known already.

        Args:
            source: The source cluster, of the worker's thread alone.
            destination: The destination cluster, of the same thread.
            known_at: The time at which their metadata were requested, on the monotonic clock.

        """
        self.is_stale = False
        self.source = source
        self.destination = destination
        self._known_at = known_at
        self._timing = timing
        #: Topics that a cluster did not have at the last look: the times of the first such look and the last.
        self._missing: dict[tuple[Cluster, str], tuple[float, float]] = {}

    @property
    def is_old(self) -> bool:
        """Whether the next copy loop needs newer metadata."""
        return self.is_stale or time.monotonic() - self._known_at > self._timing.recreated_after_s

    def refresh(self, copies: Sequence[PartitionCopy]) -> None:
        """Refresh all metadata; partitions whose topic or leader has changed have to be aligned again."""
        self.refresh_source(copies)
        self.refresh_destination(copies)
        self.is_stale = False
        self._known_at = time.monotonic()

    def refresh_source(self, copies: Iterable[PartitionCopy]) -> None:
        """Refresh the metadata of some partitions' topics, and compare nothing."""
        self._look(self.source, {copy.source.topic for copy in copies})

    def refresh_destination(self, copies: Sequence[PartitionCopy]) -> None:
        """Refresh the metadata of some partitions' copies, and compare both sides with the alignment."""
        self._look(self.destination, {copy.destination.topic for copy in copies})
        for copy in copies:
            with suppress(ShoalError):  # without a leader: looking for its loop finds that, too
                if copy.state.is_aligned and not still_aligned(copy, self.source, self.destination):
                    copy.lose_track()

    def _look(self, cluster: Cluster, topics: Iterable[str]) -> None:
        metadata, now = cluster.refresh(topics), time.monotonic()
        for topic in topics:
            if metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                first, _ = self._missing.get((cluster, topic), (now, now))
                self._missing[cluster, topic] = first, now
            else:
                self._missing.pop((cluster, topic), None)

    def missing_at_source_s(self, copy: PartitionCopy) -> float:
        """Return for how long the source has not had a partition's topic, from the first look to the last."""
        first, last = self._missing.get((self.source, copy.source.topic), (0.0, 0.0))
        return last - first

    def missing_at_destination_s(self, copy: PartitionCopy) -> float:
        """Return the same for a partition's copy."""
        first, last = self._missing.get((self.destination, copy.destination.topic), (0.0, 0.0))
        return last - first

    def leaders_of(self, copy: PartitionCopy) -> tuple[int, int]:
        """
        Return the node ids of a partition's leaders at the source and at the destination.

        Raises:
            BrokerError: One of them has no leader, or the partition is unknown.

        """
        source = self.source.partition(copy.source)
        return source.leader, self.destination.partition(copy.destination).leader
