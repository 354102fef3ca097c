"""
Consumer groups and their members.

JoinGroup, SyncGroup, Heartbeat and LeaveGroup; DescribeGroups, ListGroups and DeleteGroups.

Versions of JoinGroup: a rebalance timeout from v1; error 79 with a new member's id from v4 (KIP-394);
instance ids from v5 (KIP-345); the protocol type in the response from v7.
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..coordination.group import Group, GroupState
from ..coordination.member import Join, Member, MemberIdRequired, Sync
from ..state import BrokerState

__all__ = [
    "delete_groups",
    "describe_groups",
    "heartbeat",
    "join_group",
    "leave_group",
    "list_groups",
    "sync_group",
]

_JoinGroup = response_class(ApiKey.JOIN_GROUP)
_SyncGroup = response_class(ApiKey.SYNC_GROUP)
_Heartbeat = response_class(ApiKey.HEARTBEAT)
_LeaveGroup = response_class(ApiKey.LEAVE_GROUP)
_DescribeGroups = response_class(ApiKey.DESCRIBE_GROUPS)
_Described = _DescribeGroups.DescribedGroup
_ListGroups = response_class(ApiKey.LIST_GROUPS)
_DeleteGroups = response_class(ApiKey.DELETE_GROUPS)

#: From this version of JoinGroup on, no protocol is null; before, it is empty.
_NULL_PROTOCOL_FROM = 7

#: From this version of LeaveGroup on, a request names several members, and each has an error of its own.
_SEVERAL_MEMBERS_FROM = 3

#: From this version of DescribeGroups on, a group that does not exist is an error.
_NOT_FOUND_FROM = 6

_TYPE = "classic"


def join_group(state: BrokerState, call: Call, request: Any) -> Any:
    """Add a member to its group, and wait for the other members."""
    answer = _JoinGroup(
        protocol_name=None if call.version >= _NULL_PROTOCOL_FROM else "", member_id=request.member_id
    )
    with call.part(answer), call.faults_at():
        try:
            result = state.groups.join(_join(call, request), gave_up=lambda: state.gave_up(call))
        except MemberIdRequired as error:
            answer.member_id = error.member_id
            raise
        answer.generation_id = result.generation
        answer.protocol_type, answer.protocol_name = result.protocol_type, result.protocol_name
        answer.leader, answer.member_id = result.leader, result.member_id
        answer.skip_assignment = result.skip_assignment
        answer.members = [
            _JoinGroup.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in result.members
        ]
    return answer


def _join(call: Call, request: Any) -> Join:
    return Join(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        {protocol.name: bytes(protocol.metadata) for protocol in request.protocols},
        request.session_timeout_ms,
        request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms,
        call.client_id,
        call.client_host,
        call.version,
    )


def sync_group(state: BrokerState, call: Call, request: Any) -> Any:
    """Take the group's assignment from its leader, and wait for the member's part of it."""
    answer = _SyncGroup()
    with call.part(answer), call.faults_at():
        sync = Sync(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: bytes(each.assignment) for each in request.assignments},
        )
        result = state.groups.sync(sync, gave_up=lambda: state.gave_up(call))
        answer.protocol_type, answer.protocol_name = result.protocol_type, result.protocol_name
        answer.assignment = result.assignment
    return answer


def heartbeat(state: BrokerState, call: Call, request: Any) -> Any:
    """Keep a member's session, and report a rebalance."""
    answer = _Heartbeat()
    with call.part(answer), call.faults_at():
        state.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    return answer


def leave_group(state: BrokerState, call: Call, request: Any) -> Any:
    """Remove members from their group; static ones by their instance id."""
    if call.version < _SEVERAL_MEMBERS_FROM:
        return _leave(state, call, request.group_id, request.member_id, None, _LeaveGroup())
    answers = []
    for each in request.members:
        member_id, instance_id = each.member_id, each.group_instance_id
        answer = _LeaveGroup.MemberResponse(member_id=member_id, group_instance_id=instance_id)
        answers.append(_leave(state, call, request.group_id, member_id, instance_id, answer))
    return _LeaveGroup(members=answers)


def _leave(
    state: BrokerState, call: Call, group_id: str, member_id: str, instance_id: str | None, answer: Any
) -> Any:
    with call.part(answer), call.faults_at():
        state.groups.leave(group_id, member_id, instance_id)
    return answer


def describe_groups(state: BrokerState, call: Call, request: Any) -> Any:
    """
    Describe groups and their members; subscriptions and assignments while the group is stable.

    A group that does not exist is "Dead"; from v6 on it is GROUP_ID_NOT_FOUND as well.

    """
    return _DescribeGroups(groups=[_describe(state, call, group_id) for group_id in request.groups])


def _describe(state: BrokerState, call: Call, group_id: str) -> Any:
    answer = _Described(group_id=group_id, group_state=GroupState.DEAD.value)
    with call.part(answer), call.faults_at():
        state.groups.read(group_id, lambda group: _fill_in(answer, group))
        if answer.group_state == GroupState.DEAD.value and call.version >= _NOT_FOUND_FROM:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return answer


def _fill_in(answer: Any, group: Group) -> None:
    is_stable = group.state is GroupState.STABLE
    answer.group_state = group.state.value
    answer.protocol_type = group.protocol_type
    answer.protocol_data = group.protocol_name if is_stable else ""
    answer.members = [_described_member(group, member, is_stable) for member in group.members.values()]


def _described_member(group: Group, member: Member, is_stable: bool) -> Any:
    return _Described.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.join.instance_id,
        client_id=member.join.client_id,
        client_host=f"/{member.join.client_host}",  # as Java prints an address
        member_metadata=member.join.protocols.get(group.protocol_name, b"") if is_stable else b"",
        member_assignment=member.assignment if is_stable else b"",
    )


def list_groups(state: BrokerState, call: Call, request: Any) -> Any:
    """List the groups, from v4 on by state, from v5 on by type."""
    answer = _ListGroups(groups=[])
    with call.part(answer), call.faults_at():
        states = {each.lower() for each in request.states_filter or ()}
        types = {each.lower() for each in request.types_filter or (_TYPE,)}
        answer.groups = [
            group
            for group in state.groups.read_all(_listed)
            if _TYPE in types and (not states or group.group_state.lower() in states)
        ]
    return answer


def _listed(group: Group) -> Any:
    return _ListGroups.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state.value,
        group_type=_TYPE,
    )


def delete_groups(state: BrokerState, call: Call, request: Any) -> Any:
    """Delete groups without members, and their offsets."""
    return _DeleteGroups(results=[_delete(state, call, group_id) for group_id in request.groups_names])


def _delete(state: BrokerState, call: Call, group_id: str) -> Any:
    answer = _DeleteGroups.DeletableGroupResult(group_id=group_id)
    with call.part(answer), call.faults_at():
        state.groups.delete(group_id)
    return answer
