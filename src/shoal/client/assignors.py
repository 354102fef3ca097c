"""
Kafka's eager assignors: the leader of a group assigns the partitions to the members with one of them.

``range`` and ``roundrobin`` return the same result as Java's, partition by partition, without racks. The
module does not use kafka-python's assignors (docs/architecture.md, "Assignors are shoal's own").
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import ConfigError
from ..topic_partition import TopicPartition

__all__ = ["ASSIGNORS", "Assignor", "Member", "assignors_named"]

Assignment: TypeAlias = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Member:
    """
    A member of the group, as its leader receives it.

    Attributes:
        member_id: The coordinator's id of the member.
        instance_id: ``group.instance.id`` of a static member.
        topics: The topics that the member subscribes to.

    """

    member_id: str
    instance_id: str | None
    topics: Sequence[str]

    @property
    def order(self) -> tuple[bool, str]:
        """The sort key: static members first by instance id, then by member id (``MemberInfo.compareTo``)."""
        return (self.instance_id is None, self.instance_id or self.member_id)


@dataclass(frozen=True, slots=True)
class Assignor:
    """
    A strategy to assign partitions.

    Attributes:
        name: The name in ``partition.assignment.strategy`` and in JoinGroup.
        assign: Returns the partitions of each member, perhaps none, from the number of partitions of each
            topic that exists and all members of the group.
        user_data: The user data of a subscription.

    """

    name: str
    assign: Callable[[Mapping[str, int], Sequence[Member]], Assignment]
    user_data: bytes | None = None


def _assign_ranges(partitions: Mapping[str, int], members: Sequence[Member]) -> Assignment:
    """Assign consecutive partitions of each topic to each of its subscribers (``RangeAssignor``)."""
    in_order = sorted(members, key=lambda member: member.order)
    assignment: Assignment = {member.member_id: [] for member in in_order}
    for topic, count in partitions.items():
        subscribers = [member for member in in_order if topic in member.topics]
        start = 0
        for position, member in enumerate(subscribers):
            each, extra = divmod(count, len(subscribers))
            end = start + each + (position < extra)
            assignment[member.member_id] += [TopicPartition(topic, n) for n in range(start, end)]
            start = end
    return assignment


def _assign_in_turn(partitions: Mapping[str, int], members: Sequence[Member]) -> Assignment:
    """Assign the partitions of all topics in turn to the subscribers (``RoundRobinAssignor``)."""
    in_order = sorted(members, key=lambda member: member.order)
    wants = {member.member_id: frozenset(member.topics) for member in in_order}
    assignment: Assignment = {member_id: [] for member_id in wants}
    turns = itertools.cycle(wants)
    for topic in sorted(frozenset().union(*wants.values()) & partitions.keys()):
        for number in range(partitions[topic]):
            member_id = next(each for each in turns if topic in wants[each])
            assignment[member_id].append(TopicPartition(topic, number))
    return assignment


#: The assignors by name, as in ``partition.assignment.strategy``.
ASSIGNORS: Mapping[str, Assignor] = {
    "range": Assignor("range", _assign_ranges),
    "roundrobin": Assignor("roundrobin", _assign_in_turn),
}

#: The names of Java's classes, and of an assignor of its default that shoal leaves out if there are others.
_JAVA_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_LEFT_OUT = "cooperative-sticky"


def assignors_named(names: Iterable[str]) -> dict[str, Assignor]:
    """
    Return the assignors of ``partition.assignment.strategy``, the preferred one first.

    Raises:
        ConfigError: There is none, or an unknown one.

    """
    given = [_JAVA_NAMES.get(name, name) for name in names]
    wanted = [name for name in given if name != _LEFT_OUT] or given
    for name in wanted:
        if name not in ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy: unsupported assignor {name!r}. Use one of "
                f"{', '.join(ASSIGNORS)}"
            )
    if not wanted:
        raise ConfigError(f"partition.assignment.strategy is empty. Use one of {', '.join(ASSIGNORS)}")
    return {name: ASSIGNORS[name] for name in wanted}
