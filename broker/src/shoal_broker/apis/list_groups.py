"""ListGroups (API key 16), v0 to v5: from v4 by state, from v5 by type."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..coordination.group import Group
from ..state import BrokerState
from .answering import answer_errors, error_in

__all__ = ["handle"]

_Response = response_class(ApiKey.LIST_GROUPS)
_Group = _Response.ListedGroup

_TYPE = "classic"


@answer_errors(error_in(_Response, groups=[]))
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """List the groups, by default all of them."""
    states = {state.lower() for state in request.states_filter or ()}
    types = {type_.lower() for type_ in request.types_filter or ()}
    return _Response(
        groups=[
            group
            for group in state.groups.read_all(_listed)
            if (not states or group.group_state.lower() in states) and (not types or _TYPE in types)
        ]
    )


def _listed(group: Group) -> Any:
    return _Group(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state.value,
        group_type=_TYPE,
    )
