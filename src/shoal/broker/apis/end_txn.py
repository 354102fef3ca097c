"""EndTxn (API key 26), v0 to v4: commit or abort; the markers are in the logs when the answer goes out."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.END_TXN)

_FENCED_FROM = 2


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    error = ErrorCode.NONE
    try:
        call.check_before()
        state.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
        )
        call.check_after()
    except ApiError as refused:
        error = call.code_of(refused, fenced_from=_FENCED_FROM)
    return _Response(version=call.version, error_code=error)
