"""
InitProducerId (API key 22), v0 to v5: a producer id, and for a transactional id its next epoch.

Without a transactional id every request gets an id of its own, with epoch 0.
A fenced producer is told INVALID_PRODUCER_EPOCH before v4, PRODUCER_FENCED from then on.
"""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.INIT_PRODUCER_ID)

_FENCED_FROM = 4


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    try:
        call.check_before()
        producer_id, epoch = _identity(state, request)
        call.check_after()
    except ApiError as refused:
        error = call.code_of(refused, fenced_from=_FENCED_FROM)
        return _Response(version=call.version, error_code=error, producer_id=-1, producer_epoch=-1)
    return _Response(
        version=call.version, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch
    )


def _identity(state: BrokerState, request: Any) -> tuple[int, int]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id without an epoch, or the reverse")
    if request.transactional_id is None:
        return state.producer_ids.new(), 0
    return state.transactions.init(
        request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
    )
