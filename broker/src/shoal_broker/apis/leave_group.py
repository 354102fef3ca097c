"""LeaveGroup (API key 13), v0 to v5: from v3 several members, and static ones by instance id."""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_code

__all__ = ["handle"]

_Response = response_class(ApiKey.LEAVE_GROUP)
_Member = _Response.MemberResponse

#: From this version on, a request names several members, and each has an error of its own.
_SEVERAL_FROM = 3


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Remove members from their group."""
    if call.version < _SEVERAL_FROM:
        return _Response(error_code=_leave(state, call, request.group_id, request.member_id, None))
    return _Response(
        members=[
            _Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=_leave(state, call, request.group_id, member.member_id, member.group_instance_id),
            )
            for member in request.members
        ]
    )


@answer_errors(error_code)
def _leave(
    state: BrokerState, call: Call, group_id: str, member_id: str, instance_id: str | None
) -> ErrorCode:
    state.groups.leave(group_id, member_id, instance_id)
    return ErrorCode.NONE
