"""LeaveGroup (API key 13), v0 to v5: take members out; from v3 several, and static ones by instance id."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.LEAVE_GROUP)
_Member = _Response.MemberResponse

#: From this version on a request may name several members, and each has an error of its own.
_SEVERAL_FROM = 3


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    if call.version < _SEVERAL_FROM:
        error = _leave(state, call, request.group_id, request.member_id, None)
        return _Response(version=call.version, error_code=error)
    return _Response(
        version=call.version,
        error_code=ErrorCode.NONE,
        members=[
            _Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=_leave(state, call, request.group_id, member.member_id, member.group_instance_id),
            )
            for member in request.members
        ],
    )


def _leave(
    state: BrokerState, call: Call, group_id: str, member_id: str, instance_id: str | None
) -> ErrorCode:
    try:
        call.check_before()
        state.groups.leave(group_id, member_id, instance_id)
        call.check_after()
    except ApiError as refused:
        return refused.code
    return ErrorCode.NONE
