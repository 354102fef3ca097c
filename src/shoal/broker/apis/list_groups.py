"""ListGroups (API key 16), v0 to v5: all groups, from v4 by state and from v5 by type."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..coordination.group import Group
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.LIST_GROUPS)
_Group = _Response.ListedGroup

_TYPE = "classic"


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    try:
        call.check_before()
    except ApiError as refused:
        return _Response(version=call.version, error_code=refused.code, groups=[])
    states = {state.lower() for state in request.states_filter or ()}
    types = {type_.lower() for type_ in request.types_filter or ()}
    return _Response(
        version=call.version,
        error_code=ErrorCode.NONE,
        groups=[
            group
            for group in state.groups.read_all(_listed)
            if (not states or group.group_state.lower() in states) and (not types or _TYPE in types)
        ],
    )


def _listed(group: Group) -> Any:
    return _Group(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state.value,
        group_type=_TYPE,
    )
