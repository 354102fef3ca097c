"""SyncGroup (API key 14), v0 to v5: hand the assignment in (the leader), and wait for one's own part."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..coordination.groups import Sync
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.SYNC_GROUP)


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    sync = Sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    try:
        call.check_before()
        result = state.groups.sync(sync, gave_up=lambda: state.gave_up(call))
        call.check_after()
    except ApiError as refused:
        return _Response(version=call.version, error_code=refused.code, assignment=b"")
    return _Response(
        version=call.version,
        error_code=ErrorCode.NONE,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
