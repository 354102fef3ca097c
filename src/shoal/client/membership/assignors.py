"""
Kafka's assignors: the leader of a group assigns the partitions to the members with one of them.

``range`` and ``roundrobin`` return the same result as Java's, partition by partition.
``cooperative-sticky`` keeps the members' partitions as far as balance allows. A partition that another member
still has to revoke is not assigned (KIP-429). If all subscriptions are equal, its result is Java's. If they
differ, it is as balanced and as sticky, but may choose another member among equals.

The assignors ignore racks. The module does not use kafka-python's assignors: decision 0030 has the reasons.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ...protocol.consumer_protocol import NO_GENERATION, Subscription
from ...topic_partition import TopicPartition

__all__ = ["ASSIGNORS", "Assignor", "Member", "RebalanceProtocol"]

Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Member:
    """
    A member of the group, as its leader receives it.

    Attributes:
        member_id: The coordinator's id of the member.
        instance_id: ``group.instance.id`` of a static member.

    """

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def order(self) -> tuple[bool, str]:
        """The sort key: static members first by instance id, then by member id (``MemberInfo.compareTo``)."""
        return (self.instance_id is None, self.instance_id or self.member_id)


class RebalanceProtocol(Enum):
    """The action of a member before it joins again (KIP-429)."""

    #: Revoke all partitions.
    EAGER = 0
    #: Keep all partitions; revoke those that the new assignment does not have, and join once more.
    COOPERATIVE = 1


class Assignor(Protocol):
    """A strategy to assign partitions."""

    @property
    def name(self) -> str:
        """The name in ``partition.assignment.strategy`` and in JoinGroup."""

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The rebalance protocols that it supports."""

    def user_data(self, generation: int) -> bytes | None:
        """Return the user data of a subscription, for the member's last generation."""

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
        """
        Assign the partitions.

        Args:
            partitions: The number of partitions of each topic that exists.
            members: All members of the group.

        Returns:
            The partitions of each member, perhaps none.

        """


def _subscribers(partitions: Mapping[str, int], members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return the subscribers of each topic, in the members' order."""
    subscribers: dict[str, list[Member]] = {topic: [] for topic in partitions}
    for member in sorted(members, key=lambda member: member.order):
        for topic in member.subscription.topics:
            if topic in subscribers:
                subscribers[topic].append(member)
    return subscribers


class RangeAssignor:
    """Assigns consecutive partitions of each topic to each of its subscribers (``RangeAssignor``)."""

    name = "range"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, generation: int) -> bytes | None:
        """See :class:`Assignor`."""
        return None

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
        """See :class:`Assignor`."""
        members = list(members)
        assignment: Assignment = {member.member_id: [] for member in members}
        for topic, subscribers in _subscribers(partitions, members).items():
            start = 0
            for position, member in enumerate(subscribers):
                each, extra = divmod(partitions[topic], len(subscribers))
                end = start + each + (position < extra)
                assignment[member.member_id] += [TopicPartition(topic, n) for n in range(start, end)]
                start = end
        return assignment


class RoundRobinAssignor:
    """Assigns the partitions of all topics in turn to the subscribers (``RoundRobinAssignor``)."""

    name = "roundrobin"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, generation: int) -> bytes | None:
        """See :class:`Assignor`."""
        return None

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
        """See :class:`Assignor`."""
        in_order = sorted(members, key=lambda member: member.order)
        wants = {member.member_id: frozenset(member.subscription.topics) for member in in_order}
        ordered = list(wants)
        assignment: Assignment = {member_id: [] for member_id in ordered}
        turn = 0
        for topic in sorted(frozenset().union(*wants.values()) & partitions.keys()):
            for number in range(partitions[topic]):
                while topic not in wants[ordered[turn % len(ordered)]]:
                    turn += 1
                assignment[ordered[turn % len(ordered)]].append(TopicPartition(topic, number))
                turn += 1
        return assignment


_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor:
    """Balances with few moves, and moves in two steps (``CooperativeStickyAssignor``)."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

    def user_data(self, generation: int) -> bytes | None:
        """See :class:`Assignor`."""
        # For leaders that read subscriptions of version 1; version 2 has a field for the generation.
        return _GENERATION.pack(generation)

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
        """See :class:`Assignor`."""
        members = sorted(members, key=lambda member: member.member_id)
        wanted = {topic for member in members for topic in member.subscription.topics}
        partitions = {topic: count for topic, count in partitions.items() if topic in wanted}
        owned, contested = _owned(partitions, members)
        if len({frozenset(member.subscription.topics) for member in members}) == 1:
            assignment = _fill_by_quota(partitions, owned)
        else:
            assignment = _balance(partitions, members, owned)
        return _without_transfers(assignment, members, contested)


def _generation_of(subscription: Subscription) -> int:
    """Return the generation of the owned partitions; before version 2 it is in the user data."""
    if subscription.generation != NO_GENERATION:
        return subscription.generation
    data = subscription.user_data
    return (
        _GENERATION.unpack(data)[0] if data is not None and len(data) == _GENERATION.size else NO_GENERATION
    )


def _owned(
    partitions: Mapping[str, int], members: Iterable[Member]
) -> tuple[dict[str, list[TopicPartition]], set[TopicPartition]]:
    """
    Return the valid partitions of each member, and the partitions that two members claim.

    If two members claim a partition, that of the later generation owns it. If their generations are the same,
    neither does (``AbstractStickyAssignor.allSubscriptionsEqual``).

    """
    claims: dict[TopicPartition, tuple[int, str]] = {}
    contested: set[TopicPartition] = set()
    for member in members:
        generation = _generation_of(member.subscription)
        for topic, number in member.subscription.owned:
            partition = TopicPartition(topic, number)
            if topic not in member.subscription.topics or not 0 <= number < partitions.get(topic, 0):
                continue
            before = claims.get(partition)
            if before is not None and before[0] == generation:
                contested.add(partition)
            if before is None or before[0] < generation:
                claims[partition] = (generation, member.member_id)
                contested.discard(partition)
    owned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for partition, (_, member_id) in claims.items():
        if partition not in contested:
            owned[member_id].append(partition)
    return owned, contested


def _fill_by_quota(partitions: Mapping[str, int], owned: Mapping[str, list[TopicPartition]]) -> Assignment:
    """
    Assign partitions to members with equal subscriptions (``ConstrainedAssignmentBuilder``).

    Each member gets the quotient, and some get one more: first those that own so many already.

    """
    least, with_more = divmod(sum(partitions.values()), len(owned))
    assignment: Assignment = {}
    for member_id, has in owned.items():
        has = sorted(has, key=lambda each: (each.partition, each.topic))
        keeps_more = with_more > 0 and len(has) > least
        with_more -= keeps_more
        assignment[member_id] = has[: least + keeps_more]
    kept = {partition for part in assignment.values() for partition in part}
    left = [
        TopicPartition(topic, number)
        for topic in sorted(partitions)
        for number in range(partitions[topic])
        if TopicPartition(topic, number) not in kept
    ]
    unfilled = [member_id for member_id in sorted(owned) if len(assignment[member_id]) < least]
    filled = [member_id for member_id in sorted(owned) if len(assignment[member_id]) == least]
    position = 0
    for partition in left:
        if unfilled:
            position %= len(unfilled)
            member_id = unfilled[position]
        else:
            member_id = filled.pop(0)
        assignment[member_id].append(partition)
        if unfilled:
            if len(assignment[member_id]) == least:
                unfilled.pop(position)
                filled.append(member_id)
            else:
                position += 1
    return assignment


def _balance(
    partitions: Mapping[str, int], members: Iterable[Member], owned: Mapping[str, list[TopicPartition]]
) -> Assignment:
    """Assign partitions to members with different subscriptions: first the free ones, then move some."""
    assignment: Assignment = {member_id: list(has) for member_id, has in owned.items()}
    subscribers = _subscribers(partitions, members)
    owner = {partition: member_id for member_id, has in owned.items() for partition in has}
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(partitions, key=lambda topic: (len(subscribers[topic]), topic))
        for number in range(partitions[topic])
        if subscribers[topic]
    ]

    def least_loaded(topic: str) -> str:
        candidates = [member.member_id for member in subscribers[topic]]
        return min(candidates, key=lambda member_id: (len(assignment[member_id]), member_id))

    for partition in everything:
        if partition not in owner:
            owner[partition] = least_loaded(partition.topic)
            assignment[owner[partition]].append(partition)
    moved = True
    while moved:  # terminates: each move reduces the sum of the squared loads
        moved = False
        for partition in everything:
            has, gets = owner[partition], least_loaded(partition.topic)
            if len(assignment[has]) > len(assignment[gets]) + 1:
                assignment[has].remove(partition)
                assignment[gets].append(partition)
                owner[partition] = gets
                moved = True
    return assignment


def _without_transfers(
    assignment: Assignment, members: Iterable[Member], contested: set[TopicPartition]
) -> Assignment:
    """Remove the partitions that another member must revoke first: they are assigned after its next join."""
    claimed_by: dict[TopicPartition, set[str]] = {}
    for member in members:
        for topic, number in member.subscription.owned:
            claimed_by.setdefault(TopicPartition(topic, number), set()).add(member.member_id)
    return {
        member_id: [
            partition
            for partition in has
            if partition not in contested
            and (member_id in (claimants := claimed_by.get(partition, set())) or not claimants)
        ]
        for member_id, has in assignment.items()
    }


#: The assignors by name, as in ``partition.assignment.strategy``.
ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())
}
