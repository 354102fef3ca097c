"""
DescribeConfigs (API key 32), v1 to v4.

A topic's setting comes from the topic, from the broker's setting of the same meaning, or is the default. With
``include_synonyms`` the response lists all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, SettingType
from ..state import BrokerState
from ..topics import check_topic_name
from .answering import answer_errors

__all__ = ["DescribedSetting", "ResourceType", "check_broker", "describe_topic_settings", "handle"]

_Response = response_class(ApiKey.DESCRIBE_CONFIGS)
_Result = _Response.DescribeConfigsResult
_Setting = _Result.DescribeConfigsResourceResult
_Synonym = _Setting.DescribeConfigsSynonym


class ResourceType(enum.IntEnum):
    """The resources that have settings here (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4


class Source(enum.IntEnum):
    """The source of a setting's value (``DescribeConfigsResponse.ConfigSource``)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class _Origin(NamedTuple):
    name: str
    value: str
    source: Source


class DescribedSetting(NamedTuple):
    """A setting with its origins; the first one is in force."""

    name: str
    type: SettingType
    origins: Sequence[_Origin]

    @property
    def value(self) -> str:
        """The value in force."""
        return self.origins[0].value

    @property
    def source(self) -> Source:
        """The source of the value in force."""
        return self.origins[0].source


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe the settings of topics and of the broker, with their sources."""
    return _Response(
        results=[_describe(state, call, wanted, request.include_synonyms) for wanted in request.resources]
    )


def _result(wanted: Any, **fields: Any) -> Any:
    return _Result(resource_type=wanted.resource_type, resource_name=wanted.resource_name, **fields)


def _refused(error: ApiError, call: Call, wanted: Any, include_synonyms: bool) -> Any:
    return _result(wanted, error_code=error.code, error_message=error.message, configs=[])


@answer_errors(_refused)
def _describe(state: BrokerState, call: Call, wanted: Any, include_synonyms: bool) -> Any:
    keys = wanted.configuration_keys
    settings = _settings(state, wanted.resource_type, wanted.resource_name)
    return _result(
        wanted,
        error_message=None,
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
    """Describe all settings of a topic, which has ``overrides`` of its own."""
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
        is_sensitive=False,
        synonyms=[
            _Synonym(name=origin.name, value=origin.value, source=origin.source)
            for origin in setting.origins
            if include_synonyms
        ],
        config_type=setting.type,
        documentation=None,
    )
