"""DeleteGroups (API key 42), v0 to v2."""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_code

__all__ = ["handle"]

_Response = response_class(ApiKey.DELETE_GROUPS)
_Result = _Response.DeletableGroupResult


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Delete groups without members, and their offsets."""
    return _Response(
        results=[
            _Result(group_id=group_id, error_code=_delete(state, call, group_id))
            for group_id in request.groups_names
        ]
    )


@answer_errors(error_code)
def _delete(state: BrokerState, call: Call, group_id: str) -> ErrorCode:
    state.groups.delete(group_id)
    return ErrorCode.NONE
