"""
The settings of the broker and of topics, with Kafka's names, types and defaults.

A topic's setting has its own value or the default: unlike in Kafka, no broker setting is its default. The
defaults are those of Kafka 4.1 but for a few, which say so. Settings that Kafka does not have begin with
``shoal.``. A name that is not listed here is refused.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal.error_codes import ErrorCode
from shoal.records import Codec

from .api_error import ApiError

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "Setting",
    "SettingType",
    "TopicConfig",
    "broker_config",
    "check_settings",
]

_LONG_MAX = 2**63 - 1


class SettingType(enum.IntEnum):
    """The types of DescribeConfigs v3 (``ConfigDef.Type``)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    """
    A setting.

    Attributes:
        name: Its name in a properties file.
        type: The type of its value.
        default: As text, since the protocol carries values as text.
        allowed: Returns whether a value of the right type is in range.

    """

    name: str
    type: SettingType
    default: str
    allowed: Callable[[str], bool] = lambda _: True

    def check(self, value: str | None) -> None:
        """
        Check a value.

        Raises:
            ApiError: With INVALID_CONFIG, if it is null, of the wrong type or out of range.

        """
        if value is None or not (_HAS_TYPE[self.type](value) and self.allowed(value)):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {self.name}")


_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")


def _is_integer(bits: int) -> Callable[[str], bool]:
    limit: int = 1 << (bits - 1)

    def check(value: str) -> bool:
        # Unlike `int`, Java takes no 1_000.
        return bool(_INTEGER.fullmatch(value)) and -limit <= int(value) < limit

    return check


def _is_double(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


_HAS_TYPE: Mapping[SettingType, Callable[[str], bool]] = {
    SettingType.BOOLEAN: lambda value: value.lower() in ("true", "false"),
    SettingType.STRING: lambda _: True,
    SettingType.INT: _is_integer(32),
    SettingType.LONG: _is_integer(64),
    SettingType.DOUBLE: _is_double,
    SettingType.LIST: lambda _: True,
}


def _between(low: float, high: float = float("inf")) -> Callable[[str], bool]:
    return lambda value: low <= float(value) <= high


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _is_not_empty(value: str) -> bool:
    return bool(value.strip())


def _list_of(*values: str) -> Callable[[str], bool]:
    return lambda value: all(entry.strip() in values for entry in value.split(","))


def _by_name(*settings: Setting) -> Mapping[str, Setting]:
    return {setting.name: setting for setting in settings}


_BOOLEAN, _STRING, _INT = SettingType.BOOLEAN, SettingType.STRING, SettingType.INT
_LONG, _DOUBLE, _LIST = SettingType.LONG, SettingType.DOUBLE, SettingType.LIST

_CODECS = {
    "uncompressed": Codec.NONE,
    "zstd": Codec.ZSTD,
    "lz4": Codec.LZ4,
    "snappy": Codec.SNAPPY,
    "gzip": Codec.GZIP,
    "producer": None,
}
_TIMESTAMP_TYPES = _one_of("CreateTime", "LogAppendTime")
_CLEANUP_POLICIES = _list_of("compact", "delete")

TOPIC_SETTINGS = _by_name(
    Setting("cleanup.policy", _LIST, "delete", _CLEANUP_POLICIES),
    Setting("compression.type", _STRING, "producer", _one_of(*_CODECS)),
    Setting("delete.retention.ms", _LONG, "86400000", _between(0)),
    Setting("flush.messages", _LONG, str(_LONG_MAX), _between(1)),
    Setting("index.interval.bytes", _INT, "4096", _between(0)),
    Setting("max.compaction.lag.ms", _LONG, str(_LONG_MAX), _between(1)),
    Setting("max.message.bytes", _INT, "1048588", _between(0)),
    Setting(
        "message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        _between(0),
    ),
    Setting(
        "message.timestamp.before.max.ms",
        _LONG,
        str(_LONG_MAX),
        _between(0),
    ),
    Setting("message.timestamp.type", _STRING, "CreateTime", _TIMESTAMP_TYPES),
    Setting("min.cleanable.dirty.ratio", _DOUBLE, "0.5", _between(0, 1)),
    Setting("min.compaction.lag.ms", _LONG, "0", _between(0)),
    Setting("min.insync.replicas", _INT, "1", _between(1)),
    Setting("retention.bytes", _LONG, "-1"),
    Setting("retention.ms", _LONG, "604800000", _between(-1)),
    # Kafka 4.1 takes no less than 1 MiB.
    Setting("segment.bytes", _INT, "1073741824", _between(1 << 20)),
    Setting("segment.index.bytes", _INT, "10485760", _between(4)),
    Setting("segment.jitter.ms", _LONG, "0", _between(0)),
    Setting("segment.ms", _LONG, "604800000", _between(1)),
)

BROKER_SETTINGS = _by_name(
    # Kafka's default is true. Here it is false, so that a test's typing error is no topic.
    Setting("auto.create.topics.enable", _BOOLEAN, "false"),
    # Without effect: a mirror sets the topics' own if brokers have it (Kafka 3.6 and later).
    Setting("log.message.timestamp.after.max.ms", _LONG, "3600000", _between(0)),
    Setting("num.partitions", _INT, "1", _between(1)),
    Setting("offset.metadata.max.bytes", _INT, "4096"),
    Setting("producer.id.expiration.check.interval.ms", _INT, "600000", _between(1)),
    Setting("producer.id.expiration.ms", _INT, "86400000", _between(1)),
    # Not Kafka's: see `multi_batch`.
    Setting("shoal.multi.batch.client.id.prefix", _STRING, "shoal-multi-batch", _is_not_empty),
    Setting("shoal.multi.batch.produce", _BOOLEAN, "false"),
)


def check_settings(settings: Mapping[str, Setting], values: Mapping[str, str | None]) -> None:
    """
    Check names and values against a table.

    Raises:
        ApiError: With INVALID_CONFIG, for the first that is unknown or wrong.

    """
    for name, value in values.items():
        if name not in settings:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown configuration {name}")
        settings[name].check(value)


def broker_config(given: Mapping[str, str]) -> dict[str, str]:
    """
    Return all settings of a broker, as text: the given value, or the default.

    Raises:
        ApiError: With INVALID_CONFIG, for the first unknown name or invalid value.

    """
    check_settings(BROKER_SETTINGS, given)
    return {name: setting.default for name, setting in BROKER_SETTINGS.items()} | dict(given)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """
    The settings of a topic that have an effect, as values.

    The broker keeps and describes the other settings of the table: it has no cleaner, no follower and no
    retention.

    Attributes:
        codec: The codec to which batches of another one are recompressed; None keeps the producer's.

    """

    max_message_bytes: int
    segment_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compacted: bool
    deleted: bool
    codec: Codec | None

    @classmethod
    def of(cls, overrides: Mapping[str, str]) -> TopicConfig:
        """Return a topic's own settings, and the defaults of the others."""

        def value(name: str) -> str:
            return overrides.get(name, TOPIC_SETTINGS[name].default)

        return cls(
            max_message_bytes=int(value("max.message.bytes")),
            segment_bytes=int(value("segment.bytes")),
            log_append_time=value("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
            timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
            compacted="compact" in value("cleanup.policy"),
            deleted="delete" in value("cleanup.policy"),
            codec=_CODECS[value("compression.type")],
        )
