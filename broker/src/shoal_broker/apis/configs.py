"""
Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs (KIP-339).

A setting comes from the topic or the broker, or is the default. No setting has synonyms here, and a broker's
settings never change.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, check_settings
from ..state import BrokerState
from ..topics import check_topic_name

__all__ = ["alter_configs", "describe_configs", "describe_topic_settings", "incremental_alter_configs"]

_DescribeConfigs = response_class(ApiKey.DESCRIBE_CONFIGS)
_Described = _DescribeConfigs.DescribeConfigsResult
_AlterConfigs = response_class(ApiKey.ALTER_CONFIGS)
_Incremental = response_class(ApiKey.INCREMENTAL_ALTER_CONFIGS)


class _Resource(enum.IntEnum):
    """The resources that have settings here (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4


class _Source(enum.IntEnum):
    """The source of a setting's value (``DescribeConfigsResponse.ConfigSource``)."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class _Operation(enum.IntEnum):
    """The change of a setting (``AlterConfigOp.OpType``); lists are not extended or shortened here."""

    SET = 0
    DELETE = 1


def describe_configs(state: BrokerState, call: Call, request: Any) -> Any:
    """Describe the settings of topics and of the broker, with their sources."""
    return _DescribeConfigs(results=[_describe(state, call, wanted) for wanted in request.resources])


def _describe(state: BrokerState, call: Call, wanted: Any) -> Any:
    answer = _Described(resource_type=wanted.resource_type, resource_name=wanted.resource_name, configs=[])
    with call.part(answer), call.faults_at():
        keys = wanted.configuration_keys
        answer.configs = [
            _Described.DescribeConfigsResourceResult(
                name=setting.name,
                value=value,
                config_source=source,
                config_type=setting.type,
                documentation=None,
            )
            for setting, value, source in _settings(state, wanted.resource_type, wanted.resource_name)
            if not keys or setting.name in keys
        ]
    return answer


def _settings(state: BrokerState, resource_type: int, name: str) -> list[tuple[Setting, str, int]]:
    if resource_type == _Resource.TOPIC:
        check_topic_name(name)
        return describe_topic_settings(state.topics.topic(name).overrides)
    if resource_type == _Resource.BROKER:
        if name not in ("", str(state.node_id)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the broker is {state.node_id}, not {name!r}")
        defaults = {(each.name, each.default) for each in BROKER_SETTINGS.values()}
        return _described(
            BROKER_SETTINGS, dict(state.config.items() - defaults), _Source.STATIC_BROKER_CONFIG
        )
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def describe_topic_settings(overrides: Mapping[str, str]) -> list[tuple[Setting, str, int]]:
    """Return all settings of a topic, which has ``overrides`` of its own, with values and their sources."""
    return _described(TOPIC_SETTINGS, overrides, _Source.DYNAMIC_TOPIC_CONFIG)


def _described(
    settings: Mapping[str, Setting], values: Mapping[str, str], source: _Source
) -> list[tuple[Setting, str, int]]:
    return [
        (setting, values.get(name, setting.default), source if name in values else _Source.DEFAULT_CONFIG)
        for name, setting in settings.items()
    ]


def alter_configs(state: BrokerState, call: Call, request: Any) -> Any:
    """Replace all settings of topics; IncrementalAlterConfigs supersedes it."""
    return _alter_all(state, call, request, _AlterConfigs, _replaced)


def incremental_alter_configs(state: BrokerState, call: Call, request: Any) -> Any:
    """Set or delete settings of topics."""
    return _alter_all(state, call, request, _Incremental, _changed)


def _alter_all(
    state: BrokerState,
    call: Call,
    request: Any,
    message: Any,
    altered: Callable[[Mapping[str, str], Any], Mapping[str, str]],
) -> Any:
    """Give topics the settings that ``altered`` makes of the present ones and the request's part."""
    answers = []
    for wanted in request.resources:
        answer = message.AlterConfigsResourceResponse(
            resource_type=wanted.resource_type, resource_name=wanted.resource_name
        )
        answers.append(answer)
        with call.part(answer), call.faults_at():
            if wanted.resource_type != _Resource.TOPIC:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {wanted.resource_type}"
                )
            topic = state.topics.topic(wanted.resource_name)
            settings = altered(topic.overrides, wanted)
            check_settings(TOPIC_SETTINGS, settings)
            if not request.validate_only:
                state.topics.alter(topic, settings)
    return message(responses=answers)


def _replaced(_: Mapping[str, str], wanted: Any) -> Mapping[str, str]:
    return {config.name: config.value for config in wanted.configs}


def _changed(present: Mapping[str, str], wanted: Any) -> Mapping[str, str]:
    names = [config.name for config in wanted.configs]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    altered = dict(present)
    for config in wanted.configs:
        if config.config_operation == _Operation.SET:
            altered[config.name] = config.value
        elif config.config_operation == _Operation.DELETE:
            altered.pop(config.name, None)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation}")
    return altered
