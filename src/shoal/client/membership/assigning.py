"""
A member's part in assignments: its subscriptions, and, as the leader, the assignment of all members.

A pattern subscribes to the topics that exist at the time. The leader keeps the partition counts that it
assigned, so that the member notices a change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...errors import ConfigError
from ...protocol.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ...topic_partition import TopicPartition
from ..coordinator import Joined
from ..metadata import Metadata
from .assignors import ASSIGNORS, Assignor, Member, RebalanceProtocol

__all__ = ["Assigning", "matching_topics"]


class Assigning:
    """
    Subscribes with each assignor, and assigns the partitions of a group that this member leads.

    Attributes:
        protocol: The rebalance protocol that all assignors support.

    """

    def __init__(self, names: Sequence[str], sole: Assignor | None) -> None:
        """
        Look up the assignors by name.

        Args:
            names: Their names, the preferred one first.
            sole: The only assignor, in place of the named ones.

        Raises:
            ConfigError: There is no assignor, or an unknown one.

        """
        self._assignors = {sole.name: sole} if sole else _assignors(names)
        self.protocol = _common_protocol(self._assignors.values())
        self._assigned: Mapping[str, int] = {}

    def subscriptions(
        self, topics: Iterable[str], owned: Sequence[TopicPartition], generation: int
    ) -> dict[str, bytes]:
        """Encode the subscription for each assignor that the group may choose."""
        return {
            name: encode_subscription(
                Subscription(sorted(topics), assignor.user_data(generation), owned, generation)
            )
            for name, assignor in self._assignors.items()
        }

    def assign(self, joined: Joined, refresh: Callable[[Iterable[str]], Metadata]) -> dict[str, bytes]:
        """
        Assign the partitions if this member leads the group; otherwise return nothing.

        Args:
            joined: The answer to JoinGroup, with the members.
            refresh: Returns the metadata of topics.

        Returns:
            The encoded assignments by member id.

        """
        if not joined.is_leader:
            self._assigned = {}
            return {}
        members = [
            Member(member_id, instance_id, decode_subscription(metadata))
            for member_id, instance_id, metadata in joined.members
        ]
        topics = {topic for member in members for topic in member.subscription.topics}
        self._assigned = _counts(refresh(topics), topics)
        if joined.leave_assignment:
            return {}
        partitions = {topic: count for topic, count in self._assigned.items() if count}
        assignment = self._assignors[joined.protocol].assign(partitions, members)
        return {member_id: encode_assignment(part) for member_id, part in assignment.items()}

    @property
    def topics(self) -> Iterable[str]:
        """The topics that this member assigned last; none if another member leads."""
        return self._assigned

    def has_changed(self, metadata: Metadata) -> bool:
        """Whether one of these topics has another number of partitions now, or does not exist any more."""
        return _counts(metadata, self._assigned) != self._assigned


def matching_topics(metadata: Metadata, pattern: re.Pattern[str]) -> frozenset[str]:
    """Return the topics whose full name matches, without Kafka's internal ones."""
    return frozenset(
        topic.name
        for topic in metadata.topics.values()
        if not topic.internal and pattern.fullmatch(topic.name)
    )


def _counts(metadata: Metadata, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic; 0 if it does not exist."""
    return {name: len(metadata.topics[name].partitions) if name in metadata.topics else 0 for name in topics}


def _assignors(names: Sequence[str]) -> dict[str, Assignor]:
    for name in names:
        if name not in ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy: unknown assignor {name!r}. Use one of {', '.join(ASSIGNORS)}"
            )
    if not names:
        raise ConfigError(f"partition.assignment.strategy is empty. Use one of {', '.join(ASSIGNORS)}")
    return {name: ASSIGNORS[name] for name in names}


def _common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """Return COOPERATIVE if all assignors support it, as Java's consumer does; otherwise EAGER."""
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common &= set(assignor.protocols)
    return max(common, key=lambda protocol: protocol.value)
