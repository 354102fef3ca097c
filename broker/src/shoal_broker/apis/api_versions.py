"""
ApiVersions (API key 18), v0 to v4.

A version that is too new gets a response, too: error 35 in a body of v0 that has this API alone, so that the
client can ask again (KIP-511).

Produce is announced from v0 on, although the broker serves it from v3: otherwise librdkafka assumes that the
broker supports no compression (KAFKA-18659, as in Kafka 4).
"""

from __future__ import annotations

import re
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..call import Call
from ..state import BrokerState

__all__ = ["handle", "unsupported_version"]

_Response = response_class(ApiKey.API_VERSIONS)
_Version = _Response.ApiVersion

_ANNOUNCED_OLDEST = {ApiKey.PRODUCE: 0}

#: Names and versions of client software (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Return the APIs that the broker serves, with their versions."""
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _Response(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return _Response(
        api_keys=[
            _Version(
                api_key=api.key,
                min_version=_ANNOUNCED_OLDEST.get(api.key, api.oldest),
                max_version=api.newest,
            )
            for api in state.apis.values()
        ],
    )


def unsupported_version(state: BrokerState) -> Any:
    """Return the response, of v0, to a version that this broker does not serve."""
    api = state.apis[ApiKey.API_VERSIONS]
    return _Response(
        version=0,
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[_Version(api_key=api.key, min_version=api.oldest, max_version=api.newest)],
    )
