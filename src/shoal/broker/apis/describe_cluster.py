"""DescribeCluster (API key 60), v0 to v2: the cluster's id and its nodes."""

from __future__ import annotations

from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["handle"]

_Response = response_class(ApiKey.DESCRIBE_CLUSTER)
_Broker = _Response.DescribeClusterBroker

_BROKERS = 1


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    error, message = ErrorCode.NONE, None
    try:
        call.check_before()
        if request.endpoint_type != _BROKERS:
            raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this endpoint is a broker's")
    except ApiError as refused:
        error, message = refused.code, refused.message
    return _Response(
        version=call.version,
        error_code=error,
        error_message=message,
        cluster_id=state.cluster_id,
        controller_id=state.leaders.nodes[0].node_id,
        brokers=[
            _Broker(broker_id=node.node_id, host=node.host, port=node.port, rack=None)
            for node in state.leaders.nodes
        ],
    )
