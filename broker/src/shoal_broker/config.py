"""
The settings of the broker and of topics, with Kafka's names, types and defaults.

A topic's setting has its own value or the default: unlike in Kafka, no broker setting is its default. The
defaults are those of Kafka 4.1 but for a few, which say so. Settings that Kafka does not have begin with
``shoal.``. A name that is not listed here is refused.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
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
        least: The smallest number.
        most: The largest number.
        texts: The texts that it can have, or a list of it; none if it can have any but an empty one.

    """

    name: str
    type: SettingType
    default: str
    least: int = 0
    most: int = 0
    texts: tuple[str, ...] = ()

    def check(self, value: str | None) -> None:
        """
        Check a value.

        Raises:
            ApiError: With INVALID_CONFIG, if it is null, of the wrong type or out of range.

        """
        if value is None or not self._allows(value):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {self.name}")

    def _allows(self, value: str) -> bool:
        match self.type:
            case SettingType.BOOLEAN:
                return value.lower() in ("true", "false")
            case SettingType.STRING:
                return value in self.texts if self.texts else bool(value.strip())
            case SettingType.LIST:
                return all(entry.strip() in self.texts for entry in value.split(","))
            case SettingType.DOUBLE:
                return bool(_DECIMAL.fullmatch(value)) and self.least <= float(value) <= self.most
            case _:
                return bool(_INTEGER.fullmatch(value)) and self.least <= int(value) <= self.most


# Unlike `int` and `float`, Java takes no 1_000.
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_DECIMAL = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]*)?\s*")


def _boolean(name: str, default: str) -> Setting:
    return Setting(name, SettingType.BOOLEAN, default)


def _int(name: str, default: int, least: int = 0) -> Setting:
    return Setting(name, SettingType.INT, str(default), least, 2**31 - 1)


def _long(name: str, default: int, least: int = 0) -> Setting:
    return Setting(name, SettingType.LONG, str(default), least, _LONG_MAX)


def _text(name: str, default: str, *texts: str) -> Setting:
    return Setting(name, SettingType.STRING, default, texts=texts)


def _by_name(*settings: Setting) -> Mapping[str, Setting]:
    return {setting.name: setting for setting in settings}


_CODECS = {
    "uncompressed": Codec.NONE,
    "zstd": Codec.ZSTD,
    "lz4": Codec.LZ4,
    "snappy": Codec.SNAPPY,
    "gzip": Codec.GZIP,
    "producer": None,
}

#: Those of retention, segments and flushes have no effect: mirrors copy and compare them.
TOPIC_SETTINGS = _by_name(
    Setting("cleanup.policy", SettingType.LIST, "delete", texts=("compact", "delete")),
    _text("compression.type", "producer", *_CODECS),
    _long("delete.retention.ms", 86_400_000),
    _long("flush.messages", _LONG_MAX, 1),
    _int("index.interval.bytes", 4096),
    _long("max.compaction.lag.ms", _LONG_MAX, 1),
    _int("max.message.bytes", 1_048_588),
    _long("message.timestamp.after.max.ms", 3_600_000),
    _long("message.timestamp.before.max.ms", _LONG_MAX),
    _text("message.timestamp.type", "CreateTime", "CreateTime", "LogAppendTime"),
    Setting("min.cleanable.dirty.ratio", SettingType.DOUBLE, "0.5", 0, 1),
    _long("min.compaction.lag.ms", 0),
    _int("min.insync.replicas", 1, 1),
    _long("retention.bytes", -1, -(2**63)),
    _long("retention.ms", 604_800_000, -1),
    # Kafka 4.1 takes no less than 1 MiB.
    _int("segment.bytes", 1 << 30, 1 << 20),
    _int("segment.index.bytes", 10_485_760, 4),
    _long("segment.jitter.ms", 0),
    _long("segment.ms", 604_800_000, 1),
)

BROKER_SETTINGS = _by_name(
    # Kafka's default is true. Here it is false, so that a test's typing error is no topic.
    _boolean("auto.create.topics.enable", "false"),
    # Without effect: a mirror sets the topics' own if brokers have it (Kafka 3.6 and later).
    _long("log.message.timestamp.after.max.ms", 3_600_000),
    _int("num.partitions", 1, 1),
    _int("offset.metadata.max.bytes", 4096, -(2**31)),
    _int("offsets.retention.minutes", 10_080, 1),
    _int("producer.id.expiration.check.interval.ms", 600_000, 1),
    _int("producer.id.expiration.ms", 86_400_000, 1),
    # Not Kafka's: see `multi_batch`.
    _text("shoal.multi.batch.client.id.prefix", "shoal-multi-batch"),
    _boolean("shoal.multi.batch.produce", "false"),
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
