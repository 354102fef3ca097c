"""The start and end offsets of logs, from the partitions' leaders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ..error_codes import ErrorCode
from ..errors import BrokerError, ProtocolError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition, by_topic
from .cluster import Cluster, is_transient, patiently
from .config import IsolationLevel

__all__ = [
    "EARLIEST",
    "LATEST",
    "LogOffsets",
    "answered",
    "ask_logs",
    "ask_offsets",
    "epoch_end_offsets",
    "known_log_ends",
    "list_offsets",
    "local_log_start_offset",
    "log_end_offsets",
]

#: The special timestamps of ListOffsets.
LATEST = -1
EARLIEST = -2
_EARLIEST_LOCAL = -4

#: A request for the leader epoch in the metadata.
_CURRENT_EPOCH = -1

Answers = dict[TopicPartition, int | ShoalError]
T = TypeVar("T")


def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Answers:
    """
    Return the offset of a timestamp in each partition.

    Args:
        cluster: The cluster, with metadata of the partitions.
        timestamps: Milliseconds since 1970, :data:`EARLIEST` (the log's start) or :data:`LATEST` (the high
            watermark; with ``READ_COMMITTED`` the last stable offset).
        isolation_level: The visibility of transactions.

    Returns:
        The offset in each partition (-1: no record at or after the timestamp), or the error.

    """
    request = request_class(ApiKey.LIST_OFFSETS)
    topic, entry = request.ListOffsetsTopic, request.ListOffsetsTopic.ListOffsetsPartition

    def ask(node_id: int, partitions: list[TopicPartition]) -> Answers:
        entries = by_topic(
            partitions, lambda each: entry(partition_index=each.partition, timestamp=timestamps[each])
        )
        response = cluster.connection(node_id).request(
            ApiKey.LIST_OFFSETS,
            replica_id=-1,
            isolation_level=isolation_level.value,
            topics=[topic(name=name, partitions=each) for name, each in entries.items()],
        )
        return {
            partition: each.offset
            if not each.error_code
            else cluster.config.problem_of(partition)
            or BrokerError(each.error_code, f"ListOffsets of {partition} on {cluster}")
            for answered in response.topics
            for each in answered.partitions
            for partition in (TopicPartition(answered.name, each.partition_index),)
        }

    return _ask_leaders(cluster, timestamps, ask)


def local_log_start_offset(cluster: Cluster, partition: TopicPartition) -> int | ShoalError:
    """
    Return the first offset on the leader's own disks; earlier records are in remote storage (KIP-405).

    A broker with ListOffsets before v8 does not report that, and returns the log's start.
    """
    try:
        connection = cluster.connection(cluster.partition(partition).leader)
        timestamp = _EARLIEST_LOCAL if connection.version(ApiKey.LIST_OFFSETS) >= 8 else EARLIEST
    except ShoalError as error:
        return error
    return list_offsets(cluster, {partition: timestamp})[partition]


def log_end_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Answers:
    """
    Return the log end of each partition: the offset after its leader's last record.

    ListOffsets returns the high watermark, which may lag behind. The end offset of the leader's current epoch
    (OffsetForLeaderEpoch, KIP-320) is the log end itself.

    Returns:
        The offset in each partition, or the error.

    """
    answers = epoch_end_offsets(cluster, dict.fromkeys(partitions, _CURRENT_EPOCH), must_know=True)
    unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
    return {
        partition: BrokerError(unknown, f"OffsetForLeaderEpoch of {partition} on {cluster}")
        if answer is None
        else answer
        for partition, answer in answers.items()
    }


def known_log_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Return the end of each leader's log, without brokers before Kafka 2.3 and logs that have no epochs.

    Raises:
        ShoalError: A leader does not respond, or is one of a later epoch than the cluster's metadata have.

    """
    return answered(epoch_end_offsets(cluster, dict.fromkeys(partitions, _CURRENT_EPOCH)))


def answered(answers: Mapping[TopicPartition, T | ShoalError | None]) -> dict[TopicPartition, T]:
    """Return the answers that are known; raise the first error among them."""
    known = {}
    for partition, answer in answers.items():
        if isinstance(answer, ShoalError):
            raise answer
        if answer is not None:
            known[partition] = answer
    return known


def epoch_end_offsets(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], *, must_know: bool = False
) -> dict[TopicPartition, int | ShoalError | None]:
    """
    Return the end offset of a leader epoch in each leader's log (OffsetForLeaderEpoch, KIP-320).

    Args:
        cluster: The cluster, with metadata of the partitions.
        epochs: The epoch for each partition; -1 is the leader's current one, whose end is the log end.
        must_know: Whether a broker that is too old (before Kafka 2.3) is an error.

    Returns:
        The end offset in each partition, or the error. If the log does not have the epoch, it is the end of
        the one before. None if the log has no epochs, as those of magic 0 and 1, or if the broker is too old.

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
            topics=[topic(topic=name, partitions=each) for name, each in by_topic(asked, with_epoch).items()],
        )
        return {
            partition: each.end_offset
            if not each.error_code
            else BrokerError(each.error_code, f"OffsetForLeaderEpoch of {partition} on {cluster}")
            for answered in response.topics
            for each in answered.partitions
            for partition in (TopicPartition(answered.topic, each.partition),)
        }

    answers = _ask_leaders(cluster, epochs, ask)
    return {
        partition: None if isinstance(answer, int) and answer < 0 else answer
        for partition, answer in answers.items()
    }


def _ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Answers],
) -> Answers:
    """Send one request to each leader for its partitions, and collect the results and errors."""
    by_leader, errors = cluster.by_leader(partitions)
    answers: Answers = {**errors}
    for leader, led in by_leader.items():
        try:
            answered = ask(leader, led)
        except ShoalError as error:
            answered = dict.fromkeys(led, error)
        for partition in led:
            # Of thousands of partitions: no sentence for one that has its answer.
            answers[partition] = (
                answered[partition]
                if partition in answered
                else ProtocolError(f"{partition} on {cluster}: the answer does not speak of it")
            )
    return answers


class LogOffsets(NamedTuple):
    """
    The offsets of a log.

    Attributes:
        start: The first one.
        stable: The last stable one, asked for after the end: if it is smaller, a transaction is open.
        end: The high watermark.

    """

    start: int
    stable: int
    end: int


def ask_logs(
    cluster: Cluster, partitions: Collection[TopicPartition], patience_s: float
) -> dict[TopicPartition, LogOffsets | ShoalError]:
    """
    Ask for the offsets of logs.

    Args:
        cluster: The cluster, with metadata of the partitions.
        partitions: The partitions.
        patience_s: How long to retry transient errors.

    Returns:
        For each partition its offsets, or the error that prevents them.

    """
    ends, stable, starts = (
        ask_offsets(cluster, partitions, timestamp, patience_s, level)
        for timestamp, level in (
            (LATEST, IsolationLevel.READ_UNCOMMITTED),
            (LATEST, IsolationLevel.READ_COMMITTED),
            (EARLIEST, IsolationLevel.READ_UNCOMMITTED),
        )
    )
    return {each: _log(starts[each], stable[each], ends[each]) for each in partitions}


def _log(start: int | ShoalError, stable: int | ShoalError, end: int | ShoalError) -> LogOffsets | ShoalError:
    if isinstance(start, ShoalError):
        return start
    if isinstance(stable, ShoalError):
        return stable
    if isinstance(end, ShoalError):
        return end
    # DeleteRecords may move the log start past the last stable offset.
    return LogOffsets(start, max(start, stable), max(start, end))


def ask_offsets(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    timestamp: int,
    patience_s: float,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int | ShoalError]:
    """Ask as :func:`~shoal.client.offsets.list_offsets` does, until no answer is a transient error."""
    answers: dict[TopicPartition, int | ShoalError] = {}
    unanswered = list(partitions)

    def try_again() -> None:
        nonlocal unanswered
        if answers:
            cluster.refresh({partition.topic for partition in unanswered})
        answers.update(list_offsets(cluster, dict.fromkeys(unanswered, timestamp), level))
        errors = {each: answer for each, answer in answers.items() if isinstance(answer, ShoalError)}
        unanswered = [each for each, error in errors.items() if is_transient(error)]
        if unanswered:
            raise errors[unanswered[0]]

    with suppress(ShoalError):
        patiently(try_again, patience_s=patience_s)
    return answers
