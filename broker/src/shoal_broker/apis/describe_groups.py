"""
DescribeGroups (API key 15), v0 to v6.

Subscriptions and assignments are shown while the group is stable. A group that does not exist is "Dead"; from
v6 on it is GROUP_ID_NOT_FOUND as well.
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..coordination.group import Group, GroupState, Member
from ..state import BrokerState
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.DESCRIBE_GROUPS)
_Group = _Response.DescribedGroup
_Member = _Group.DescribedGroupMember

_NOT_FOUND_FROM = 6


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe groups and their members."""
    return _Response(groups=[_describe(state, call, group_id) for group_id in request.groups])


def _refused(error: ApiError, call: Call, group_id: str) -> Any:
    return _Group(
        error_code=error.code,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        protocol_type="",
        protocol_data="",
        members=[],
    )


@answer_errors(_refused)
def _describe(state: BrokerState, call: Call, group_id: str) -> Any:
    described = state.groups.read(group_id, _described)
    if described.group_state == GroupState.DEAD.value and call.version >= _NOT_FOUND_FROM:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return described


def _described(group: Group) -> Any:
    stable = group.state is GroupState.STABLE
    return _Group(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name if stable else "",
        members=[_described_member(group, member, stable) for member in group.members.values()],
    )


def _described_member(group: Group, member: Member, stable: bool) -> Any:
    return _Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",  # as Java prints an address
        member_metadata=member.protocols.get(group.protocol_name, b"") if stable else b"",
        member_assignment=member.assignment if stable else b"",
    )
