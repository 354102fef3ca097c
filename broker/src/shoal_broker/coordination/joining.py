"""
The rules of JoinGroup and SyncGroup: each changes a group, and returns a result or a pending one.

The classic protocol of Kafka's ``GroupMetadataManager``. Its caller, :class:`~.groups.Groups`, holds the
lock.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.error_codes import ErrorCode

from ..api_error import ApiError
from ..clock import now_ms
from .group import Group, GroupState, JoinResult, Member, Pending, SyncResult

__all__ = ["Join", "Joining", "MemberIdRequired", "Sync"]

#: Kafka's defaults of ``group.min.session.timeout.ms`` and ``group.max.session.timeout.ms``.
_SESSION_TIMEOUTS_MS = range(6_000, 1_800_001)

#: From this version of JoinGroup on, a new member first gets an id, and joins with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4

#: From this version of JoinGroup on, the answer can have a leader skip the assignment (KIP-814).
SKIP_ASSIGNMENT_FROM = 9


class MemberIdRequired(ApiError):
    """A new member has to join again, with an id."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, "join again with the member id given")
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request; the protocols by name, the preferred one first."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    version: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request; before v5 protocol type and name are None. The leader sends the assignments."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class Joining:
    """Lets members join groups, and gives each its part of the assignment."""

    def __init__(self, groups: dict[str, Group]) -> None:
        self._groups = groups

    def known(self, group_id: str) -> Group:
        """Return a group, or raise ApiError with UNKNOWN_MEMBER_ID if it has no members and no offsets."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    def check(self, join: Join) -> None:
        """Check the group id and the session timeout; raises as :meth:`~.groups.Groups.join`."""
        if not join.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id may not be empty")
        if join.session_timeout_ms not in _SESSION_TIMEOUTS_MS:
            raise ApiError(
                ErrorCode.INVALID_SESSION_TIMEOUT, f"a session timeout of {join.session_timeout_ms} ms"
            )

    def join(self, join: Join, now: float) -> JoinResult | Pending[JoinResult]:
        """Let a member join; raises as :meth:`~.groups.Groups.join`."""
        group = self._groups.get(join.group_id)
        if group is None:
            if join.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {join.group_id!r}")
            group = Group(join.group_id, empty_since_ms=now_ms())
        group.check_protocols(join.protocol_type, list(join.protocols))
        if not join.member_id:
            return self._join_new(group, join, now)
        if join.member_id in group.promised:
            return self._join_as(group, join, join.member_id, now)
        return self._join_again(group, join, now)

    def _join_new(self, group: Group, join: Join, now: float) -> JoinResult | Pending[JoinResult]:
        member_id = f"{join.instance_id or join.client_id}-{uuid.uuid4()}"
        static = group.static_member(join.instance_id) if join.instance_id is not None else None
        if static is not None:
            return self._take_over(group, static, member_id, join, now)
        if join.instance_id is None and join.version >= MEMBER_ID_REQUIRED_FROM:
            self._groups[group.group_id] = group
            group.promised[member_id] = now + join.session_timeout_ms / 1000
            raise MemberIdRequired(member_id)
        return self._join_as(group, join, member_id, now)

    def _join_as(self, group: Group, join: Join, member_id: str, now: float) -> Pending[JoinResult]:
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout_ms / 1000,
            join.rebalance_timeout_ms / 1000,
            join.protocols,
        )
        self._groups[group.group_id] = group
        group.add(member, join.protocol_type)
        return self._rebalance(group, member, now)

    def _take_over(
        self, group: Group, member: Member, member_id: str, join: Join, now: float
    ) -> JoinResult | Pending[JoinResult]:
        """Give a static member's place to its new process; a stable group does not rebalance (KIP-345)."""
        leader_before = group.leader
        group.replace_static(member, member_id)
        # Client id and host stay those of the first process, as in Kafka (replaceStaticMember).
        _update(member, join, now)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            return self._rebalance(group, member, now)
        result = group.join_result(member)
        if join.version >= SKIP_ASSIGNMENT_FROM:
            is_leader = group.leader == member_id
            return JoinResult(
                result.generation,
                result.protocol_type,
                result.protocol_name,
                result.leader,
                member_id,
                result.members,
                skip_assignment=is_leader,
            )
        # The old id: a leader that finds its own id would send an assignment, and no member waits for one.
        return JoinResult(
            result.generation, result.protocol_type, result.protocol_name, leader_before, member_id
        )

    def _join_again(self, group: Group, join: Join, now: float) -> JoinResult | Pending[JoinResult]:
        member = group.member(join.member_id, join.instance_id)
        same = list(member.protocols.items()) == list(join.protocols.items())
        is_leader = group.leader == member.member_id
        if group.state is GroupState.COMPLETING_REBALANCE and same:
            # The member did not receive the answer to its JoinGroup.
            member.renew_session(now)
            return group.join_result(member)
        if group.state is GroupState.STABLE and same and not is_leader:
            member.renew_session(now)
            return group.join_result(member)
        _update(member, join, now)
        return self._rebalance(group, member, now)

    def _rebalance(self, group: Group, member: Member, now: float) -> Pending[JoinResult]:
        """Have a member wait for all the others to join."""
        member.answer_join(ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member joined again"))
        member.renew_session(now)
        member.joining = pending = Pending[JoinResult]()
        if group.state is not GroupState.PREPARING_REBALANCE:
            group.prepare_rebalance(now)
        group.try_complete_join(now)
        return pending

    def sync(self, sync: Sync, now: float) -> SyncResult | Pending[SyncResult]:
        """Take the leader's assignment, or a member's request; raises as :meth:`~.groups.Groups.sync`."""
        group = self.known(sync.group_id)
        member = group.member(sync.member_id, sync.instance_id)
        group.check_generation(sync.generation)
        _check_same_protocol(group, sync)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} rebalances")
        member.renew_session(now)
        member.synced = True
        if group.state is GroupState.STABLE:
            return group.sync_result(member)
        member.answer_sync(ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member synced again"))
        member.syncing = pending = Pending[SyncResult]()
        if group.leader == member.member_id:
            group.assign(sync.assignments, now)
        return pending


def _update(member: Member, join: Join, now: float) -> None:
    member.protocols = join.protocols
    member.session_timeout_s = join.session_timeout_ms / 1000
    member.rebalance_timeout_s = join.rebalance_timeout_ms / 1000
    member.renew_session(now)


def _check_same_protocol(group: Group, sync: Sync) -> None:
    if sync.protocol_type not in (None, group.protocol_type) or sync.protocol_name not in (
        None,
        group.protocol_name,
    ):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} has protocol {group.protocol_type}:{group.protocol_name}",
        )
