"""FindCoordinator (API key 10), v0 to v4: one of the nodes for each group and transactional id."""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.FIND_COORDINATOR)
_Coordinator = _Response.Coordinator

_GROUP, _TRANSACTION = 0, 1

#: From this version on, a request may name several keys (KIP-699).
_BATCHED_FROM = 4


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the coordinators of groups or transactional ids."""
    if call.version >= _BATCHED_FROM:
        return _Response(
            coordinators=[
                _Coordinator(key=key, **_answer(state, call, request.key_type, key))
                for key in request.coordinator_keys
            ]
        )
    return _Response(**_answer(state, call, request.key_type, request.key))


def _refused(error: ApiError, call: Call, key_type: int, key: str) -> dict[str, Any]:
    return {"node_id": -1, "host": "", "port": -1, "error_code": error.code, "error_message": error.message}


@answer_errors(_refused)
def _answer(state: BrokerState, call: Call, key_type: int, key: str) -> dict[str, Any]:
    if key_type not in (_GROUP, _TRANSACTION):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
    node = state.leaders.coordinator_of(key)
    return {"node_id": node.node_id, "host": node.host, "port": node.port, "error_message": None}
