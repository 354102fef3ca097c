"""Heartbeat (API key 12), v0 to v4: keep a member's session, and learn of a rebalance."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.HEARTBEAT)


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    error = ErrorCode.NONE
    try:
        call.check_before()
        state.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        call.check_after()
    except ApiError as refused:
        error = refused.code
    return _Response(version=call.version, error_code=error)
