"""AddOffsetsToTxn (API key 25), v0 to v4."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_in

__all__ = ["handle"]

_Response = response_class(ApiKey.ADD_OFFSETS_TO_TXN)


@answer_errors(error_in(_Response))
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Make a group's offsets part of a transaction."""
    state.transactions.add_offsets(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    )
    return _Response()
