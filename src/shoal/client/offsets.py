"""Where a log begins and ends, asked of the leaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..error_codes import ErrorCode
from ..errors import BrokerError, ProtocolError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition
from .cluster import Cluster
from .config import IsolationLevel

__all__ = [
    "EARLIEST",
    "LATEST",
    "epoch_end_offsets",
    "list_offsets",
    "local_log_start_offset",
    "log_end_offsets",
]

#: ListOffsets' special timestamps.
LATEST = -1
EARLIEST = -2
_EARLIEST_LOCAL = -4

#: Stands for the epoch that the metadata names.
_CURRENT_EPOCH = -1

Answers = dict[TopicPartition, int | ShoalError]
T = TypeVar("T")


def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Answers:
    """
    Ask each partition's leader for the offset of a timestamp.

    Args:
        cluster: With metadata of the partitions.
        timestamps: Milliseconds, :data:`EARLIEST` (the log's start) or
            :data:`LATEST` (the high watermark; with ``READ_COMMITTED`` the
            last stable offset).
        isolation_level: See there.

    Returns:
        For each partition an offset (-1: no record at or after the
        timestamp), or the error that stands in its way.

    """
    request = request_class(ApiKey.LIST_OFFSETS)
    topic, entry = request.ListOffsetsTopic, request.ListOffsetsTopic.ListOffsetsPartition

    def ask(node_id: int, partitions: list[TopicPartition]) -> Answers:
        by_topic = _by_topic(
            partitions, lambda each: entry(partition_index=each.partition, timestamp=timestamps[each])
        )
        response = cluster.connection(node_id).request(
            ApiKey.LIST_OFFSETS,
            replica_id=-1,
            isolation_level=isolation_level.value,
            topics=[topic(name=name, partitions=entries) for name, entries in by_topic.items()],
        )
        return {
            TopicPartition(answered.name, each.partition_index): _answer(
                each.error_code,
                each.offset,
                f"ListOffsets of {answered.name}-{each.partition_index} on {cluster}",
            )
            for answered in response.topics
            for each in answered.partitions
        }

    return _ask_leaders(cluster, timestamps, ask)


def local_log_start_offset(cluster: Cluster, partition: TopicPartition) -> int | ShoalError:
    """
    Ask where the log on the leader's own disks begins: what is before lies in remote storage (KIP-405).

    Brokers that do not know the question (ListOffsets before v8) have no remote storage.
    """
    try:
        connection = cluster.connection(cluster.partition(partition).leader)
        timestamp = _EARLIEST_LOCAL if connection.version(ApiKey.LIST_OFFSETS) >= 8 else EARLIEST
    except ShoalError as error:
        return error
    return list_offsets(cluster, {partition: timestamp})[partition]


def log_end_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Answers:
    """
    Ask each partition's leader for its log end: the offset after its last record.

    ListOffsets answers the high watermark, which may lag behind; the end
    offset of the leader's current epoch (OffsetForLeaderEpoch, KIP-320) is
    the log's end itself.

    Returns:
        For each partition an offset, or the error that stands in its way.

    """
    answers = epoch_end_offsets(cluster, dict.fromkeys(partitions, _CURRENT_EPOCH), must_know=True)
    unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
    return {
        partition: BrokerError(unknown, f"OffsetForLeaderEpoch of {partition} on {cluster}")
        if answer is None
        else answer
        for partition, answer in answers.items()
    }


def epoch_end_offsets(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], *, must_know: bool = False
) -> dict[TopicPartition, int | ShoalError | None]:
    """
    Ask each partition's leader where a leader epoch ends in its log (OffsetForLeaderEpoch, KIP-320).

    Args:
        cluster: With metadata of the partitions.
        epochs: -1 for the leader's current epoch, which ends where the log does.
        must_know: Whether it is an error that a broker is too old for the
            question (before Kafka 2.3).

    Returns:
        For each partition the offset up to which its log is as it was in that
        epoch: where an epoch is not in the log at all, the end of the one
        before it. None where the log keeps no epochs, as those of magic 0 and
        1, or the broker is too old to be asked. Or the error that stands in its way.

    """
    request = request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    topic, entry = request.OffsetForLeaderTopic, request.OffsetForLeaderTopic.OffsetForLeaderPartition

    def ask(node_id: int, asked: list[TopicPartition]) -> Answers:
        def with_epoch(each: TopicPartition) -> Any:
            current = cluster.partition(each).leader_epoch
            wanted = current if epochs[each] == _CURRENT_EPOCH else epochs[each]
            return entry(partition=each.partition, current_leader_epoch=current, leader_epoch=wanted)

        connection = cluster.connection(node_id)
        if not must_know and not connection.speaks(ApiKey.OFFSET_FOR_LEADER_EPOCH):
            return dict.fromkeys(asked, -1)
        response = connection.request(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            replica_id=-1,
            topics=[
                topic(topic=name, partitions=entries)
                for name, entries in _by_topic(asked, with_epoch).items()
            ],
        )
        return {
            TopicPartition(answered.topic, each.partition): _answer(
                each.error_code,
                each.end_offset,
                f"OffsetForLeaderEpoch of {answered.topic}-{each.partition} on {cluster}",
            )
            for answered in response.topics
            for each in answered.partitions
        }

    answers = _ask_leaders(cluster, epochs, ask)
    return {
        partition: None if isinstance(answer, int) and answer < 0 else answer
        for partition, answer in answers.items()
    }


def _answer(error_code: int, offset: int, where: str) -> int | ShoalError:
    return BrokerError(error_code, where) if error_code else offset


def _by_topic(
    partitions: Iterable[TopicPartition], make: Callable[[TopicPartition], T]
) -> dict[str, list[T]]:
    entries: dict[str, list[T]] = defaultdict(list)
    for partition in partitions:
        entries[partition.topic].append(make(partition))
    return entries


def _ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Answers],
) -> Answers:
    """Ask each leader for its partitions in one request, and collect the answers and errors."""
    answers: Answers = {}
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        try:
            by_leader[cluster.partition(partition).leader].append(partition)
        except ShoalError as error:
            answers[partition] = error
    for leader, led in by_leader.items():
        try:
            answered = ask(leader, led)
        except ShoalError as error:
            answered = dict.fromkeys(led, error)
        for partition in led:
            missing = ProtocolError(f"{partition} on {cluster}: the answer does not speak of it")
            answers[partition] = answered.get(partition, missing)
    return answers
