"""AlterConfigs (API key 33), v0 to v2. IncrementalAlterConfigs (KIP-339) supersedes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..config import TOPIC_SETTINGS, check_settings
from ..state import BrokerState
from .answering import answer_errors
from .describe_configs import ResourceType

__all__ = ["alter", "handle"]

_Response = response_class(ApiKey.ALTER_CONFIGS)
_Result = _Response.AlterConfigsResourceResponse


Altered = Callable[[Mapping[str, str], Any], Mapping[str, str]]


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Replace all settings of topics."""
    return _Response(
        responses=[
            _Result(**alter(state, call, wanted, _replaced, request.validate_only))
            for wanted in request.resources
        ]
    )


def _replaced(_: Mapping[str, str], wanted: Any) -> Mapping[str, str]:
    return {config.name: config.value for config in wanted.configs}


def _refused(error: ApiError, call: Call, wanted: Any, *_: object) -> dict[str, Any]:
    return {**_fields(wanted), "error_code": error.code, "error_message": error.message}


def _fields(wanted: Any) -> dict[str, Any]:
    return {
        "error_message": None,
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
    }


@answer_errors(_refused)
def alter(
    state: BrokerState, call: Call, wanted: Any, altered: Altered, validate_only: bool
) -> dict[str, Any]:
    """
    Replace the settings of a topic, and return the fields of its answer; a broker's settings never change.

    Args:
        wanted: The request's part for the topic.
        altered: Returns the new settings, from the present ones and the request's part, or raises an
            ApiError.
        validate_only: Change nothing.

    """
    if wanted.resource_type != ResourceType.TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {wanted.resource_type}")
    topic = state.topics.topic(wanted.resource_name)
    settings = altered(topic.overrides, wanted)
    check_settings(TOPIC_SETTINGS, settings)
    if not validate_only:
        state.topics.alter(topic, settings)
    return _fields(wanted)
