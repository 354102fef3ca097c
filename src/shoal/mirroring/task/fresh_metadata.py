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
from operator import attrgetter
from typing import NamedTuple

from ...client.cluster import Cluster
from ...client.metadata import Metadata
from ...errors import ShoalError
from .partition import PartitionCopy
from .resume import still_aligned

__all__ = ["FreshMetadata", "Known"]


class Known(NamedTuple):
    """Metadata of source and destination that one worker gives to another, as far as there are any."""

    source: Metadata | None
    destination: Metadata | None


class FreshMetadata:
    """The metadata of a worker's two clusters."""

    def __init__(self, source: Cluster, destination: Cluster) -> None:
        """Use two clusters of the worker's thread alone."""
        self._source, self._destination = source, destination
        #: When the metadata were requested, on the monotonic clock.
        self._looked_at = {source: -math.inf, destination: -math.inf}

    @property
    def known(self) -> Known:
        """The metadata that another worker may begin with."""
        return Known(self._source.known, self._destination.known)

    def refresh(
        self,
        copies: Collection[PartitionCopy],
        *,
        source: bool = True,
        destination: bool = True,
        older_than_s: float = 0.0,
    ) -> None:
        """
        Refresh the metadata of partitions; those that have changed have to be aligned again.

        Args:
            copies: All partitions of the worker.
            source: Whether to ask the source.
            destination: Whether to ask the destination.
            older_than_s: Metadata that are not so old are fresh enough.

        """
        now = time.monotonic()
        sides = (self._source, source, "source.topic"), (self._destination, destination, "destination.topic")
        asked = [
            (cluster, set(map(attrgetter(topic), copies)))
            for cluster, is_asked, topic in sides
            if is_asked and self._looked_at[cluster] <= now - older_than_s
        ]
        for cluster, topics in asked:
            if topics:
                cluster.refresh(topics)
            self._looked_at[cluster] = now
        for copy in copies if asked else ():
            if copy.state.is_aligned:
                with suppress(ShoalError):  # without a leader: Fetch and Produce find that, too
                    if not still_aligned(copy, self._source, self._destination):
                        copy.lose_track()
