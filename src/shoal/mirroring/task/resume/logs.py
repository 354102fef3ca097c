"""The logs of both sides: where they begin and end, and their batches as resuming reads them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....client.admin import init_producer_id
from ....client.cluster import Cluster
from ....client.config import IsolationLevel
from ....client.metadata import Metadata
from ....client.offsets import EARLIEST, LATEST, epoch_end_offsets, list_offsets, log_end_offsets
from ....client.scan import read_batches, read_one_batch_each
from ....error_codes import ErrorCode
from ....errors import BrokerError, PartitionStopped, ShoalError
from ....records import RecordBatch
from ....topic_partition import TopicPartition
from ...model.copy_options import CopySettings
from ...model.position import MirrorPosition
from ..partition import PartitionCopy

__all__ = [
    "Clusters",
    "DestinationLog",
    "PartitionLogs",
    "SourceLog",
    "destination_logs",
    "last_batches",
    "offset_at",
    "source_end",
    "source_logs",
]


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
        for cluster, newest, topic in (
            (self.source, self._newest_of_source, copy.source.topic),
            (self.destination, self._newest_of_destination, copy.destination.topic),
        ):
            now = newest.topics.get(topic)
            if cluster.topic_id(topic) != (now.topic_id if now else None):
                where = f"topic {topic} on {cluster}"
                raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, "it was created again meanwhile")

    @cached_property
    def _newest_of_source(self) -> Metadata:
        return _newest(self.source)

    @cached_property
    def _newest_of_destination(self) -> Metadata:
        return _newest(self.destination)


def _newest(cluster: Cluster) -> Metadata:
    """Ask for newer metadata; an alignment keeps those that it began with."""
    with Cluster(cluster.config, cluster.known) as another:
        return another.refresh(cluster.metadata.topics)


@dataclass(frozen=True, slots=True)
class DestinationLog:
    """A partition's log at the destination: its first offset, and the one after its last record."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceLog:
    """
    A partition's log at the source.

    Attributes:
        start: Its first offset.
        same_up_to: The offset up to which the log is the same as when the position
            was committed: the end of the position's leader epoch, or of the log.
            None if the source does not support the question.

    """

    start: int
    same_up_to: int | None


def destination_logs(
    destination: Cluster, copies: Sequence[PartitionCopy]
) -> tuple[dict[TopicPartition, DestinationLog], dict[TopicPartition, ShoalError]]:
    """
    Ask for the logs' ends; one whose high watermark lags behind is not to be trusted yet.

    Returns:
        The logs by destination partition; and by source partition, why it is not known.

    """
    partitions = [copy.destination for copy in copies]
    ends = log_end_offsets(destination, partitions)
    # Not of those whose leader does not answer: each question waits for its time-out.
    answered = [partition for partition in partitions if not isinstance(ends[partition], ShoalError)]
    high_watermarks = list_offsets(destination, dict.fromkeys(answered, LATEST))
    starts = list_offsets(destination, dict.fromkeys(answered, EARLIEST))
    logs: dict[TopicPartition, DestinationLog] = {}
    errors: dict[TopicPartition, ShoalError] = {}
    for copy in copies:
        end = ends[copy.destination]
        if isinstance(end, ShoalError):
            errors[copy.source] = end
            continue
        high_watermark, start = high_watermarks[copy.destination], starts[copy.destination]
        if isinstance(high_watermark, ShoalError):
            errors[copy.source] = high_watermark
        elif isinstance(start, ShoalError):
            errors[copy.source] = start
        elif high_watermark < end:
            # An election could still take back what lies between the two.
            where = f"{copy.destination} on {destination}: high watermark {high_watermark}, log end {end}"
            errors[copy.source] = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, where)
        else:
            logs[copy.destination] = DestinationLog(start, end)
    return logs, errors


def last_batches(
    destination: Cluster, settings: CopySettings, logs: Mapping[TopicPartition, DestinationLog]
) -> dict[TopicPartition, RecordBatch | ShoalError]:
    """Ask for the batches at the logs' ends, as far as they are small; see :func:`read_one_batch_each`."""
    if settings.allows_other_writers:  # nothing is compared
        return {}
    return read_one_batch_each(
        destination, {partition: log.end - 1 for partition, log in logs.items() if log.start < log.end}
    )


def source_logs(
    source: Cluster, copies: Sequence[PartitionCopy], positions: Mapping[TopicPartition, MirrorPosition]
) -> dict[TopicPartition, SourceLog | ShoalError]:
    """Query the logs' first offsets, and the offsets up to which they have the mirrored records (KIP-320)."""
    wanted = [copy for copy in copies if copy.source in positions]
    starts = list_offsets(source, {copy.source: EARLIEST for copy in wanted})
    epochs = {copy.source: positions[copy.source].source_leader_epoch for copy in wanted}
    ends = epoch_end_offsets(source, epochs)
    # Logs of magic 0 and 1 keep no epochs. Their high watermark may lag behind what was
    # mirrored, so it is believed only where the leader refused our offset as well.
    doubted = [copy.source for copy in wanted if copy.out_of_range and ends[copy.source] is None]
    high_watermarks = list_offsets(source, dict.fromkeys(doubted, LATEST))
    logs: dict[TopicPartition, SourceLog | ShoalError] = {}
    for copy in wanted:
        start = starts[copy.source]
        end = high_watermarks.get(copy.source, ends[copy.source])
        if isinstance(start, ShoalError):
            logs[copy.source] = start
        elif isinstance(end, ShoalError):
            logs[copy.source] = end
        else:
            logs[copy.source] = SourceLog(start, end)
    return logs


@dataclass(frozen=True)
class PartitionLogs:
    """
    Both logs of one partition, read forwards.

    Attributes:
        clusters: Both clusters, and the settings.
        log: Its log at the destination, as of now.
        last_batch: The batch at that log's end, if it was asked for with those of others.

    """

    clusters: Clusters
    copy: PartitionCopy
    log: DestinationLog
    last_batch: RecordBatch | None = None

    @property
    def settings(self) -> CopySettings:
        """The mirror's settings."""
        return self.clusters.settings

    def destination_batches(self, offset: int) -> Generator[RecordBatch]:
        """
        Yield the destination's batches from an offset that was in its log a moment ago.

        Raises:
            BrokerError: Retriable: the offset is not in the log any more, or another error of the leader.
            PartitionStopped: The leader reports twice that the log has the offset, and refuses it.

        """
        if self.last_batch is not None and offset == self.log.end - 1:
            yield self.last_batch
            return
        try:
            yield from read_batches(self.clusters.destination, self.copy.destination, offset)
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise self.changed() from error

    def changed(self) -> ShoalError:
        """
        Return the retriable error that the destination's log is not the one whose end was asked for.

        If its start and end were the same the last time, nothing changed, and the partition stops.
        """
        where = f"{self.copy.destination} on {self.clusters.destination}"
        if not self.copy.is_log_as_doubted(self.log.start, self.log.end):
            return BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, "its log changed meanwhile")
        reason = (
            f"{where}: what the broker sends is not the log from offset {self.log.start} to {self.log.end} "
            "that it reports, twice in a row. Look for the reason in the broker's log, or mirror the "
            "partition with a new group into an empty topic"
        )
        return PartitionStopped(*self.copy.source, self.copy.next_offset, reason)


def offset_at(
    cluster: Cluster,
    partition: TopicPartition,
    timestamp: int,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> int:
    """Return one partition's offset for a timestamp, as ``list_offsets`` does, or raise its error."""
    offset = list_offsets(cluster, {partition: timestamp}, level)[partition]
    if isinstance(offset, ShoalError):
        raise offset
    return offset


def source_end(clusters: Clusters, partition: TopicPartition) -> int:
    """
    Return the offset up to which a partition of the source can be read.

    A new leader learns only after a moment how far its followers are. Until then it shows less than the
    leader before it did, and what was mirrored may lie behind that (KIP-207).

    Raises:
        BrokerError: Retriable: the high watermark has not reached yet where the leader's log ended when it
            was elected.

    """
    source = clusters.source
    high_watermark = offset_at(source, partition, LATEST)
    leader_epoch = source.partition(partition).leader_epoch
    if leader_epoch > 0:
        elected_at = epoch_end_offsets(source, {partition: leader_epoch - 1})[partition]
        if isinstance(elected_at, ShoalError):
            raise elected_at
        if elected_at is not None and high_watermark < elected_at:
            reason = (
                f"{partition} on {source}: its new leader shows the log up to offset {high_watermark}, and "
                f"has it up to {elected_at}"
            )
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, reason)
    level = clusters.settings.source.isolation_level
    if level is IsolationLevel.READ_UNCOMMITTED:
        return high_watermark
    return offset_at(source, partition, LATEST, level)
