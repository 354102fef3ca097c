"""FindCoordinator (API key 10), v0 to v4: who coordinates a group or a transactional id: one of the nodes."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.FIND_COORDINATOR)
_Coordinator = _Response.Coordinator

_GROUP, _TRANSACTION = 0, 1

#: From this version on a request may name several (KIP-699).
_BATCHED_FROM = 4


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    if call.version >= _BATCHED_FROM:
        coordinators = [
            _Coordinator(key=key, **_answer(state, call, request.key_type, key))
            for key in request.coordinator_keys
        ]
        return _Response(version=call.version, coordinators=coordinators)
    return _Response(version=call.version, **_answer(state, call, request.key_type, request.key))


def _answer(state: BrokerState, call: Call, key_type: int, key: str) -> dict[str, Any]:
    try:
        call.check_before()
        if key_type not in (_GROUP, _TRANSACTION):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
    except ApiError as refused:
        return {
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": refused.code,
            "error_message": refused.message,
        }
    coordinator = state.leaders.coordinator_of(key)
    return {
        "node_id": coordinator.node_id,
        "host": coordinator.host,
        "port": coordinator.port,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }
