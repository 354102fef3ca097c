"""AlterConfigs (API key 33), v0 to v2: replace all settings of a topic or the broker (KIP-339 has better)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..config import BROKER_SETTINGS, TOPIC_SETTINGS, check_settings
from ..state import BrokerState
from .describe_configs import ResourceType, check_broker

__all__ = ["alter_or_refuse", "current_settings", "handle"]

_Response = response_class(ApiKey.ALTER_CONFIGS)
_Result = _Response.AlterConfigsResourceResponse


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    return _Response(
        version=call.version,
        responses=[
            _Result(**alter_or_refuse(state, call, wanted, _replaced, request.validate_only))
            for wanted in request.resources
        ],
    )


def _replaced(state: BrokerState, wanted: Any) -> Mapping[str, str]:
    current_settings(state, wanted)  # for its refusals
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


def alter_or_refuse(
    state: BrokerState,
    call: Call,
    wanted: Any,
    altered: Callable[[BrokerState, Any], Mapping[str, str]],
    validate_only: bool,
) -> dict[str, Any]:
    """
    Give a resource new settings of its own, and return the fields of the answer.

    Args:
        state: The state of the broker.
        call: The request's.
        wanted: The request's part for the resource.
        altered: Makes the new settings; may refuse.
        validate_only: Change nothing.

    """
    error, message = ErrorCode.NONE, None
    try:
        call.check_before()
        _alter(state, wanted, altered(state, wanted), validate_only)
        call.check_after()
    except ApiError as refused:
        error, message = refused.code, refused.message
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
    }


def _alter(state: BrokerState, wanted: Any, settings: Mapping[str, str], validate_only: bool) -> None:
    is_topic = wanted.resource_type == ResourceType.TOPIC
    check_settings(TOPIC_SETTINGS if is_topic else BROKER_SETTINGS, settings)
    if validate_only:
        return
    if is_topic:
        state.topics.alter(state.topics.topic(wanted.resource_name), settings)
    else:
        state.config.alter(settings)
        state.journal.put("broker_config", value=settings)
        state.topics.broker_config_changed()
