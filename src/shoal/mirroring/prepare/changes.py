"""
The selected topics of a mirror: the changes that their copies need, and the copies when they are ready.

Two requests change a copy. Their errors say what an operator can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...client.admin import NewTopic, create_partitions
from ...client.cluster import Cluster
from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError
from ...records.compression import DEFAULT_LIMIT_BYTES
from ...topic_partition import TopicPartition

__all__ = ["Prepared", "PreparedTopic", "creation_error", "grow_topic"]


@dataclass(frozen=True, slots=True)
class PreparedTopic:
    """
    One selected topic.

    Attributes:
        source: Its name at the source.
        destination: Its name at the destination.
        partitions: Their number at the source. Once the copy is ready, it has at least as many.
        deleted: The reason why the topic is not mirrored: its copy was deleted since. None otherwise.
        creation: The request that creates the copy; None if the destination had it.
        present_partitions: Their number at the destination before; 0 without a copy.

    """

    source: str
    destination: str
    partitions: int
    deleted: str | None = None
    creation: NewTopic | None = None
    present_partitions: int = 0

    @property
    def is_present(self) -> bool:
        """Whether the destination had the copy."""
        return self.creation is None and self.deleted is None

    @property
    def added_partitions(self) -> int:
        """The number of partitions that an existing copy needs in addition."""
        return max(0, self.partitions - self.present_partitions) if self.is_present else 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """
    The topics that a mirror selects.

    Attributes:
        group: The consumer group on the source cluster.
        source_cluster_id: None if the cluster is too old to have one.
        destination_cluster_id: None if the cluster is too old to have one.
        topics: The topics by their names at the source, sorted.
        warnings: Sentences: the object, the problem, the remedy.
        unreadable: Why selected topics are left out, by their names: an archive has a topic that cannot be
            read, or cannot have it.
        producer_id_expiration_ms: The time without a batch after which the destination's brokers forget the
            sequence of a producer id.
        max_decompressed_bytes: The maximum size of a decompressed batch.
        conclude: Called at the end of the run with the copies' names and its beginning, in milliseconds since
            1970.

    """

    group: str
    source_cluster_id: str | None
    destination_cluster_id: str | None
    topics: Mapping[str, PreparedTopic]
    warnings: tuple[str, ...]
    producer_id_expiration_ms: int
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    unreadable: Mapping[str, ShoalError] = field(default_factory=dict)
    conclude: Callable[[Iterable[str], int], object] = lambda *_: None

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions at the source."""
        return [
            TopicPartition(topic.source, number)
            for topic in self.topics.values()
            for number in range(topic.partitions)
        ]


def creation_error(error: BrokerError, topic: NewTopic) -> ShoalError:
    """Return the error to raise if a broker refuses to create a topic, or to validate it."""
    if error.retriable:
        return error
    return ConfigError(
        f"{error}. Allow it, or create the topic yourself with "
        f"{topic.partitions} partitions and compression.type=producer"
    )


def grow_topic(topic: PreparedTopic, destination: Cluster, *, validate_only: bool = False) -> None:
    """
    Add the missing partitions to a copy; it is no error if another process just did.

    Args:
        validate_only: Whether the destination only checks that it could.

    Raises:
        ConfigError: The destination refuses.
        ShoalError: The destination does not respond.

    """
    copy, wanted = topic.destination, topic.partitions
    try:
        destination.patiently(
            lambda: create_partitions(destination, copy, wanted, validate_only=validate_only)
        )
    except BrokerError as error:
        if error.code == ErrorCode.INVALID_PARTITIONS:
            return
        if error.retriable:
            raise
        raise ConfigError(
            f"{error}. Topic {copy} has {topic.present_partitions} partitions and the source {wanted}: allow "
            f"ALTER on it, or add the missing ones yourself (kafka-topics --alter --partitions {wanted})"
        ) from error
