"""DeleteGroups (API key 42), v0 to v2: delete groups without members, and their offsets."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.DELETE_GROUPS)
_Result = _Response.DeletableGroupResult


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    results = [
        _Result(group_id=group_id, error_code=_delete(state, call, group_id))
        for group_id in request.groups_names
    ]
    return _Response(version=call.version, results=results)


def _delete(state: BrokerState, call: Call, group_id: str) -> ErrorCode:
    try:
        call.check_before()
        state.groups.delete(group_id)
        call.check_after()
    except ApiError as refused:
        return refused.code
    return ErrorCode.NONE
