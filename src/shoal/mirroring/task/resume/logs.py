"""The logs of both sides: where they begin and end, and the destination's batches."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property

from ....client.admin import init_producer_id
from ....client.broker_state import last_sequence
from ....client.cluster import Cluster
from ....client.config import IsolationLevel
from ....client.metadata import Metadata
from ....client.offsets import LATEST, answered, epoch_end_offsets, list_offsets, log_end_offsets
from ....client.scan import read_batches
from ....error_codes import ErrorCode
from ....errors import BrokerError, PartitionStopped, ShoalError
from ....records import BatchHeader
from ....topic_partition import TopicPartition
from ...model.copy_options import CopySettings
from ...model.position import MirrorPosition
from ..partition import PartitionCopy

__all__ = ["PRESENT_EPOCH", "Clusters", "PartitionLogs", "offset_at", "present_end"]

#: A leader epoch that stands for the leader's present one.
PRESENT_EPOCH = -1


@dataclass(frozen=True)
class Clusters:
    """Both clusters, and the mirror's settings."""

    source: Cluster
    destination: Cluster
    settings: CopySettings

    @cached_property
    def new_producer(self) -> tuple[int, int]:
        """
        A new producer id and its epoch; raises if the destination assigns none.

        One for all partitions that are aligned together, as a Java producer has one for all that it writes
        to: brokers remember a producer's sequence for each partition by itself.
        """
        return init_producer_id(self.destination)

    def expect_same_topics(self, copy: PartitionCopy) -> None:
        """
        Check, after the logs were asked for, that both topics are still those of the metadata.

        Logs are asked for by name. If a topic was created again after the metadata were, they are another
        topic's, and one incident would look like two.

        Raises:
            BrokerError: Retriable: a topic is another one by now.

        """
        topics = copy.source.topic, copy.destination.topic
        for cluster, newest, topic in zip((self.source, self.destination), self._newest, topics, strict=True):
            now = newest.topics.get(topic)
            if cluster.topic_id(topic) != (now.topic_id if now else None):
                where = f"topic {topic} on {cluster}"
                raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, "it was created again meanwhile")

    @cached_property
    def _newest(self) -> tuple[Metadata, Metadata]:
        """Newer metadata; an alignment keeps those that it began with."""
        return _newest(self.source), _newest(self.destination)


def _newest(cluster: Cluster) -> Metadata:
    with Cluster(cluster.config, cluster.known) as another:
        return another.refresh(cluster.metadata.topics)


@dataclass(frozen=True)
class PartitionLogs:
    """
    Both logs of one partition.

    Attributes:
        clusters: Both clusters, and the settings.
        start: The first offset of the destination's log.
        end: The offset behind its last record.
        source_start: The first offset of the source's log.
        source_end: The offset behind its last record, and not only that of the high watermark; None if the
            range has no end, or if the leader keeps no epochs, as for message formats 0 and 1.
        read: The header of the batch at ``end``, if it was read with those of others.

    """

    clusters: Clusters
    copy: PartitionCopy
    start: int
    end: int
    source_start: int
    source_end: int | None
    read: BatchHeader | None = None

    @property
    def name(self) -> str:
        """The copy's name in messages."""
        return f"{self.copy.destination} on {self.clusters.destination}"

    def may_have_other_writers(self, position: MirrorPosition) -> bool:
        """Whether others may write to the copy, or could while the mirror wrote behind a position."""
        return self.clusters.settings.allows_other_writers or position.is_plain

    @cached_property
    def last_batch(self) -> BatchHeader | None:
        """
        The header of the batch that ends the destination's log; None if it is empty, or compaction took it.

        Raises:
            BrokerError: Retriable: the log is another by now.

        """
        header = (self.read or self.header_at(self.end - 1)) if self.start < self.end else None
        if header is not None and header.next_offset > self.end:
            # Two elections between two answers: this is not the log whose end was asked for.
            raise self.changed()
        return header

    def header_at(self, offset: int) -> BatchHeader | None:
        """Return the header of the destination's batch that has an offset, if there is one."""
        header = next(self.headers(offset), None)
        return header if header is not None and header.base_offset <= offset else None

    def headers(self, offset: int) -> Generator[BatchHeader]:
        """
        Yield the headers of the destination's batches from an offset that was in its log a moment ago.

        Raises:
            BrokerError: Retriable: the offset is not in the log any more, or another error of the leader.

        """
        try:
            for batch in read_batches(self.clusters.destination, self.copy.destination, offset):
                yield batch.header
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise self.changed() from error

    def last_sequence(self, producer_id: int) -> int | None:
        """Return the last sequence that the leader remembers of a producer; None if it remembers none."""
        destination, partition = self.clusters.destination, self.copy.destination
        try:
            last = last_sequence(destination, partition, producer_id)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return None
        # In this order: a late request may have arrived in between.
        if log_end_offsets(destination, [partition])[partition] != self.end:
            raise self.changed()
        return last

    def changed(self) -> ShoalError:
        """
        Return the retriable error that the destination's log is not the one whose end was asked for.

        If its start and end were the same the last time, nothing changed, and the partition stops.
        """
        if not self.copy.is_log_as_doubted((self.start, self.end)):
            return BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, self.name, "its log changed meanwhile")
        reason = (
            f"{self.name}: what the broker sends is not the log from offset {self.start} to "
            f"{self.end} that it reports, twice in a row. Look for the reason in the broker's log, or "
            "mirror the partition with a new group into an empty topic"
        )
        return PartitionStopped(*self.copy.source, self.copy.next_offset, reason)


def present_end(source: Cluster, partition: TopicPartition) -> int:
    """
    Return where a log of the source ends, or raise the error.

    Not the high watermark, as far as the leader keeps epochs: a new leader shows less for a moment (KIP-207).
    """
    end = answered(epoch_end_offsets(source, {partition: PRESENT_EPOCH})).get(partition)
    return offset_at(source, partition, LATEST) if end is None else end


def offset_at(
    cluster: Cluster,
    partition: TopicPartition,
    timestamp: int,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> int:
    """Return one partition's offset for a timestamp, as ``list_offsets`` does, or raise its error."""
    return answered(list_offsets(cluster, {partition: timestamp}, level))[partition]
