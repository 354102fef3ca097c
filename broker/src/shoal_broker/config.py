"""
The settings of the broker and of topics, with Kafka's names, types and defaults.

A topic's setting falls back to the broker's setting of the same idea (its
*synonym*, ``TopicConfig`` and ``ServerTopicConfigSynonyms`` in Kafka), and
that to the default. The defaults are those of Kafka 4.1 but for a few, which
say so. Settings that Kafka does not have begin with ``shoal.``. A name that is
not listed here is refused.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shoal.error_codes import ErrorCode
from shoal.records import Codec

from .api_error import ApiError

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "Setting",
    "SettingType",
    "TopicConfig",
    "check_settings",
]

_LONG_MAX = 2**63 - 1


class SettingType(enum.IntEnum):
    """The types of DescribeConfigs v3 (``ConfigDef.Type``)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
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
        synonym: For a topic's setting, the broker's setting that is its default.
        allowed: Returns whether a value of the right type is in range.

    """

    name: str
    type: SettingType
    default: str
    synonym: str | None = None
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
    SettingType.SHORT: _is_integer(16),
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
    Setting("cleanup.policy", _LIST, "delete", "log.cleanup.policy", _CLEANUP_POLICIES),
    Setting("compression.gzip.level", _INT, "-1", "compression.gzip.level"),
    Setting("compression.lz4.level", _INT, "9", "compression.lz4.level", _between(1, 17)),
    Setting("compression.type", _STRING, "producer", "compression.type", _one_of(*_CODECS)),
    Setting("compression.zstd.level", _INT, "3", "compression.zstd.level"),
    Setting("delete.retention.ms", _LONG, "86400000", "log.cleaner.delete.retention.ms", _between(0)),
    Setting("file.delete.delay.ms", _LONG, "60000", "log.segment.delete.delay.ms", _between(0)),
    Setting("flush.messages", _LONG, str(_LONG_MAX), "log.flush.interval.messages", _between(1)),
    Setting("flush.ms", _LONG, str(_LONG_MAX), "log.flush.interval.ms", _between(0)),
    Setting("follower.replication.throttled.replicas", _LIST, ""),
    Setting("index.interval.bytes", _INT, "4096", "log.index.interval.bytes", _between(0)),
    Setting("leader.replication.throttled.replicas", _LIST, ""),
    Setting("local.retention.bytes", _LONG, "-2", "log.local.retention.bytes", _between(-2)),
    Setting("local.retention.ms", _LONG, "-2", "log.local.retention.ms", _between(-2)),
    Setting("max.compaction.lag.ms", _LONG, str(_LONG_MAX), "log.cleaner.max.compaction.lag.ms", _between(1)),
    Setting("max.message.bytes", _INT, "1048588", "message.max.bytes", _between(0)),
    Setting(
        "message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "log.message.timestamp.after.max.ms",
        _between(0),
    ),
    Setting(
        "message.timestamp.before.max.ms",
        _LONG,
        str(_LONG_MAX),
        "log.message.timestamp.before.max.ms",
        _between(0),
    ),
    Setting("message.timestamp.type", _STRING, "CreateTime", "log.message.timestamp.type", _TIMESTAMP_TYPES),
    Setting("min.cleanable.dirty.ratio", _DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio", _between(0, 1)),
    Setting("min.compaction.lag.ms", _LONG, "0", "log.cleaner.min.compaction.lag.ms", _between(0)),
    Setting("min.insync.replicas", _INT, "1", "min.insync.replicas", _between(1)),
    Setting("preallocate", _BOOLEAN, "false", "log.preallocate"),
    Setting("remote.copy.disable", _BOOLEAN, "false"),
    Setting("remote.log.delete.on.disable", _BOOLEAN, "false"),
    Setting("remote.storage.enable", _BOOLEAN, "false"),
    Setting("retention.bytes", _LONG, "-1", "log.retention.bytes"),
    Setting("retention.ms", _LONG, "604800000", "log.retention.ms", _between(-1)),
    # Kafka 4.1 takes no less than 1 MiB.
    Setting("segment.bytes", _INT, "1073741824", "log.segment.bytes", _between(1 << 20)),
    Setting("segment.index.bytes", _INT, "10485760", "log.index.size.max.bytes", _between(4)),
    Setting("segment.jitter.ms", _LONG, "0", "log.roll.jitter.ms", _between(0)),
    Setting("segment.ms", _LONG, "604800000", "log.roll.ms", _between(1)),
    Setting("unclean.leader.election.enable", _BOOLEAN, "false", "unclean.leader.election.enable"),
)

_OWN_BROKER_SETTINGS = _by_name(
    # Kafka's default is true. Here it is false, so that a test's typing error is no topic.
    Setting("auto.create.topics.enable", _BOOLEAN, "false"),
    Setting("default.replication.factor", _INT, "1", allowed=_between(1)),
    Setting("fetch.max.bytes", _INT, "57671680", allowed=_between(1024)),
    # Kafka's default is 3000: here a group's first member waits for no others.
    Setting("group.initial.rebalance.delay.ms", _INT, "0", allowed=_between(0)),
    Setting("group.max.session.timeout.ms", _INT, "1800000", allowed=_between(1)),
    Setting("group.min.session.timeout.ms", _INT, "6000", allowed=_between(1)),
    Setting("num.partitions", _INT, "1", allowed=_between(1)),
    Setting("offset.metadata.max.bytes", _INT, "4096"),
    Setting("offsets.retention.check.interval.ms", _LONG, "600000", allowed=_between(1)),
    Setting("offsets.retention.minutes", _INT, "10080", allowed=_between(1)),
    Setting("producer.id.expiration.check.interval.ms", _INT, "600000", allowed=_between(1)),
    Setting("producer.id.expiration.ms", _INT, "86400000", allowed=_between(1)),
    # Not Kafka's: see `multi_batch`.
    Setting("shoal.multi.batch.client.id.prefix", _STRING, "shoal-multi-batch", allowed=_is_not_empty),
    Setting("shoal.multi.batch.produce", _BOOLEAN, "false"),
    Setting("transaction.max.timeout.ms", _INT, "900000", allowed=_between(1)),
)

#: The broker's own settings, and the synonyms of a topic's.
BROKER_SETTINGS: Mapping[str, Setting] = {
    **_OWN_BROKER_SETTINGS,
    **{
        setting.synonym: Setting(setting.synonym, setting.type, setting.default, None, setting.allowed)
        for setting in TOPIC_SETTINGS.values()
        if setting.synonym is not None
    },
}


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


#: The settings that can change while the broker runs (``DynamicBrokerConfig``), if they have an effect here.
_DYNAMIC = (BROKER_SETTINGS.keys() - _OWN_BROKER_SETTINGS.keys()) | {"producer.id.expiration.ms"}


class BrokerConfig(Mapping[str, str]):
    """
    The broker's settings by name, as text: the dynamic value, else the static one, else the default.

    Attributes:
        static: The settings at the start of the broker.
        dynamic: The settings that were altered since.

    """

    def __init__(self, static: Mapping[str, str]) -> None:
        """
        Check the settings that differ from the defaults.

        Raises:
            ApiError: With INVALID_CONFIG, for the first unknown name or invalid value.

        """
        check_settings(BROKER_SETTINGS, static)
        self.static = dict(static)
        self.dynamic: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name in self.dynamic:
            return self.dynamic[name]
        return self.static[name] if name in self.static else BROKER_SETTINGS[name].default

    def __iter__(self) -> Iterator[str]:
        return iter(BROKER_SETTINGS)

    def __len__(self) -> int:
        return len(BROKER_SETTINGS)

    def alter(self, dynamic: Mapping[str, str]) -> None:
        """
        Replace all dynamic settings.

        Raises:
            ApiError: With INVALID_REQUEST for a setting that needs a restart, INVALID_CONFIG for an unknown
                name or an invalid value.

        """
        check_settings(BROKER_SETTINGS, dynamic)
        for name in dynamic:
            if name not in _DYNAMIC:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}")
        self.dynamic = dict(dynamic)


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
    def of(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """Resolve a topic's own settings, then the broker's, then the defaults."""

        def value(name: str) -> str:
            if name in overrides:
                return overrides[name]
            setting = TOPIC_SETTINGS[name]
            return setting.default if setting.synonym is None else broker[setting.synonym]

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
