"""The result of an inspection: the selected topics, and the changes that their copies need. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from ...client.admin import NewTopic
from ...records.compression import DEFAULT_LIMIT_BYTES

__all__ = ["PlannedTopic", "Selected", "TopicChanges"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """
    One selected topic, and the changes that its copy needs.

    Attributes:
        source: Its name at the source.
        destination: Its name at the destination.
        partitions: Their number at the source.
        creation: The request that creates the copy; None if the destination has it.
        present_partitions: Their number at the destination; 0 if the copy has to be created.
        deleted: The reason why the topic is not mirrored: its copy was deleted since. None otherwise.

    """

    source: str
    destination: str
    partitions: int
    creation: NewTopic | None
    present_partitions: int
    deleted: str | None = None

    @property
    def is_present(self) -> bool:
        """Whether the destination has it."""
        return self.creation is None and self.deleted is None

    @property
    def added_partitions(self) -> int:
        """The number of partitions that an existing copy needs in addition."""
        return max(0, self.partitions - self.present_partitions) if self.is_present else 0


# Without slots: in Python 3.11 a frozen class with slots cannot be called as Selected[...].
@dataclass(frozen=True)
class Selected(Generic[T]):
    """
    The topics that a mirror selects: the changes that their copies need, or the copies when they are ready.

    Attributes:
        group: The consumer group on the source cluster.
        source_cluster_id: None if the cluster is too old to have one.
        destination_cluster_id: None if the cluster is too old to have one.
        topics: The topics by their names at the source, sorted.
        warnings: Sentences: the object, the problem, the remedy.
        producer_id_expiration_ms: The time without a batch after which the destination's brokers forget the
            sequence of a producer id.
        max_decompressed_bytes: The maximum size of a decompressed batch.

    """

    group: str
    source_cluster_id: str | None
    destination_cluster_id: str | None
    topics: Mapping[str, T]
    warnings: tuple[str, ...]
    producer_id_expiration_ms: int
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES


#: The changes that the destination needs.
TopicChanges: TypeAlias = Selected[PlannedTopic]
