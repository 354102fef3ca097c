"""
A join of a group: subscriptions, and the assignment of all members if this one leads.

A pattern subscribes to the topics that exist at the time. The leader keeps the partition counts that it
assigned, so that the member notices a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..error_codes import ErrorCode
from ..errors import BrokerError, GroupHeld
from ..protocol.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ..topic_partition import TopicPartition
from .assignors import Assignor, Member, assignors_named
from .cluster import Cluster
from .coordinator import Coordinator, Joined, MemberId
from .groups import describe_holder
from .metadata import Metadata
from .rebalance_listener import MembershipSettings

__all__ = ["Joiner", "matching_topics"]


class Joiner:
    """
    Joins a group with the assignors of its settings, or with the one of a member that is alone in it.

    Attributes:
        counts: The partition counts of the topics that this member assigned last; none if another leads.

    """

    def __init__(
        self, cluster: Cluster, coordinator: Coordinator, settings: MembershipSettings, sole: Assignor | None
    ) -> None:
        """
        Look up the assignors.

        Raises:
            ConfigError: There is no assignor, or an unknown one.

        """
        self._cluster = cluster
        self._coordinator = coordinator
        self._settings = settings
        self._is_sole = sole is not None
        self._assignors = {sole.name: sole} if sole else assignors_named(settings.assignors)
        self.counts: Mapping[str, int] = {}

    def join(self, member: MemberId, topics: Iterable[str]) -> Joined:
        """
        Subscribe to topics, and wait for the other members.

        Raises:
            GroupHeld: This member would be alone in the group, and others are in it.

        """
        protocols = {
            name: encode_subscription(topics, assignor.user_data)
            for name, assignor in self._assignors.items()
        }
        try:
            return self._coordinator.join(
                member,
                protocols,
                session_timeout_ms=self._settings.session_timeout_ms,
                rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            )
        except BrokerError as error:
            if not self._is_sole or error.code is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                raise
            group = self._settings.group
            holder = describe_holder(self._cluster, group) or "a member that just left"
            raise GroupHeld(group, holder) from error

    def sync(self, joined: Joined) -> list[TopicPartition]:
        """Send the assignments if this member leads, and return the partitions of this member, sorted."""
        part = self._coordinator.sync(joined, self._settings.instance_id, self._assignments(joined))
        return sorted(TopicPartition(*each) for each in decode_assignment(part))

    def _assignments(self, joined: Joined) -> dict[str, bytes]:
        """Return the encoded assignments by member id if this member leads the group; else nothing."""
        self.counts = {}
        if not joined.is_leader:
            return {}
        members = [
            Member(member_id, instance_id, decode_subscription(metadata).topics)
            for member_id, instance_id, metadata in joined.members
        ]
        topics = {topic for member in members for topic in member.topics}
        if self._is_sole:
            topics = set()  # it takes what it likes: the numbers of partitions are not asked for
        self.counts = _counts(self._cluster.refresh(topics), topics)
        if joined.leave_assignment:
            return {}
        partitions = {topic: count for topic, count in self.counts.items() if count}
        assignment = self._assignors[joined.protocol].assign(partitions, members)
        return {member_id: encode_assignment(part) for member_id, part in assignment.items()}

    def has_changed(self, metadata: Metadata) -> bool:
        """Whether one of these topics has another number of partitions now, or does not exist any more."""
        return _counts(metadata, self.counts) != self.counts


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
