"""DescribeCluster (API key 60), v0 to v2."""

from __future__ import annotations

from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.DESCRIBE_CLUSTER)
_Broker = _Response.DescribeClusterBroker

_BROKERS = 1


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the cluster's id and its nodes, also beside an error."""
    code, message = _check_endpoint(state, call, request.endpoint_type)
    return _Response(
        error_code=code,
        error_message=message,
        cluster_id=state.cluster_id,
        controller_id=state.leaders.nodes[0].node_id,
        brokers=[
            _Broker(broker_id=node.node_id, host=node.host, port=node.port, rack=None)
            for node in state.leaders.nodes
        ],
    )


@answer_errors(lambda error, call, endpoint_type: (error.code, error.message))
def _check_endpoint(state: BrokerState, call: Call, endpoint_type: int) -> tuple[ErrorCode, str | None]:
    if endpoint_type != _BROKERS:
        raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this endpoint is a broker's")
    return ErrorCode.NONE, None
