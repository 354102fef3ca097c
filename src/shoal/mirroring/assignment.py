"""Plan the work: which offsets of which partitions, and who copies them together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..client.cluster import Cluster, is_transient
from ..client.config import IsolationLevel
from ..client.offsets import LATEST, list_offsets
from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError
from ..topic_partition import TopicPartition
from .model.ranges import CopyRange

__all__ = ["deal_lanes", "end_offsets", "lanes_worth_having", "partitions_of", "plan_ranges", "start_offsets"]

#: Requests of 8 batches are where their own cost begins to matter less than that of the batches.
_PARTITIONS_A_LANE = 8


def partitions_of(cluster: Cluster, topics: Sequence[str]) -> list[TopicPartition]:
    """
    Ask for topics' partitions.

    Raises:
        BrokerError: One of the topics is not there, or may not be seen.

    """
    metadata = cluster.refresh(topics)
    for topic in topics:
        if topic not in metadata.topics:
            code = metadata.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise BrokerError(code, f"topic {topic} on {cluster}")
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
    Return up to where each partition may be read now: the last stable offset, or the high watermark.

    Args:
        cluster: With metadata of the partitions.
        partitions: Which.
        isolation_level: Decides which of the two.
        all_of_them: False leaves out those whose leader does not answer now.

    Raises:
        ShoalError: A leader does not answer.

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
    Return where each partition begins: the first offset at or after a time.

    Args:
        cluster: With metadata of the partitions.
        partitions: Which.
        timestamp_ms: Or ``EARLIEST``, or ``LATEST``. Where there is no record
            at or after the time, the partition begins at its end.
        isolation_level: Decides what its end is.
        all_of_them: False leaves out those whose leader does not answer now.

    Raises:
        ShoalError: A leader does not answer.

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


def plan_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
    destinations: Mapping[str, str],
    doubted: Collection[TopicPartition] = (),
) -> list[CopyRange]:
    """
    Return what there is to copy.

    Args:
        starts: Where a partition begins that has no position.
        ends: The first offsets that are not wanted.
        positions: The committed source offsets, where there are any.
        destinations: The destination topics' names by source topic.
        doubted: Partitions whose copy is not what their position says.

    Returns:
        A range for each partition that has something to copy; or no position
        yet: such a one gets its first pair even where there is nothing; or a
        position past its end, or a copy in doubt: a task finds out how that
        can be.

    """
    ranges = []
    for partition, end in ends.items():
        position = positions.get(partition)
        start = starts[partition] if position is None else position
        if position is None or start != end or partition in doubted:
            topic, number = partition
            ranges.append(CopyRange(topic, number, destinations[topic], start, max(start, end)))
    return ranges


def lanes_worth_having(partitions: int, leaders: Mapping[TopicPartition, tuple[int, int]], most: int) -> int:
    """
    Return how many lanes to deal partitions to: not more than can fill their requests.

    A stock broker takes one batch of a partition in a request, so a request
    is as large as its lane has partitions: two lanes of 2 partitions send
    twice as many requests as one of 4.

    Args:
        partitions: How many there are to copy.
        leaders: Source and destination leader by source partition; those of
            different pairs share no request anyway.
        most: Tasks that can run at a time.

    """
    pairs = len(set(leaders.values()))
    return max(1, min(most, max(pairs, -(-partitions // _PARTITIONS_A_LANE))))


def deal_lanes(
    ranges: Sequence[CopyRange],
    lanes: int,
    leaders: Mapping[TopicPartition, tuple[int, int]],
    weights: Mapping[TopicPartition, int] | None = None,
) -> list[list[CopyRange]]:
    """
    Deal ranges to at most so many lanes of about equal weight.

    Args:
        ranges: What to copy.
        lanes: One for each Spark task that can run at a time.
        leaders: Source and destination leader by source partition.
            Partitions of the same pair stay together, so that one Fetch
            response becomes one Produce request.
        weights: By source partition, 0 where it is not named; None stands for
            the ranges' numbers of offsets.

    Returns:
        The lanes, none of them empty.

    """

    def weight(each: CopyRange) -> int:
        offsets = each.end_offset - each.start_offset if weights is None else weights.get(each.source, 0)
        return offsets + 1

    together = sorted(ranges, key=lambda each: (leaders.get(each.source, (-1, -1)), -weight(each)))
    target = sum(map(weight, ranges)) / lanes
    dealt: list[list[CopyRange]] = [[]]
    load = 0.0
    for each in together:
        # A lane is full when the next range would lie more outside than inside.
        if dealt[-1] and load + weight(each) / 2 > target and len(dealt) < lanes:
            dealt.append([])
            load = 0.0
        dealt[-1].append(each)
        load += weight(each)
    return [lane for lane in dealt if lane]
