"""
Who gets which partitions: Kafka's assignors, as the group's leader runs them.

``range`` and ``roundrobin`` give what Java's give, partition by partition.
``cooperative-sticky`` keeps what members have, as far as balance allows, and
gives nobody a partition that another one has still to give up (KIP-429); with
equal subscriptions its result is Java's, with different ones it is as
balanced and as sticky, but may choose another member among equals.

Racks are not looked at.
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
    One that takes part.

    Attributes:
        member_id: From the coordinator.
        instance_id: Of a static member.
        subscription: What it sent.

    """

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by instance id; then by member id (``MemberInfo.compareTo``)."""
        return (self.instance_id is None, self.instance_id or self.member_id)


class RebalanceProtocol(Enum):
    """What a member does before it joins again (KIP-429)."""

    #: Give up everything.
    EAGER = 0
    #: Keep everything; give up what the new assignment takes away, and join once more.
    COOPERATIVE = 1


class Assignor(Protocol):
    """One way to deal partitions."""

    @property
    def name(self) -> str:
        """As in ``partition.assignment.strategy`` and in JoinGroup."""

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """What its members may do."""

    def user_data(self, generation: int) -> bytes | None:
        """Return what a subscription carries for the leader; the generation is the last one's."""

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
        """
        Deal the partitions.

        Args:
            partitions: How many each topic has; those that do not exist are left out.
            members: All of them.

        Returns:
            Each member's part; perhaps an empty one.

        """


def _subscribers(partitions: Mapping[str, int], members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return by topic who wants it, in the members' order."""
    subscribers: dict[str, list[Member]] = {topic: [] for topic in partitions}
    for member in sorted(members, key=lambda member: member.order):
        for topic in member.subscription.topics:
            if topic in subscribers:
                subscribers[topic].append(member)
    return subscribers


class RangeAssignor:
    """Of each topic a run of partitions to each member (``RangeAssignor``)."""

    name = "range"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, generation: int) -> bytes | None:
        return None

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
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
    """All partitions of all topics in turn, to those that want them (``RoundRobinAssignor``)."""

    name = "roundrobin"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, generation: int) -> bytes | None:
        return None

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
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
    """Balanced, with as few moves as it takes, and each move in two steps (``CooperativeStickyAssignor``)."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

    def user_data(self, generation: int) -> bytes | None:
        # For leaders that read subscriptions of version 1; from version 2 on they have a field for it.
        return _GENERATION.pack(generation)

    def assign(self, partitions: Mapping[str, int], members: Iterable[Member]) -> Assignment:
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
    """Return when a member got what it owns; before version 2 only its user data may tell."""
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
    Return what each member owns rightly, and what two of the same generation claim.

    Of two that claim the same, the one of the later generation is right; of
    the same generation, neither (``AbstractStickyAssignor.allSubscriptionsEqual``).

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
    Deal partitions among members that all want the same (``ConstrainedAssignmentBuilder``).

    Each gets the quotient, some one more; who has that already keeps it.

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
    """Deal partitions among members that want different topics: what is free first, then move what helps."""
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
    while moved:  # ends: each move makes the sum of the squares of the loads smaller
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
    """Leave out what another member has still to give up; it is dealt when that one joins again."""
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


#: By name, as in ``partition.assignment.strategy``.
ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())
}
