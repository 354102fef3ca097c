"""
DescribeConfigs (API key 32), v0 to v4: the settings of topics and of the broker, and where each comes from.

A topic's setting comes from the topic, or from the broker's setting of the
same idea, or is the default; with ``include_synonyms`` all of these are listed.
v0 says no more than whether it is the default.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...error_codes import ErrorCode
from ...protocol.apis import ApiKey
from ...protocol.codec import response_class
from ..api_error import ApiError
from ..call import Call
from ..config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, SettingType
from ..state import BrokerState
from ..topics import check_topic_name

__all__ = ["DescribedSetting", "ResourceType", "check_broker", "describe_topic_settings", "handle"]

_Response = response_class(ApiKey.DESCRIBE_CONFIGS)
_Result = _Response.DescribeConfigsResult
_Setting = _Result.DescribeConfigsResourceResult
_Synonym = _Setting.DescribeConfigsSynonym


class ResourceType(enum.IntEnum):
    """What has settings (``ConfigResource.Type``), as far as it is here."""

    TOPIC = 2
    BROKER = 4


class Source(enum.IntEnum):
    """Where a setting's value comes from (``DescribeConfigsResponse.ConfigSource``)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class _Origin(NamedTuple):
    name: str
    value: str
    source: Source


class DescribedSetting(NamedTuple):
    """A setting with its value; the first of its origins is the one that counts."""

    name: str
    type: SettingType
    origins: Sequence[_Origin]

    @property
    def value(self) -> str:
        return self.origins[0].value

    @property
    def source(self) -> Source:
        return self.origins[0].source


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    results = [_describe(state, call, wanted, request.include_synonyms) for wanted in request.resources]
    return _Response(version=call.version, results=results)


def _describe(state: BrokerState, call: Call, wanted: Any, include_synonyms: bool) -> Any:
    error, message, settings = ErrorCode.NONE, None, list[DescribedSetting]()
    try:
        call.check_before()
        settings = _settings(state, wanted.resource_type, wanted.resource_name)
    except ApiError as refused:
        error, message = refused.code, refused.message
    keys = wanted.configuration_keys
    return _Result(
        error_code=error,
        error_message=message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=[
            _described(setting, include_synonyms) for setting in settings if not keys or setting.name in keys
        ],
    )


def _settings(state: BrokerState, resource_type: int, name: str) -> list[DescribedSetting]:
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        return describe_topic_settings(state.topics.topic(name).overrides, state.config)
    if resource_type == ResourceType.BROKER:
        check_broker(state, name)
        return [
            DescribedSetting(setting.name, setting.type, _broker_origins(setting.name, state.config))
            for setting in BROKER_SETTINGS.values()
        ]
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def check_broker(state: BrokerState, name: str) -> None:
    """
    Check that a resource's name is this broker's id, or empty for all brokers.

    Raises:
        ApiError: With INVALID_REQUEST.

    """
    if name not in ("", str(state.node_id)):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the broker is {state.node_id}, not {name!r}")


def describe_topic_settings(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedSetting]:
    """Describe all settings of a topic that has these of its own."""
    described: list[DescribedSetting] = []
    for setting in TOPIC_SETTINGS.values():
        origins: list[_Origin] = []
        if setting.name in overrides:
            origins.append(_Origin(setting.name, overrides[setting.name], Source.DYNAMIC_TOPIC_CONFIG))
        if setting.synonym is None:
            origins.append(_Origin(setting.name, setting.default, Source.DEFAULT_CONFIG))
        else:
            origins += _broker_origins(setting.synonym, broker)
        described.append(DescribedSetting(setting.name, setting.type, origins))
    return described


def _broker_origins(name: str, broker: BrokerConfig) -> list[_Origin]:
    origins: list[_Origin] = []
    if name in broker.dynamic:
        origins.append(_Origin(name, broker.dynamic[name], Source.DYNAMIC_BROKER_CONFIG))
    if name in broker.static:
        origins.append(_Origin(name, broker.static[name], Source.STATIC_BROKER_CONFIG))
    origins.append(_Origin(name, BROKER_SETTINGS[name].default, Source.DEFAULT_CONFIG))
    return origins


def _described(setting: DescribedSetting, include_synonyms: bool) -> Any:
    return _Setting(
        name=setting.name,
        value=setting.value,
        read_only=False,
        config_source=setting.source,
        is_default=setting.source is Source.DEFAULT_CONFIG,
        is_sensitive=False,
        synonyms=[
            _Synonym(name=origin.name, value=origin.value, source=origin.source)
            for origin in setting.origins
            if include_synonyms
        ],
        config_type=setting.type,
        documentation=None,
    )
