"""
InitProducerId (API key 22), v0 to v5.

A fenced producer receives INVALID_PRODUCER_EPOCH before v4, and PRODUCER_FENCED from v4.
"""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from .answering import answer_errors, error_in

__all__ = ["handle"]

_Response = response_class(ApiKey.INIT_PRODUCER_ID)


@answer_errors(error_in(_Response, producer_id=-1, producer_epoch=-1))
def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Return a new producer id, or a transactional id's producer id with its next epoch."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id without an epoch, or the reverse")
    if request.transactional_id is None:
        return _Response(producer_id=state.producer_ids.new(), producer_epoch=0)
    producer_id, epoch = state.transactions.init(
        request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
    )
    return _Response(producer_id=producer_id, producer_epoch=epoch)
