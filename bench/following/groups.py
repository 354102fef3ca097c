"""Positions of consumer groups: drawn, committed and read back, all of it by confluent-kafka."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.following.tally import Place, Position

__all__ = ["await_coordinators", "commit", "committed", "delete_groups", "draw"]

_PATIENCE_S = 120.0
_PAUSE_S = 0.5
_REQUEST_TIMEOUT_S = 60.0

#: The topic of the offsets is created with the cluster's first group, partition by partition.
_WAIT_FOR_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

#: A request is for one group, and its answer takes a commit to the log.
_AT_ONCE = 8

#: More than the partitions of the topic of the offsets, which the names of groups are spread over.
_FIRST_GROUPS = 40

_T = TypeVar("_T")


def draw(
    rng: random.Random,
    bounds: Mapping[Place, tuple[int, int]],
    count: int,
    prefix: str,
    most_behind: int | None = None,
) -> list[Position]:
    """Draw offsets from the start of a partition up to its end, the partitions in turn.

    A group has one offset of each partition; each turn over the partitions is another group.

    Args:
        bounds: The first offset and the end of each partition.
        prefix: The beginning of the groups' names.
        most_behind: How far behind the end an offset may be; None for any offset.
    """
    places = sorted(bounds)
    positions = []
    for number in range(count):
        group, index = divmod(number, len(places))
        start, end = bounds[places[index]]
        if most_behind is not None:
            start = max(start, end - most_behind)
        positions.append(Position(f"{prefix}-{group}", places[index], rng.randint(start, end)))
    return positions


def commit(bootstrap: str, positions: Iterable[Position]) -> None:
    """Commit positions without a member, which a broker accepts while the group is empty."""
    by_group: dict[str, list[TopicPartition]] = defaultdict(list)
    for group, (topic, partition), offset in positions:
        by_group[group].append(TopicPartition(topic, partition, offset))
    admin = _admin(bootstrap)

    def commit_one(group: str) -> None:
        offsets = [ConsumerGroupTopicPartitions(group, by_group[group])]

        def send() -> None:
            asked = admin.alter_consumer_group_offsets(offsets, request_timeout=_REQUEST_TIMEOUT_S)
            for each in asked[group].result().topic_partitions:
                if each.error is not None:
                    raise KafkaException(each.error)

        _patiently(send)

    _for_each(commit_one, by_group)


def await_coordinators(bootstrap: str, topic: str) -> None:
    """Wait until each broker that may coordinate groups does, by commits of groups of their own.

    If a broker answers an admin's OffsetFetch that it is no coordinator, librdkafka 2.16 crashes. So
    `committed` is for clusters that have groups.
    """
    commit(bootstrap, [Position(f"first-{number}", (topic, 0), 0) for number in range(_FIRST_GROUPS)])


def committed(bootstrap: str, groups: Collection[str]) -> dict[tuple[str, Place], int]:
    """Return the committed offsets of some groups, by group and place; groups that do not exist have none."""
    admin = _admin(bootstrap)
    found: dict[tuple[str, Place], int] = {}

    def read_one(group: str) -> None:
        def ask() -> list[TopicPartition]:
            asked = admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=_REQUEST_TIMEOUT_S
            )
            offsets: list[TopicPartition] = asked[group].result().topic_partitions
            return offsets

        for each in _patiently(ask):
            if each.offset >= 0:
                found[group, (each.topic, each.partition)] = each.offset

    _for_each(read_one, groups)
    return found


def delete_groups(bootstrap: str, groups: Collection[str]) -> None:
    """Delete groups that exist."""
    admin = _admin(bootstrap)  # held: a client that is collected never completes its futures
    for answer in admin.delete_consumer_groups(list(groups), request_timeout=_REQUEST_TIMEOUT_S).values():
        answer.result()


def _admin(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _for_each(work: Callable[[str], None], groups: Iterable[str]) -> None:
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as workers:
        list(workers.map(work, groups))


def _patiently(ask: Callable[[], _T]) -> _T:
    """Ask again while a coordinator loads or creates the topic of its offsets."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _WAIT_FOR_COORDINATOR or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)
