"""
Requests that change the settings of brokers.

Such a setting can be a login (``listener.name.NAME.plain.sasl.jaas.config``). With the upstream user's rights
a client could create one that is valid at the cluster itself, also after the end of the gateway.
"""

from __future__ import annotations

from typing import Any

from ..error_codes import ErrorCode
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader

__all__ = ["ALTERING", "refusal"]

#: Both have the same fields in their responses.
ALTERING = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})

#: Topics, client metrics (KIP-714) and groups (KIP-848), of ``ConfigResource.Type``. The others are brokers,
#: their loggers, and any that a later version adds.
_ALLOWED = frozenset({2, 16, 32})

_SENTENCE = (
    "shoal gateway: clients may change the settings of topics, groups and client metrics only. "
    "Use --allow-broker-configs for those of brokers"
)


def refusal(header: RequestHeader, frame: memoryview) -> Any | None:
    """
    Return the answer that refuses a request for a broker's settings; None if the request has none.

    The answer refuses the whole request, so its other settings stay unchanged too.

    Args:
        header: The request's header, with an API of :data:`ALTERING`.
        frame: All of the request.

    Raises:
        ProtocolError: The request is malformed.

    """
    resources = codec.decode_request(header, frame).resources
    if all(each.resource_type in _ALLOWED for each in resources):
        return None
    response = codec.response_class(ApiKey(header.api_key))
    return response(
        version=header.api_version,
        responses=[
            response.AlterConfigsResourceResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                error_message=_SENTENCE,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in resources
        ],
    )
