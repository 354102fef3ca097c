"""Requests to the coordinator of a consumer group, and those of a member."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..error_codes import ErrorCode
from ..errors import ShoalError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from .cluster import Cluster
from .connection import Connection

__all__ = [
    "COORDINATOR_MOVED",
    "JOIN_AGAIN",
    "Coordinator",
    "Joined",
    "MemberId",
    "ask_coordinator",
    "raise_for_group",
]

#: Codes after which the coordinator must be requested again.
COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

#: Codes after which a member must join again. Its member id may still be valid, in a later generation.
JOIN_AGAIN = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)


@dataclass(frozen=True, slots=True)
class MemberId:
    """
    The identity in a member's requests. The default is that of no member: its commits need an empty group.

    If member or generation are no longer the group's, the coordinator refuses a commit. That fences a mirror
    which lost its group.
    """

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


def ask_coordinator(
    cluster: Cluster,
    group: str,
    api_key: ApiKey,
    pick_version: Callable[[Connection], int | None] | None = None,
    /,
    **fields: Any,
) -> Any:
    """
    Send a request to a group's coordinator; an error makes the next request find it again.

    Args:
        pick_version: Returns the version for a connection, or None if that broker lists no suitable one. By
            default, and after None, the request has the newest version that both sides support.

    """
    cluster = cluster.keeper
    try:
        connection = cluster.coordinator(group)
        version = pick_version(connection) if pick_version is not None else None
        if version is None:
            return connection.request(api_key, **fields)
        return connection.request_version(api_key, version, **fields)
    except ShoalError:
        cluster.forget_coordinator(group)
        raise


def raise_for_group(cluster: Cluster, group: str, error_code: int, what: str) -> None:
    """Raise the error of a coordinator's response; if it has moved, the next request finds it again."""
    if error_code in COORDINATOR_MOVED:
        cluster.forget_coordinator(group)
    raise_for(error_code, f"{what} of group {group!r} on {cluster}")


@dataclass(frozen=True, slots=True)
class Joined:
    """
    The response to a member's JoinGroup.

    Attributes:
        member_id: The member's own id.
        generation: The generation of the group, from 1.
        protocol: The name of the protocol that the group chose.
        is_leader: Whether this member assigns the partitions.
        leave_assignment: Whether the leader must leave the assignment as it is (KIP-814).
        members: ``(member id, instance id, metadata)`` of all members; only the leader receives them.

    """

    member_id: str
    generation: int
    protocol: str
    is_leader: bool
    leave_assignment: bool
    members: Sequence[tuple[str, str | None, bytes]]


class Coordinator:
    """
    The requests of a member to its group's coordinator.

    All methods raise :class:`~shoal.errors.BrokerError` and :class:`~shoal.errors.Disconnected`. If the
    coordinator moved, the next request finds it.

    Attributes:
        given_id: The last member id that the coordinator gave to a new member, which may not have joined yet.

    """

    def __init__(self, cluster: Cluster, group: str, *, join_timeout_s: float | None = None) -> None:
        """
        Send the requests through a cluster's connections.

        Args:
            cluster: The cluster of the group.
            join_timeout_s: The limit of JoinGroup and SyncGroup, which wait for the other members: they have
                their own connection then. By default they have the limit of any request.

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
        Join, and wait until all members have joined.

        A new member receives its id first (KIP-394), and joins with it.

        Args:
            membership: The member's id, empty for a new member, and its instance id.
            protocols: The metadata of each supported protocol by name, the preferred one first.
            session_timeout_ms: The time without a heartbeat after which the coordinator removes the member.
            rebalance_timeout_ms: The limit of the other members' wait for this one to join again.

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
        Send the group's assignment as its leader, and wait for this member's own.

        Args:
            joined: The result of :meth:`join`.
            instance_id: The instance id of a static member.
            assignments: The encoded assignment of each member, by member id; empty unless this one leads.

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
        Send a heartbeat.

        Raises:
            BrokerError: With a code in :data:`JOIN_AGAIN`, join again. After FENCED_INSTANCE_ID, another
                process has joined with the same instance id.

        """
        response = self._ask(
            ApiKey.HEARTBEAT,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
        )
        self._raise_for(response.error_code, "a heartbeat")

    def leave(self, membership: MemberId) -> None:
        """Remove a member from the group, also if the coordinator does not know it."""
        identity = request_class(ApiKey.LEAVE_GROUP).MemberIdentity
        self._ask(
            ApiKey.LEAVE_GROUP,
            member_id=membership.member_id,
            members=[identity(member_id=membership.member_id, group_instance_id=membership.instance_id)],
        )

    def abort(self) -> None:
        """End the wait of another thread for the group's members."""
        waiting = self._waiting
        if waiting is not None:
            waiting.abort()

    def close(self) -> None:
        """Close the connection of JoinGroup and SyncGroup."""
        if self._waiting is not None:
            self._waiting.close()

    def _wait_for(self, api_key: ApiKey, **fields: Any) -> Any:
        """Send a request whose response waits for the other members."""
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
        if error_code in COORDINATOR_MOVED:
            self._forget()
        raise_for_group(self._cluster, self._group, error_code, what)

    def _forget(self) -> None:
        self._cluster.forget_coordinator(self._group)
        self.close()
