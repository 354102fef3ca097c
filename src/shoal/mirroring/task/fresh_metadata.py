"""
The metadata of both clusters, as fresh as a worker needs them.

The answers to Fetch and Produce do not show everything after which a partition must be aligned again: not a
topic that was deleted and created again, if requests list it by name. So before anything of such a topic is
sent, its metadata are at most a second old.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ...client.cluster import Cluster
from ...client.metadata import Metadata
from ...error_codes import ErrorCode
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
        source: The source cluster.
        destination: The destination cluster.
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
        self.source = source
        self.destination = destination
        self._known_at = known_at
        self._timing = timing
        self._looked_at: dict[tuple[Cluster, str], float] = {}
        #: Topics that a cluster did not have at the last look: the times of the first such look and the last.
        self._missing: dict[tuple[Cluster, str], tuple[float, float]] = {}

    @property
    def known(self) -> Known:
        """The metadata that another worker may begin with."""
        return Known(self.source.known, self.destination.known, self._known_at)

    @property
    def is_old(self) -> bool:
        """Whether the next alignment needs newer metadata."""
        return self.is_stale or time.monotonic() - self._known_at > self._timing.recreated_after_s

    def refresh(self, copies: Sequence[PartitionCopy]) -> None:
        """Refresh all metadata of partitions; those that have changed have to be aligned again."""
        if not copies:
            return
        self.refresh_source(copies)
        self._look(self.destination, {copy.destination.topic for copy in copies})
        self.is_stale = False
        self._known_at = time.monotonic()
        self._lose_changed(copies)

    def refresh_source(self, copies: Iterable[PartitionCopy]) -> None:
        """Refresh the metadata of some partitions' topics, and compare nothing."""
        self._look(self.source, {copy.source.topic for copy in copies})

    def look_again(self, copies: Collection[PartitionCopy], *, source: bool, destination: bool) -> None:
        """
        Refresh metadata that are older than a second; partitions that have changed have to be aligned again.

        Args:
            copies: Aligned partitions.
            source: Whether requests to the source list topics by name.
            destination: The same of the destination.

        """
        if source:
            self._look(self.source, self._old(self.source, {copy.source.topic for copy in copies}))
        if destination:
            topics = {copy.destination.topic for copy in copies}
            self._look(self.destination, self._old(self.destination, topics))
        if source or destination:
            self._lose_changed(copies)

    def _old(self, cluster: Cluster, topics: Iterable[str]) -> set[str]:
        before = time.monotonic() - self._timing.recreated_after_s
        return {topic for topic in topics if self._looked_at.get((cluster, topic), self._known_at) < before}

    def _look(self, cluster: Cluster, topics: Collection[str]) -> None:
        if not topics:
            return
        now = time.monotonic()
        metadata = cluster.refresh(topics)
        self._looked_at.update(dict.fromkeys(((cluster, topic) for topic in topics), now))
        for topic in topics:
            if metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                now = time.monotonic()
                first, _ = self._missing.get((cluster, topic), (now, now))
                self._missing[cluster, topic] = first, now
            else:
                self._missing.pop((cluster, topic), None)

    def _lose_changed(self, copies: Iterable[PartitionCopy]) -> None:
        """Let those lose track whose topic, leader or leader epoch is not that of their alignment."""
        for copy in copies:
            if copy.state.is_aligned:
                with suppress(ShoalError):  # without a leader: Fetch and Produce find that, too
                    if not still_aligned(copy, self.source, self.destination):
                        copy.lose_track()

    def missing_at_source_s(self, copy: PartitionCopy) -> float:
        """Return for how long the source has not had a partition's topic, from the first look to the last."""
        first, last = self._missing.get((self.source, copy.source.topic), (0.0, 0.0))
        return last - first

    def missing_at_destination_s(self, copy: PartitionCopy) -> float:
        """Return the same for a partition's copy."""
        first, last = self._missing.get((self.destination, copy.destination.topic), (0.0, 0.0))
        return last - first
