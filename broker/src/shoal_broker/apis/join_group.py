"""
JoinGroup (API key 11), v0 to v9.

Versions: a rebalance timeout from v1; error 79 with a new member's id from v4 (KIP-394); instance ids from v5
(KIP-345); the protocol type in the response from v7; skip_assignment from v9 (KIP-814).
"""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..coordination.joining import Join, MemberIdRequired
from ..state import BrokerState
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.JOIN_GROUP)
_Member = _Response.JoinGroupResponseMember

#: From this version on, no protocol is null; before, it is empty.
_NULL_PROTOCOL_FROM = 7


def _refused(error: ApiError, call: Call, request: Any) -> Any:
    return _Response(
        error_code=error.code,
        generation_id=-1,
        protocol_name=None if call.version >= _NULL_PROTOCOL_FROM else "",
        leader="",
        member_id=error.member_id if isinstance(error, MemberIdRequired) else request.member_id,
        members=[],
    )


@answer_errors(_refused)
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Add a member to its group, and wait for the other members."""
    result = state.groups.join(_join(call, request), gave_up=lambda: state.gave_up(call))
    return _Response(
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            _Member(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )


def _join(call: Call, request: Any) -> Join:
    rebalance_timeout_ms = request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
    return Join(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        {protocol.name: bytes(protocol.metadata) for protocol in request.protocols},
        request.session_timeout_ms,
        rebalance_timeout_ms,
        call.client_id,
        call.client_host,
        call.version,
    )
