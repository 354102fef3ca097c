"""
The metadata of both clusters, as fresh as a worker needs them.

The answers to Fetch and Produce do not show everything after which a partition must be aligned again: not a
topic that was deleted and created again, if requests list it by name. So before anything of such a topic is
sent, its metadata are at most a second old.
"""

from __future__ import annotations

import math
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
    """Metadata of source and destination that one worker gives to another, as far as there are any."""

    source: Metadata | None
    destination: Metadata | None


class FreshMetadata:
    """The metadata of a worker's two clusters."""

    def __init__(self, source: Cluster, destination: Cluster, timing: Timing) -> None:
        """Use two clusters of the worker's thread alone."""
        self._source, self._destination = source, destination
        self._timing = timing
        #: When the metadata were requested, on the monotonic clock.
        self._looked_at = {source: -math.inf, destination: -math.inf}

    @property
    def known(self) -> Known:
        """The metadata that another worker may begin with."""
        return Known(self._source.known, self._destination.known)

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
        since = time.monotonic() - self._timing.recreated_after_s
        source = source and self._looked_at[self._source] < since
        destination = destination and self._looked_at[self._destination] < since
        if source or destination:
            self.refresh(copies, source=source, destination=destination)
