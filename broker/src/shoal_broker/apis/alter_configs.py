"""AlterConfigs (API key 33), v0 to v2. IncrementalAlterConfigs (KIP-339) supersedes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..config import BROKER_SETTINGS, TOPIC_SETTINGS, check_settings
from ..state import BrokerState
from .answering import answer_errors
from .describe_configs import ResourceType, check_broker

__all__ = ["alter", "current_settings", "handle"]

_Response = response_class(ApiKey.ALTER_CONFIGS)
_Result = _Response.AlterConfigsResourceResponse


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Replace all settings of topics or of the broker."""
    return _Response(
        responses=[
            _Result(**alter(state, call, wanted, _replaced, request.validate_only))
            for wanted in request.resources
        ]
    )


def _replaced(state: BrokerState, wanted: Any) -> Mapping[str, str]:
    current_settings(state, wanted)  # for its errors
    return {config.name: config.value for config in wanted.configs}


def current_settings(state: BrokerState, wanted: Any) -> Mapping[str, str]:
    """
    Return the settings that a resource has of its own.

    Raises:
        ApiError: With UNKNOWN_TOPIC_OR_PARTITION or INVALID_REQUEST.

    """
    if wanted.resource_type == ResourceType.TOPIC:
        return state.topics.topic(wanted.resource_name).overrides
    if wanted.resource_type == ResourceType.BROKER:
        check_broker(state, wanted.resource_name)
        return state.config.dynamic
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {wanted.resource_type}")


Altered = Callable[[BrokerState, Any], Mapping[str, str]]


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
    Replace the settings of a resource, and return the fields of its answer.

    Args:
        wanted: The request's part for the resource.
        altered: Returns the new settings, or raises an ApiError.
        validate_only: Change nothing.

    """
    settings = altered(state, wanted)
    is_topic = wanted.resource_type == ResourceType.TOPIC
    check_settings(TOPIC_SETTINGS if is_topic else BROKER_SETTINGS, settings)
    if not validate_only:
        if is_topic:
            state.topics.alter(state.topics.topic(wanted.resource_name), settings)
        else:
            state.config.alter(settings)
            state.topics.broker_config_changed()
    return _fields(wanted)
