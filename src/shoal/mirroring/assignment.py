"""Plan the work: the offsets to copy of each partition, and the task that copies them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..client.cluster import Cluster, is_transient
from ..client.config import IsolationLevel
from ..client.offsets import LATEST, epoch_end_offsets, list_offsets
from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError
from ..topic_partition import TopicPartition
from .model.position import MirrorPosition, is_another_topic
from .model.ranges import CopyRange

__all__ = [
    "assign_tasks",
    "doubted_sources",
    "end_offsets",
    "partitions_of",
    "plan_ranges",
    "start_offsets",
    "tasks_worth_having",
]

#: With 8 batches in a request, the request costs less than its batches do.
_PARTITIONS_A_TASK = 8


def partitions_of(cluster: Cluster, topics: Sequence[str]) -> list[TopicPartition]:
    """
    Request the partitions of topics.

    Raises:
        BrokerError: A topic does not exist, or this principal may not describe it. Retriable: its partitions
            are not known yet.

    """
    metadata = cluster.refresh(topics)
    for topic in topics:
        if topic not in metadata.topics:
            code = metadata.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise BrokerError(code, f"topic {topic} on {cluster}")
        if not metadata.topics[topic].partitions:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} on {cluster}")
    return [
        TopicPartition(topic, number)
        for topic in topics
        for number in sorted(metadata.topics[topic].partitions)
    ]


def end_offsets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    isolation_level: IsolationLevel,
    *,
    all_of_them: bool = True,
) -> dict[TopicPartition, int]:
    """
    Return the end of each partition for a reader: the last stable offset, or the high watermark.

    Args:
        cluster: The cluster that is read, with metadata of the partitions.
        partitions: The partitions of interest.
        isolation_level: ``read_committed`` ends at the last stable offset.
        all_of_them: False leaves out partitions whose leader does not respond now.

    Raises:
        ShoalError: A leader does not respond.

    """
    answers = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level)
    return _all_answered(answers if all_of_them else _those_that_answer(answers))


def start_offsets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    timestamp_ms: int,
    isolation_level: IsolationLevel,
    *,
    all_of_them: bool = True,
) -> dict[TopicPartition, int]:
    """
    Return the start of each partition: the first offset at or after a time.

    Args:
        cluster: The cluster that is read, with metadata of the partitions.
        partitions: The partitions of interest.
        timestamp_ms: Or ``EARLIEST``, or ``LATEST``. A partition without a record
            at or after the time begins at its end.
        isolation_level: See :func:`end_offsets`.
        all_of_them: False leaves out partitions whose leader does not respond now.

    Raises:
        ShoalError: A leader does not respond.

    """
    answers = list_offsets(cluster, dict.fromkeys(partitions, timestamp_ms), isolation_level)
    starts = _all_answered(answers if all_of_them else _those_that_answer(answers))
    later = [partition for partition, offset in starts.items() if offset < 0]
    ends = end_offsets(cluster, later, isolation_level, all_of_them=all_of_them)
    return {each: offset for each, offset in (starts | ends).items() if offset >= 0}


def _those_that_answer(
    answers: Mapping[TopicPartition, int | ShoalError],
) -> dict[TopicPartition, int | ShoalError]:
    return {
        partition: answer
        for partition, answer in answers.items()
        if not (isinstance(answer, ShoalError) and is_transient(answer))
    }


def _all_answered(answers: Mapping[TopicPartition, int | ShoalError]) -> dict[TopicPartition, int]:
    for answer in answers.values():
        if isinstance(answer, ShoalError):
            raise answer
    return {partition: answer for partition, answer in answers.items() if not isinstance(answer, ShoalError)}


def doubted_sources(
    cluster: Cluster, positions: Mapping[TopicPartition, MirrorPosition], ends: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """
    Return the partitions at their end whose log is not shown to be the one that was mirrored.

    An end offset that equals the position does not show this: the topic may be another one, or its log may
    have lost its tail and have grown again (KIP-320). This sends one request to each leader.

    Args:
        cluster: The source, with metadata of the partitions.
        positions: The committed positions.
        ends: The logs' ends. Every other partition has a range to copy, so its task examines it anyway.

    """
    at_end = {each: position for each, position in positions.items() if position.source_offset == ends[each]}
    epochs = {each: position.source_leader_epoch for each, position in at_end.items()}
    same_up_to = epoch_end_offsets(cluster, epochs)
    return [
        each
        for each, position in at_end.items()
        if is_another_topic(position.source_topic_id, cluster.topic_id(each.topic))
        or not _reaches(same_up_to[each], position.source_offset)
    ]


def _reaches(same_up_to: int | ShoalError | None, offset: int) -> bool:
    """Whether a log is the same up to an offset; also if it keeps no leader epochs, so nothing shows that."""
    return same_up_to is None or (isinstance(same_up_to, int) and same_up_to >= offset)


def plan_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
    destinations: Mapping[str, str],
    doubted: Collection[TopicPartition] = (),
) -> list[CopyRange]:
    """
    Return the ranges to copy.

    Args:
        starts: The start offsets of partitions without a position.
        ends: The first offsets that are not to be copied.
        positions: The committed source offsets.
        destinations: The destination topics' names by source topic.
        doubted: Partitions whose copy differs from their position, or whose log may be another one.

    Returns:
        A range for each partition with offsets to copy. Others have a range, too, so that a task
        examines them: partitions without a position (the task commits the first one), with a
        position past the end, or in doubt.

    """
    ranges = []
    for partition, end in ends.items():
        position = positions.get(partition)
        start = starts[partition] if position is None else position
        if position is None or start != end or partition in doubted:
            topic, number = partition
            ranges.append(CopyRange(topic, number, destinations[topic], start, max(start, end)))
    return ranges


def tasks_worth_having(partitions: int, leaders: Mapping[TopicPartition, tuple[int, int]], most: int) -> int:
    """
    Return the number of tasks to assign partitions to: at most so many that each fills its requests.

    A stock broker takes one batch of a partition in a request, so a request
    is as large as its task has partitions: two tasks of 2 partitions send
    twice as many requests as one of 4.

    Args:
        partitions: The number of partitions to copy.
        leaders: Source and destination leader by source partition. Partitions of
            different pairs of leaders never share a request.
        most: The number of tasks that can run at a time.

    """
    pairs = len(set(leaders.values()))
    return max(1, min(most, max(pairs, -(-partitions // _PARTITIONS_A_TASK))))


def assign_tasks(
    ranges: Sequence[CopyRange],
    tasks: int,
    leaders: Mapping[TopicPartition, tuple[int, int]],
    weights: Mapping[TopicPartition, int] | None = None,
) -> list[list[CopyRange]]:
    """
    Assign ranges to at most so many tasks of about equal weight.

    Args:
        ranges: The offsets to copy.
        tasks: The number of Spark tasks that can run at a time.
        leaders: Source and destination leader by source partition.
            Partitions of the same pair stay together, so that one Fetch
            response becomes one Produce request.
        weights: By source partition, 0 if it is not named; None stands for
            the ranges' numbers of offsets.

    Returns:
        The ranges of each task, none of them empty.

    """

    def weight(each: CopyRange) -> int:
        offsets = each.end_offset - each.start_offset if weights is None else weights.get(each.source, 0)
        return offsets + 1

    together = sorted(ranges, key=lambda each: (leaders.get(each.source, (-1, -1)), -weight(each)))
    target = sum(map(weight, ranges)) / tasks
    assigned: list[list[CopyRange]] = [[]]
    load = 0.0
    for each in together:
        # A task is full when the next range would lie more outside than inside.
        if assigned[-1] and load + weight(each) / 2 > target and len(assigned) < tasks:
            assigned.append([])
            load = 0.0
        assigned[-1].append(each)
        load += weight(each)
    return [each for each in assigned if each]
