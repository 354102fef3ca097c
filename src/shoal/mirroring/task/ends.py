"""
The two ends of a pair: a source gives record sets with their aborted transactions, a destination appends.

A pair and its sender know these protocols, and no connection. Two brokers implement them here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...client.cluster import Cluster
from ...client.fetch import Fetcher, FetchFrom
from ...client.lot import Gate, Limits, Lot, Sent
from ...protocol.fetch import FetchResponse
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from .destination_leader import DestinationLeader

__all__ = ["Destination", "Ends", "Leaders", "Source"]


class Source(Protocol):
    """Record sets of partitions that are read together; :class:`.Fetcher` has the meaning of each method."""

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""

    @property
    def lists_ids(self) -> bool:
        """Whether a topic that was created again is refused."""

    @property
    def wanted(self) -> Mapping[TopicPartition, FetchFrom]:
        """The partitions of the last request, and their offsets."""

    @property
    def first_of_full(self) -> TopicPartition | None:
        """The partition whose next batch must have been in the last answer, if there is one."""

    def ask(self, wanted: FetchFrom) -> None:
        """Read a partition from an offset on."""

    def forget(self, partition: TopicPartition) -> None:
        """Read a partition no more."""

    def start_over(self, begin_with: TopicPartition | None = None) -> None:
        """Give a partition its next batch in any case."""

    def send(self, at_most_bytes: int | None = None) -> bool:
        """Request the next record sets; return whether there will be an answer."""

    def receive(self) -> FetchResponse:
        """Return the record sets, which are valid until the next call."""

    def close(self) -> None:
        """End the reading."""


class Destination(Protocol):
    """A place that appends batches of partitions."""

    @property
    def lists_ids(self) -> bool:
        """Whether a topic that was created again is refused."""

    def keep_topic_ids(self, topic_ids: Mapping[TopicPartition, uuid.UUID | None]) -> None:
        """Know partitions to append to, and the topics that they have to belong to."""

    def query(self, bring_several: Iterable[TopicPartition], others: Iterable[TopicPartition]) -> None:
        """Find out whether several batches of a partition may be appended together, if some have several."""

    def takes_several(self, topic: str) -> bool:
        """Whether they may; they are appended all or none."""

    def forget(self, topic: str) -> None:
        """Find that out again, before the next several."""

    def append(self, lots: Sequence[Lot], limits: Limits, gate: Gate) -> Sent:
        """Append lots, and return what landed; see :func:`.send`."""

    def close(self) -> None:
        """End the appending; nothing that was not answered may be appended later."""


class Ends(Protocol):
    """Both ends of one pair."""

    def open_source(self, source: Cluster) -> Source:
        """Begin to read; raises ShoalError."""

    def open_destination(self, destination: Cluster) -> Destination:
        """Begin to append; raises ShoalError."""


@dataclass(frozen=True)
class Leaders:
    """
    The leaders of a pair's partitions.

    Attributes:
        source_leader: The node id of the source's leader.
        destination_leader: That of the destination's.
        buffer_bytes: The size of the fetch buffer.
        can_be_marked: Whether the sequence of each partition is its offset.

    """

    settings: CopySettings
    source_leader: int
    destination_leader: int
    buffer_bytes: int
    can_be_marked: bool

    def open_source(self, source: Cluster) -> Source:
        """Connect to the source's leader."""
        timing = self.settings.timing
        return Fetcher(
            source.connect(self.source_leader),
            buffer_bytes=self.buffer_bytes,
            isolation_level=self.settings.source.isolation_level,
            max_wait_ms=timing.fetch_max_wait_ms,
            timing=timing,
        )

    def open_destination(self, destination: Cluster) -> Destination:
        """Connect to the destination's leader."""
        return DestinationLeader(destination, self.destination_leader, can_be_marked=self.can_be_marked)
