"""Plan the work: the offsets to copy of each partition, and the task that copies them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ..client.cluster import Cluster, is_transient
from ..client.offsets import LATEST, answered, list_offsets
from ..error_codes import ErrorCode
from ..errors import BrokerError
from ..topic_partition import TopicPartition
from .model.ranges import CopyRange
from .model.window import Until

__all__ = [
    "Wanted",
    "assign_tasks",
    "end_offsets",
    "partitions_of",
    "share_out",
    "start_offsets",
    "tasks_worth_having",
    "window_ends",
]

#: With 8 batches in a request, the request costs less than its batches do.
_PARTITIONS_A_TASK = 8

#: The partitions are shared out again once a task has so many times its part.
_UNEVEN = 1.5

M = TypeVar("M", bound=Hashable)


class Wanted(NamedTuple):
    """
    A partition that some task is to copy.

    Attributes:
        range: Where to copy it to, where it begins without a position, and where it ends.
        leaders: Its leaders at source and destination; partitions of the same two stay together.
        weight: Its recent records, and its lag.

    """

    range: CopyRange
    leaders: tuple[int, int] = (-1, -1)
    weight: int = 0


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
    return metadata.partitions_of(topics)


def end_offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, all_of_them: bool = True
) -> dict[TopicPartition, int]:
    """
    Return the end of each partition for a reader: the last stable offset, or the high watermark.

    Args:
        cluster: The cluster that is read, with metadata of the partitions. Its isolation level decides.
        partitions: The partitions of interest.
        all_of_them: False leaves out partitions whose leader does not respond now.

    Raises:
        ShoalError: A leader does not respond.

    """
    return _asked(cluster, partitions, LATEST, all_of_them=all_of_them)


def window_ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], until: Until | None
) -> dict[TopicPartition, int]:
    """
    Return where a mirror with an end has to end in each partition, as far as its log has records now.

    Args:
        cluster: See :func:`end_offsets`, likewise the partitions.
        until: The end; None ends at the present ends.

    Raises:
        ShoalError: A leader does not respond.

    """
    # Before the times: a record that comes in between must not lie before the end.
    ends = end_offsets(cluster, partitions)
    if until is None:
        return ends
    if until.offset is not None:
        return {each: min(end, until.offset) for each, end in ends.items()}
    if until.timestamp_ms is None:
        return ends
    found = _asked(cluster, ends, until.timestamp_ms, all_of_them=True)
    return {each: min(ends[each], offset) if offset >= 0 else ends[each] for each, offset in found.items()}


def start_offsets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    timestamp_ms: int,
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
        all_of_them: False leaves out partitions whose leader does not respond now.

    Raises:
        ShoalError: A leader does not respond.

    """
    starts = _asked(cluster, partitions, timestamp_ms, all_of_them=all_of_them)
    later = [partition for partition, offset in starts.items() if offset < 0]
    ends = end_offsets(cluster, later, all_of_them=all_of_them)
    return {each: offset for each, offset in (starts | ends).items() if offset >= 0}


def _asked(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    *,
    all_of_them: bool,
) -> dict[TopicPartition, int]:
    timestamps = dict.fromkeys(partitions, timestamp_ms)
    answers = list_offsets(cluster, timestamps, cluster.config.isolation_level)
    return answered(
        {
            partition: answer
            for partition, answer in answers.items()
            if all_of_them or not is_transient(answer)
        }
    )


def tasks_worth_having(wanted: Collection[Wanted], most: int) -> int:
    """
    Return the number of tasks to assign partitions to: at most so many that each fills its requests.

    A stock broker takes one batch of a partition in a request, so a request is as large as its task has
    partitions: two tasks of 2 partitions send twice as many requests as one of 4. Partitions of different
    pairs of leaders never share a request.

    Args:
        wanted: The partitions to copy.
        most: The number of tasks that can run at a time.

    """
    pairs = len({each.leaders for each in wanted})
    return max(1, min(most, max(pairs, -(-len(wanted) // _PARTITIONS_A_TASK))))


def assign_tasks(wanted: Collection[Wanted], tasks: int) -> list[list[CopyRange]]:
    """
    Assign ranges to at most so many tasks of about equal weight; none has nothing.

    Partitions of the same pair of leaders stay together, so that one Fetch response becomes one Produce
    request.
    """
    target = sum(each.weight + 1 for each in wanted) / tasks
    assigned: list[list[CopyRange]] = [[]]
    load = 0.0
    for each in sorted(wanted, key=lambda each: (each.leaders, -each.weight)):
        # A task is full when the next range would lie more outside than inside.
        if assigned[-1] and load + (each.weight + 1) / 2 > target and len(assigned) < tasks:
            assigned.append([])
            load = 0.0
        assigned[-1].append(each.range)
        load += each.weight + 1
    return [each for each in assigned if each]


def share_out(
    wanted: Mapping[TopicPartition, Wanted], members: Sequence[M], holders: Mapping[TopicPartition, M]
) -> dict[TopicPartition, M]:
    """
    Decide which task should have each partition: the one that has it, unless that is uneven.

    Args:
        wanted: The partitions.
        members: The tasks that can take partitions.
        holders: The tasks that have partitions now; those that are no members lose them.

    """
    tasks = tasks_worth_having(wanted.values(), len(members))
    kept = _keep(wanted, members, holders, tasks)
    if kept is not None:
        return kept
    free = list(members)
    shared: dict[TopicPartition, M] = {}
    for part in assign_tasks(wanted.values(), tasks):
        # To the task that has most of it.
        held = Counter(holders.get(each.source) for each in part)
        taker = max(free, key=lambda member: held[member])
        free.remove(taker)
        shared |= {each.source: taker for each in part}
    return shared


def _keep(
    wanted: Mapping[TopicPartition, Wanted],
    members: Sequence[M],
    holders: Mapping[TopicPartition, M],
    tasks: int,
) -> dict[TopicPartition, M] | None:
    """
    Leave partitions where they are, and give each other one to a task with little.

    Return None if that is uneven: fewer tasks than are of use have any, or one has much more than its part.
    """
    kept = {each: holders[each] for each in wanted if holders.get(each) in members}
    if not kept:
        return None
    loads = dict.fromkeys(members, 0)
    of_leaders: dict[tuple[int, int], set[M]] = defaultdict(set)
    for partition, member in kept.items():
        loads[member] += wanted[partition].weight + 1
        of_leaders[wanted[partition].leaders].add(member)
    for partition in sorted(wanted.keys() - kept.keys(), key=lambda each: -wanted[each].weight):
        known = of_leaders[wanted[partition].leaders] or members
        kept[partition] = taker = min(known, key=loads.__getitem__)
        loads[taker] += wanted[partition].weight + 1
    heaviest, part = max(each.weight + 1 for each in wanted.values()), sum(loads.values()) / tasks
    is_even = max(loads.values()) <= _UNEVEN * part + heaviest
    return kept if is_even and len(set(kept.values())) >= tasks else None
