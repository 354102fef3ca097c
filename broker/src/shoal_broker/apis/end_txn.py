"""EndTxn (API key 26), v0 to v4."""

from __future__ import annotations

from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_in

__all__ = ["handle"]

_Response = response_class(ApiKey.END_TXN)


@answer_errors(error_in(_Response))
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Commit or abort a transaction. The markers are in the logs before the response is sent."""
    state.transactions.end(
        request.transactional_id, request.producer_id, request.producer_epoch, committed=request.committed
    )
    return _Response()
