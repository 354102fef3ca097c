"""Heartbeat (API key 12), v0 to v4."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_in

__all__ = ["handle"]

_Response = response_class(ApiKey.HEARTBEAT)


@answer_errors(error_in(_Response))
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Keep a member's session, and report a rebalance."""
    state.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return _Response()
