"""
DescribeConfigs (API key 32), v1 to v4.

A setting comes from the topic or the broker, or is the default. No setting has synonyms here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, SettingType
from ..state import BrokerState
from ..topics import check_topic_name
from .answering import answer_errors

__all__ = ["DescribedSetting", "ResourceType", "describe_topic_settings", "handle"]

_Response = response_class(ApiKey.DESCRIBE_CONFIGS)
_Result = _Response.DescribeConfigsResult
_Setting = _Result.DescribeConfigsResourceResult


class ResourceType(enum.IntEnum):
    """The resources that have settings here (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4


class Source(enum.IntEnum):
    """The source of a setting's value (``DescribeConfigsResponse.ConfigSource``)."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class DescribedSetting(NamedTuple):
    """A setting with its value and the source of it."""

    name: str
    type: SettingType
    value: str
    source: Source


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe the settings of topics and of the broker, with their sources."""
    return _Response(results=[_describe(state, call, wanted) for wanted in request.resources])


def _result(wanted: Any, **fields: Any) -> Any:
    return _Result(resource_type=wanted.resource_type, resource_name=wanted.resource_name, **fields)


def _refused(error: ApiError, call: Call, wanted: Any) -> Any:
    return _result(wanted, error_code=error.code, error_message=error.message, configs=[])


@answer_errors(_refused)
def _describe(state: BrokerState, call: Call, wanted: Any) -> Any:
    keys = wanted.configuration_keys
    settings = _settings(state, wanted.resource_type, wanted.resource_name)
    return _result(
        wanted,
        error_message=None,
        configs=[_described(setting) for setting in settings if not keys or setting.name in keys],
    )


def _settings(state: BrokerState, resource_type: int, name: str) -> list[DescribedSetting]:
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        return describe_topic_settings(state.topics.topic(name).overrides)
    if resource_type == ResourceType.BROKER:
        if name not in ("", str(state.node_id)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the broker is {state.node_id}, not {name!r}")
        defaults = {(each.name, each.default) for each in BROKER_SETTINGS.values()}
        return _described_settings(
            BROKER_SETTINGS, dict(state.config.items() - defaults), Source.STATIC_BROKER_CONFIG
        )
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def describe_topic_settings(overrides: Mapping[str, str]) -> list[DescribedSetting]:
    """Describe all settings of a topic, which has ``overrides`` of its own."""
    return _described_settings(TOPIC_SETTINGS, overrides, Source.DYNAMIC_TOPIC_CONFIG)


def _described_settings(
    settings: Mapping[str, Setting], values: Mapping[str, str], source: Source
) -> list[DescribedSetting]:
    return [
        DescribedSetting(name, setting.type, values[name], source)
        if name in values
        else DescribedSetting(name, setting.type, setting.default, Source.DEFAULT_CONFIG)
        for name, setting in settings.items()
    ]


def _described(setting: DescribedSetting) -> Any:
    return _Setting(
        name=setting.name,
        value=setting.value,
        read_only=False,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=[],
        config_type=setting.type,
        documentation=None,
    )
