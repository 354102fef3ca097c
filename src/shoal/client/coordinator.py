"""
Consumer groups: committed positions, and membership.

A mirror commits to a group on the source cluster, as a consumer would, so
that Kafka's own tools show its position and its lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..error_codes import ErrorCode
from ..errors import Disconnected, ProtocolError, ShoalError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
)
from ..topic_partition import TopicPartition
from .cluster import Cluster
from .connection import Connection

__all__ = [
    "JOIN_AGAIN",
    "Coordinator",
    "Joined",
    "MemberId",
    "ask_coordinator",
    "describe_holder",
    "group_assignment",
    "has_coordinator",
    "raise_for_group",
]

#: Codes after which the coordinator has to be looked up again.
_COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

#: What a member's description of itself begins with: assignors of other clients keep other things there.
_DESCRIPTION_PREFIX = "shoal"

#: What a member is told that has to join again: it may be a member still, of a later generation.
JOIN_AGAIN = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)


@dataclass(frozen=True, slots=True)
class MemberId:
    """
    Who commits. Without a group to be member of, the default: accepted while the group is empty.

    A commit with a member and generation that are no longer the group's is
    refused: that fences a mirror which lost its group.
    """

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


def describe_holder(cluster: Cluster, group: str) -> str | None:
    """
    Return the members of a group as one phrase for a message; None if there are none.

    A member that describes itself (:class:`GroupMember`) is named by that: a static member that takes its
    own place again, in another process, keeps the client id and the address of the first one at the broker
    (Kafka's ``replaceStaticMember`` leaves everything but the member id as it is), and only what JoinGroup
    carries is renewed.
    """
    response = ask_coordinator(
        cluster, group, ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=False
    )
    members = [member for described in response.groups for member in described.members]
    if not members:
        return None
    return "; ".join(
        _own_description(bytes(each.member_metadata))
        or f"client {each.client_id!r} at {each.client_host.lstrip('/')}"
        for each in members
    )


def _own_description(subscription: bytes) -> str | None:
    """Return what a member says of itself; of other clients' user data nothing."""
    try:
        user_data = decode_subscription(subscription).user_data or b""
        text = user_data.decode("utf-8")
    except (ProtocolError, UnicodeDecodeError):
        return None
    return text if text.startswith(_DESCRIPTION_PREFIX) and text.isprintable() else None


def group_assignment(cluster: Cluster, group: str) -> dict[str, list[TopicPartition]]:
    """
    Return what each member of a group of consumers works on, by member id.

    Only the leader deals it out; who wants to see all of it has to ask (DescribeGroups).
    While the group rebalances, nobody has anything.

    """
    response = ask_coordinator(
        cluster, group, ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=False
    )
    assignment: dict[str, list[TopicPartition]] = {}
    for described in response.groups:
        raise_for_group(cluster, group, described.error_code, "reading the members")
        for member in described.members:
            partitions = decode_assignment(bytes(member.member_assignment))
            assignment[member.member_id] = [TopicPartition(*each) for each in partitions]
    return assignment


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


def ask_coordinator(cluster: Cluster, group: str, api_key: ApiKey, **fields: Any) -> Any:
    try:
        return cluster.coordinator(group).request(api_key, **fields)
    except ShoalError:
        cluster.forget_coordinator(group)
        raise


def raise_for_group(cluster: Cluster, group: str, error_code: int, what: str) -> None:
    if error_code in _COORDINATOR_MOVED:
        cluster.forget_coordinator(group)
    raise_for(error_code, f"{what} of group {group!r} on {cluster}")


@dataclass(frozen=True, slots=True)
class Joined:
    """
    What a member learns when a generation begins.

    Attributes:
        member_id: Its own.
        generation: Counts from 1.
        protocol: By its name, what the group chose.
        is_leader: Whether it deals the partitions.
        leave_assignment: The leader is to leave the assignment as it is (KIP-814).
        members: ``(member id, instance id, what it sent)`` of all, for the leader alone.

    """

    member_id: str
    generation: int
    protocol: str
    is_leader: bool
    leave_assignment: bool
    members: Sequence[tuple[str, str | None, bytes]]


class Coordinator:
    """
    What a member asks of its group's coordinator, a request each.

    All methods raise :class:`~shoal.errors.BrokerError` and
    :class:`~shoal.errors.Disconnected` besides what they say; the coordinator
    is looked up again by the next one where it moved.

    Attributes:
        given_id: The member id that was given last to a new member, which may not have joined with it yet.

    """

    def __init__(self, cluster: Cluster, group: str, *, join_timeout_s: float | None = None) -> None:
        """
        Ask through a cluster's connections.

        Args:
            cluster: Whose group it is.
            group: Its name.
            join_timeout_s: How long JoinGroup and SyncGroup may take, which wait for the other
                members; they have a connection of their own then. By default as long as any request.

        """
        self._cluster = cluster
        self._group = group
        self._join_timeout_s = join_timeout_s
        self._waiting: Connection | None = None
        self.given_id = ""

    def join(
        self,
        membership: MemberId,
        protocols: Mapping[str, bytes],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> Joined:
        """
        Join, and wait until all members did.

        A new member gets its id first (KIP-394), and joins with it.

        Args:
            membership: Its member id, empty for a new one, and instance id.
            protocols: What it could do, by name, the best first; the value is for the leader.
            session_timeout_ms: Without a heartbeat for so long it is out.
            rebalance_timeout_ms: How long the others wait for it to join again.

        """
        member_id = membership.member_id
        while True:
            response = self._wait_for(
                ApiKey.JOIN_GROUP,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=member_id,
                group_instance_id=membership.instance_id,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=[
                    request_class(ApiKey.JOIN_GROUP).JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name, metadata in protocols.items()
                ],
            )
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED or member_id:
                break
            member_id = self.given_id = response.member_id
        self._raise_for(response.error_code, "joining")
        return Joined(
            response.member_id,
            response.generation_id,
            response.protocol_name,
            response.leader == response.member_id,
            bool(getattr(response, "skip_assignment", False)),
            [(each.member_id, each.group_instance_id, bytes(each.metadata)) for each in response.members],
        )

    def sync(self, joined: Joined, instance_id: str | None, assignments: Mapping[str, bytes]) -> bytes:
        """
        Give the assignment (the leader), and wait for one's own part of it.

        Args:
            joined: From :meth:`join`.
            instance_id: Of a static member.
            assignments: Of a leader, each member's part by member id.

        """
        entry = request_class(ApiKey.SYNC_GROUP).SyncGroupRequestAssignment
        response = self._wait_for(
            ApiKey.SYNC_GROUP,
            generation_id=joined.generation,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=joined.protocol,
            assignments=[
                entry(member_id=member_id, assignment=part) for member_id, part in assignments.items()
            ],
        )
        self._raise_for(response.error_code, "joining")
        return bytes(response.assignment)

    def heartbeat(self, membership: MemberId) -> None:
        """
        Say that a member is alive.

        Raises:
            BrokerError: REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or
                UNKNOWN_MEMBER_ID: join again. FENCED_INSTANCE_ID: somebody
                took its place.

        """
        response = self._ask(
            ApiKey.HEARTBEAT,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
        )
        self._raise_for(response.error_code, "a heartbeat")

    def leave(self, membership: MemberId) -> None:
        """Take a member out; whether that was known does not matter."""
        identity = request_class(ApiKey.LEAVE_GROUP).MemberIdentity
        self._ask(
            ApiKey.LEAVE_GROUP,
            member_id=membership.member_id,
            members=[identity(member_id=membership.member_id, group_instance_id=membership.instance_id)],
        )

    def abort(self) -> None:
        """Let another thread that waits for the other members fail at once."""
        waiting = self._waiting
        if waiting is not None:
            waiting.abort()

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.close()

    def _wait_for(self, api_key: ApiKey, **fields: Any) -> Any:
        """Ask what is answered when the other members joined."""
        if self._join_timeout_s is None:
            return self._ask(api_key, **fields)
        try:
            if self._waiting is None or self._waiting.closed:
                node_id = self._cluster.coordinator_node(self._group)
                self._waiting = self._cluster.connect(node_id, timeout_s=self._join_timeout_s)
            return self._waiting.request(api_key, group_id=self._group, **fields)
        except ShoalError:
            self._forget()
            raise

    def _ask(self, api_key: ApiKey, **fields: Any) -> Any:
        return ask_coordinator(self._cluster, self._group, api_key, group_id=self._group, **fields)

    def _raise_for(self, error_code: int, what: str) -> None:
        if error_code in _COORDINATOR_MOVED:
            self._forget()
        raise_for_group(self._cluster, self._group, error_code, what)

    def _forget(self) -> None:
        self._cluster.forget_coordinator(self._group)
        self.close()
