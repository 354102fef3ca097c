"""InitProducerId (API key 22), v0 to v5: a producer id, and for a transactional id the next epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..call import Call
from ..refusal import Refused

if TYPE_CHECKING:
    from ..broker import Broker

__all__ = ["handle"]

_Response = response_class(ApiKey.INIT_PRODUCER_ID)


def handle(broker: Broker, call: Call, request: Any) -> Any:
    try:
        call.check_before()
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise Refused(ErrorCode.INVALID_REQUEST, "a producer id without an epoch, or the reverse")
        producer_id, epoch = broker.producer_ids.new(), 0
    except Refused as refused:
        return _Response(version=call.version, error_code=refused.code, producer_id=-1, producer_epoch=-1)
    return _Response(
        version=call.version, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch
    )
