"""IncrementalAlterConfigs (API key 44), v0 and v1 (KIP-339)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..config import TOPIC_SETTINGS, Setting, SettingType
from ..state import BrokerState
from .alter_configs import alter

__all__ = ["handle"]

_Response = response_class(ApiKey.INCREMENTAL_ALTER_CONFIGS)
_Result = _Response.AlterConfigsResourceResponse


class AlterConfigOperation(enum.IntEnum):
    """The change of a setting (``AlterConfigOp.OpType``)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Set, delete, extend or shorten settings of topics."""
    return _Response(
        responses=[
            _Result(**alter(state, call, wanted, _altered, request.validate_only))
            for wanted in request.resources
        ]
    )


def _altered(present: Mapping[str, str], wanted: Any) -> Mapping[str, str]:
    names = [config.name for config in wanted.configs]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    altered = dict(present)
    for config in wanted.configs:
        if config.name not in TOPIC_SETTINGS:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown configuration {config.name}")
        _apply(altered, TOPIC_SETTINGS[config.name], config)
    return altered


def _apply(altered: dict[str, str], setting: Setting, config: Any) -> None:
    operation = config.config_operation
    if operation == AlterConfigOperation.DELETE:
        altered.pop(setting.name, None)
        return
    if config.value is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for {setting.name}")
    if operation == AlterConfigOperation.SET:
        altered[setting.name] = config.value
    elif operation in (AlterConfigOperation.APPEND, AlterConfigOperation.SUBTRACT):
        if setting.type is not SettingType.LIST:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{setting.name} is not a list")
        now = [entry for entry in altered.get(setting.name, setting.default).split(",") if entry]
        changes = config.value.split(",")
        if operation == AlterConfigOperation.APPEND:
            now += [entry for entry in changes if entry not in now]
        else:
            now = [entry for entry in now if entry not in changes]
        altered[setting.name] = ",".join(now)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}")
