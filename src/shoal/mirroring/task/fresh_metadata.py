"""
The metadata of both clusters, as fresh as a worker needs them.

The answers to Fetch and Produce do not show everything after which a partition must be aligned again: not a
topic that was deleted and created again, if requests list it by name. So before anything of such a topic is
sent, its metadata are at most a second old.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from ...client.cluster import Cluster
from ...client.metadata import Metadata
from ...errors import ShoalError
from ...timing import Timing
from .partition import PartitionCopy
from .resume import still_aligned

__all__ = ["FreshMetadata", "Known"]


class Known(NamedTuple):
    """
    Metadata of both clusters that one worker gives to another.

    Attributes:
        source: Those of the source; None if there are none.
        destination: Those of the destination.
        at: When they were requested, on the monotonic clock.

    """

    source: Metadata | None
    destination: Metadata | None
    at: float


class FreshMetadata:
    """
    The metadata of a worker's two clusters.

    Attributes:
        is_stale: Whether an error needs newer metadata than these, whatever their age.

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
        self._source, self._destination = source, destination
        self._timing = timing
        self._looked_at = {source: known_at, destination: known_at}

    @property
    def known(self) -> Known:
        """The metadata that another worker may begin with."""
        return Known(self._source.known, self._destination.known, min(self._looked_at.values()))

    @property
    def is_old(self) -> bool:
        """Whether the next alignment needs newer metadata."""
        return self.is_stale or any(map(self._is_old, self._looked_at))

    def _is_old(self, cluster: Cluster) -> bool:
        return time.monotonic() - self._looked_at[cluster] > self._timing.recreated_after_s

    def refresh(
        self, copies: Collection[PartitionCopy], *, source: bool = True, destination: bool = True
    ) -> None:
        """
        Refresh the metadata of partitions; those that have changed have to be aligned again.

        Args:
            copies: All partitions of the worker.
            source: Whether to ask the source.
            destination: Whether to ask the destination.

        """
        if source:
            self._look(self._source, {copy.source.topic for copy in copies})
        if destination:
            self._look(self._destination, {copy.destination.topic for copy in copies})
        for copy in copies:
            if copy.state.is_aligned:
                with suppress(ShoalError):  # without a leader: Fetch and Produce find that, too
                    if not still_aligned(copy, self._source, self._destination):
                        copy.lose_track()

    def _look(self, cluster: Cluster, topics: Collection[str]) -> None:
        now = time.monotonic()
        if topics:
            cluster.refresh(topics)
        self._looked_at[cluster] = now

    def look_again(self, copies: Collection[PartitionCopy], *, source: bool, destination: bool) -> None:
        """Refresh metadata that are older than a second, if requests to source or destination need that."""
        source = source and self._is_old(self._source)
        destination = destination and self._is_old(self._destination)
        if source or destination:
            self.refresh(copies, source=source, destination=destination)
