"""Where the logs of both sides begin and end, asked of all leaders at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....client.admin import init_producer_id
from ....client.cluster import Cluster
from ....client.config import IsolationLevel
from ....client.offsets import EARLIEST, LATEST, epoch_end_offsets, list_offsets, log_end_offsets
from ....error_codes import ErrorCode
from ....errors import BrokerError, ShoalError
from ....topic_partition import TopicPartition
from ...model.copy_options import CopyOptions
from ...model.position import MirrorPosition
from ..partition import PartitionCopy

__all__ = ["Clusters", "DestinationLog", "SourceLog", "destination_logs", "source_end", "source_logs"]


@dataclass(frozen=True)
class Clusters:
    """Whom resuming asks, and by which rules."""

    source: Cluster
    destination: Cluster
    settings: CopyOptions

    @cached_property
    def new_producer(self) -> tuple[int, int]:
        """
        A producer id that nobody has used, and its epoch; raises where the destination hands out none.

        One for all partitions that are aligned together, as a Java producer has one for all that it writes
        to: brokers remember a producer's sequence for each partition by itself.
        """
        return init_producer_id(self.destination)


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
        same_up_to: Up to where it is what it was when the pair was committed:
            the end of the leader epoch that the pair names, or of the log.
            None where the source cannot tell.

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


def source_logs(
    source: Cluster, copies: Sequence[PartitionCopy], pairs: Mapping[TopicPartition, MirrorPosition]
) -> dict[TopicPartition, SourceLog | ShoalError]:
    """Ask where the logs begin, and up to where they are what was mirrored (KIP-320)."""
    wanted = [copy for copy in copies if copy.source in pairs]
    starts = list_offsets(source, {copy.source: EARLIEST for copy in wanted})
    epochs = {copy.source: pairs[copy.source].source_leader_epoch for copy in wanted}
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


def source_end(clusters: Clusters, partition: TopicPartition) -> int:
    """
    Return up to where a partition of the source can be read.

    A new leader learns only after a moment how far its followers are. Until then it shows less than the
    leader before it did, and what was mirrored may lie behind that (KIP-207).

    Raises:
        BrokerError: Retriable: the high watermark has not reached yet where the leader's log ended when it
            was elected.

    """
    source = clusters.source
    high_watermark = _offset(list_offsets(source, {partition: LATEST})[partition])
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
    return _offset(list_offsets(source, {partition: LATEST}, level)[partition])


def _offset(answer: int | ShoalError) -> int:
    if isinstance(answer, ShoalError):
        raise answer
    return answer
