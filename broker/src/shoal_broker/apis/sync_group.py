"""SyncGroup (API key 14), v0 to v5."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..coordination.joining import Sync
from ..state import BrokerState
from .answering import answer_errors, error_in

__all__ = ["handle"]

_Response = response_class(ApiKey.SYNC_GROUP)


@answer_errors(error_in(_Response, assignment=b""))
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Take the group's assignment from its leader, and wait for the member's part of it."""
    sync = Sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    result = state.groups.sync(sync, gave_up=lambda: state.gave_up(call))
    return _Response(
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
