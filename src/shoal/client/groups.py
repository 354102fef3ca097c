"""
Consumer groups: committed positions, and membership.

A mirror commits to a group on the source cluster, as a consumer would, so
that Kafka's own tools show its position and its lag.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BrokerError, Disconnected, ErrorCode, GroupHeld, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from .cluster import Cluster
from .connection import raise_for
from .metadata import TopicPartition

__all__ = [
    "JOIN_AGAIN",
    "Committed",
    "GroupMember",
    "Membership",
    "commit_offsets",
    "describe_holder",
    "fetch_offsets",
    "has_coordinator",
]

#: Codes after which the coordinator has to be looked up again.
_COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

#: Codes of a commit that say nothing about the other partitions in it.
_OF_ONE_PARTITION = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)

#: What a member is told that has to join again: it may be a member still, of a later generation.
JOIN_AGAIN = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed position: the next offset to read, and up to 4,096 bytes of the committer's own."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Membership:
    """
    Who commits. Without a group to be member of, the default: accepted while the group is empty.

    A commit with a member and generation that are no longer the group's is
    refused: that fences a mirror which lost its group.
    """

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


def fetch_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Committed]:
    """
    Read the positions that a group committed; partitions without one are left out.

    Raises:
        BrokerError: The group or one of its partitions cannot be read.

    """
    topic = request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestTopic
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)
    if not by_topic:
        return {}
    response = _ask_coordinator(
        cluster,
        group,
        ApiKey.OFFSET_FETCH,
        group_id=group,
        topics=[topic(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()],
    )
    _raise_for_group(cluster, group, response.error_code, "reading the positions")
    committed = {}
    for answered in response.topics:
        for each in answered.partitions:
            _raise_for_group(cluster, group, each.error_code, "reading the positions")
            if each.committed_offset >= 0:
                partition = TopicPartition(answered.name, each.partition_index)
                committed[partition] = Committed(each.committed_offset, each.metadata or "")
    return committed


def commit_offsets(
    cluster: Cluster, group: str, positions: Mapping[TopicPartition, Committed], membership: Membership
) -> dict[TopicPartition, BrokerError]:
    """
    Commit positions.

    Returns:
        The partitions that were refused, and why; empty when all is well.

    Raises:
        BrokerError: Nothing can be committed to the group, whatever the
            partition, by this member or for now.

    """
    topic = request_class(ApiKey.OFFSET_COMMIT).OffsetCommitRequestTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for partition, committed in positions.items():
        by_topic[partition.topic].append(
            topic.OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=-1,
                committed_metadata=committed.metadata,
            )
        )
    response = _ask_coordinator(
        cluster,
        group,
        ApiKey.OFFSET_COMMIT,
        group_id=group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=[topic(name=name, partitions=entries) for name, entries in by_topic.items()],
    )
    refused = {
        TopicPartition(answered.name, each.partition_index): BrokerError(
            each.error_code,
            f"committing {answered.name}-{each.partition_index} to group {group!r} on {cluster}",
        )
        for answered in response.topics
        for each in answered.partitions
        if each.error_code
    }
    for error in refused.values():
        if error.code not in _OF_ONE_PARTITION:
            _raise_for_group(cluster, group, error.raw_code, "committing the positions")
    return refused


def describe_holder(cluster: Cluster, group: str) -> str | None:
    """Return who is in a group, as one phrase for a message; None where nobody is."""
    response = _ask_coordinator(
        cluster, group, ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=False
    )
    members = [member for described in response.groups for member in described.members]
    if not members:
        return None
    return "; ".join(f"client {each.client_id!r} at {each.client_host.lstrip('/')}" for each in members)


def has_coordinator(cluster: Cluster, group: str) -> bool:
    """
    Whether any broker answers for a group; where none does, the cluster has no groups yet.

    To ask for the coordinator, as everything else here does, makes a broker create ``__consumer_offsets``.

    Where a broker does not answer it may be that one.

    Raises:
        BrokerError: The group may not be described.

    """
    silent = False
    for node_id in cluster.metadata.brokers:
        try:
            response = cluster.connection(node_id).request(
                ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=False
            )
        except Disconnected:
            silent = True
            continue
        for described in response.groups:
            if described.error_code not in _COORDINATOR_MOVED:
                raise_for(described.error_code, f"group {group!r} on {cluster}")
                return True
    return silent


def _ask_coordinator(cluster: Cluster, group: str, api_key: ApiKey, **fields: Any) -> Any:
    try:
        return cluster.coordinator(group).request(api_key, **fields)
    except ShoalError:
        cluster.forget_coordinator(group)
        raise


def _raise_for_group(cluster: Cluster, group: str, error_code: int, what: str) -> None:
    if error_code in _COORDINATOR_MOVED:
        cluster.forget_coordinator(group)
    raise_for(error_code, f"{what} of group {group!r} on {cluster}")


class GroupMember:
    """
    A group's only member: holds the group, so that no second mirror works in it.

    The protocol's name is the mirror's own. A second mirror comes with
    another one and is refused (error 23, INCONSISTENT_GROUP_PROTOCOL) without
    disturbing the first. The ``instance_id`` (KIP-345) lets the same mirror
    take its place again at once after it died.

    All requests go to the coordinator; all methods raise
    :class:`~shoal.errors.BrokerError` and
    :class:`~shoal.errors.Disconnected` besides what they say.

    """

    def __init__(
        self, cluster: Cluster, group: str, *, protocol: str, instance_id: str, session_timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._protocol = protocol
        self._instance_id = instance_id
        self._session_timeout_ms = session_timeout_ms
        self._topics: list[str] = []
        self.membership = Membership(instance_id=instance_id)

    def join(self, assignment: Iterable[TopicPartition] = ()) -> Membership:
        """
        Become the group's member, or take one's own place again.

        Args:
            assignment: Shown by Kafka's tools as what this member works on.

        Raises:
            GroupHeld: Somebody else is in the group.

        """
        assignment = list(assignment)
        # A group's offsets of topics that nobody in it subscribes to expire.
        self._topics = sorted({partition.topic for partition in assignment})
        response = self._join(self.membership.member_id)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            response = self._join(response.member_id)
        if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            response = self._join("")
        if response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise GroupHeld(
                self._group, describe_holder(self._cluster, self._group) or "somebody who just left"
            )
        self._raise_for(response.error_code, "joining")
        self._sync(response, assignment)
        self.membership = Membership(response.member_id, response.generation_id, self._instance_id)
        return self.membership

    def _join(self, member_id: str) -> Any:
        protocol = request_class(ApiKey.JOIN_GROUP).JoinGroupRequestProtocol
        return self._ask(
            ApiKey.JOIN_GROUP,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._session_timeout_ms,
            member_id=member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",  # Kafka's tools describe no other
            protocols=[protocol(name=self._protocol, metadata=_subscription(self._topics))],
        )

    def _sync(self, joined: Any, assignment: Iterable[TopicPartition]) -> None:
        entry = request_class(ApiKey.SYNC_GROUP).SyncGroupRequestAssignment
        is_leader = joined.leader == joined.member_id
        response = self._ask(
            ApiKey.SYNC_GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=self._protocol,
            assignments=[entry(member_id=joined.member_id, assignment=_assignment(assignment))]
            if is_leader
            else [],
        )
        self._raise_for(response.error_code, "joining")

    def heartbeat(self) -> None:
        """
        Say that we are alive.

        Raises:
            BrokerError: REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or
                UNKNOWN_MEMBER_ID: join again. FENCED_INSTANCE_ID: somebody
                took our place.

        """
        membership = self.membership
        response = self._ask(
            ApiKey.HEARTBEAT,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=self._instance_id,
        )
        self._raise_for(response.error_code, "a heartbeat")

    def leave(self) -> None:
        """Give the group up, for somebody else to join at once."""
        if not self.membership.member_id:
            return
        identity = request_class(ApiKey.LEAVE_GROUP).MemberIdentity
        self._ask(
            ApiKey.LEAVE_GROUP,
            member_id=self.membership.member_id,
            members=[identity(member_id=self.membership.member_id, group_instance_id=self._instance_id)],
        )
        self.membership = Membership(instance_id=self._instance_id)

    def _ask(self, api_key: ApiKey, **fields: Any) -> Any:
        return _ask_coordinator(self._cluster, self._group, api_key, group_id=self._group, **fields)

    def _raise_for(self, error_code: int, what: str) -> None:
        _raise_for_group(self._cluster, self._group, error_code, what)


def _subscription(topics: Sequence[str]) -> bytes:
    """Encode a consumer's subscription (ConsumerProtocol v0)."""
    names = [len(name.encode()).to_bytes(2) + name.encode() for name in topics]
    return b"".join([b"\0\0", len(names).to_bytes(4), *names, b"\xff\xff\xff\xff"])


def _assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a consumer's assignment (ConsumerProtocol v0)."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)
    parts = [b"\0\0", len(by_topic).to_bytes(4)]
    for name, numbers in by_topic.items():
        parts += [len(name.encode()).to_bytes(2), name.encode(), len(numbers).to_bytes(4)]
        parts += [number.to_bytes(4) for number in numbers]
    return b"".join([*parts, b"\xff\xff\xff\xff"])
