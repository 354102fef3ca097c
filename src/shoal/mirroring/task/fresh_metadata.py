"""
The metadata of both clusters, as fresh as a worker needs them.

A copy loop begins only with metadata of the last second. The answers to Fetch and Produce do not show
everything after which a partition must be aligned again: not a topic that was deleted and created again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from ...client.cluster import Cluster
from ...errors import ShoalError
from .partition import PartitionCopy
from .resume import still_aligned

__all__ = ["FreshMetadata"]

#: A copy loop does not begin with metadata older than this: a topic may have been created again.
_FRESH_S = 1.0


class FreshMetadata:
    """
    The metadata of a worker's two clusters.

    Attributes:
        is_stale: Whether an error, or another partition, needs newer metadata than these, whatever their age.

    """

    def __init__(self, source: Cluster, destination: Cluster, known_at: float) -> None:
        """
        Use metadata that are known already.

        Args:
            source: The source cluster, of the worker's thread alone.
            destination: The destination cluster, of the same thread.
            known_at: The time at which their metadata were requested, on the monotonic clock.

        """
        self.is_stale = False
        self._source = source
        self._destination = destination
        self._known_at = known_at

    @property
    def is_old(self) -> bool:
        """Whether the next copy loop needs newer metadata."""
        return self.is_stale or time.monotonic() - self._known_at > _FRESH_S

    def refresh(self, copies: Sequence[PartitionCopy]) -> None:
        """Refresh all metadata; partitions whose topic or leader has changed have to be aligned again."""
        self._source.refresh({copy.source.topic for copy in copies})
        self.refresh_destination(copies)
        self.is_stale = False
        self._known_at = time.monotonic()

    def refresh_destination(self, copies: Sequence[PartitionCopy]) -> None:
        """Refresh the metadata of some partitions' copies, and compare both sides with the alignment."""
        self._destination.refresh({copy.destination.topic for copy in copies})
        for copy in copies:
            with suppress(ShoalError):  # without a leader: looking for its loop finds that, too
                if copy.state.is_aligned and not still_aligned(copy, self._source, self._destination):
                    copy.lose_track()

    def leaders_of(self, copy: PartitionCopy) -> tuple[int, int]:
        """
        Return the node ids of a partition's leaders at the source and at the destination.

        Raises:
            BrokerError: One of them has no leader, or the partition is unknown.

        """
        source = self._source.partition(copy.source)
        return source.leader, self._destination.partition(copy.destination).leader
