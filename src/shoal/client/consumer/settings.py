"""The properties of a raw consumer, with the names of Java's consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConfigError
from ..assignors import assignors_named
from ..config import ClientConfig
from ..membership import MembershipSettings
from ..offsets import EARLIEST, LATEST
from ..properties import (
    DECOMPRESSED_LIMIT,
    MOST_DECOMPRESSED,
    Property,
    boolean,
    bytes_only,
    integer,
    names,
    one_of,
    read_properties,
    text,
)

__all__ = ["CONSUMER_PROPERTIES", "ConsumerSettings"]

_WHERE = "the consumer's configuration"

_DESERIALIZER = bytes_only("org.apache.kafka.common.serialization.ByteArrayDeserializer")

#: The timestamp in ListOffsets for each ``auto.offset.reset``.
_RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

#: The properties that have an effect, with their defaults.
CONSUMER_PROPERTIES: Mapping[str, Property] = {
    "auto.commit.interval.ms": Property("5000", integer()),
    "auto.offset.reset": Property("latest", one_of("earliest", "latest", "none")),
    "check.crcs": Property("true", boolean),
    "default.api.timeout.ms": Property("60000", integer()),
    "enable.auto.commit": Property("true", boolean),
    "fetch.max.bytes": Property("52428800", integer()),
    "fetch.max.wait.ms": Property("500", integer()),
    "fetch.min.bytes": Property("1", integer()),
    "fetch.raw.bytes": Property("false", boolean),
    "group.id": Property(None, text),
    "group.instance.id": Property(None, text),
    "group.protocol": Property("classic", one_of("classic")),
    "heartbeat.interval.ms": Property("3000", integer(1)),
    "key.deserializer": Property(None, _DESERIALIZER),
    "max.partition.fetch.bytes": Property("1048576", integer()),
    "max.poll.interval.ms": Property("300000", integer(1)),
    "max.poll.records": Property("500", integer(1)),
    "metadata.max.age.ms": Property("300000", integer(1)),
    "partition.assignment.strategy": Property("range", names),
    "session.timeout.ms": Property("45000", integer(1)),
    MOST_DECOMPRESSED: DECOMPRESSED_LIMIT,
    "value.deserializer": Property(None, _DESERIALIZER),
}

#: A response carries at least so much, so that any batch of the default max.message.bytes fits.
_SMALLEST_FETCH = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A raw consumer's configuration, read; the names are those of the properties."""

    client: ClientConfig
    membership: MembershipSettings | None
    fetch_raw_bytes: bool
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    check_crcs: bool
    default_api_timeout_ms: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    max_decompressed_bytes: int

    @property
    def reset_to(self) -> int | None:
        """Return ``auto.offset.reset`` as a special timestamp of ListOffsets; None if there is none."""
        return _RESETS[self.auto_offset_reset]

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ConsumerSettings:
        """
        Read the properties of a Java consumer.

        Raises:
            ConfigError: A property is unknown or unsupported, or has an invalid value.

        """
        values, written = read_properties(properties, CONSUMER_PROPERTIES, _WHERE)
        client, _ = ClientConfig.from_properties("source", written, where=_WHERE)
        group = values["group.id"] or None
        if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            raise ConfigError(f"{_WHERE}: heartbeat.interval.ms must be less than session.timeout.ms")
        if values["group.instance.id"] == "":
            raise ConfigError(f"{_WHERE}: group.instance.id is empty. Remove it, or give this member a name")
        membership = group and MembershipSettings(
            group,
            tuple(assignors_named(values["partition.assignment.strategy"])),
            values["group.instance.id"],
            values["session.timeout.ms"],
            values["heartbeat.interval.ms"],
            values["max.poll.interval.ms"],
            values["metadata.max.age.ms"],
        )
        return cls(
            client,
            membership or None,
            values["fetch.raw.bytes"],
            values["auto.offset.reset"],
            # Without a group there is nothing to commit to.
            values["enable.auto.commit"] and group is not None,
            values["auto.commit.interval.ms"],
            values["check.crcs"],
            values["default.api.timeout.ms"],
            max(values["fetch.max.bytes"], _SMALLEST_FETCH),
            values["fetch.max.wait.ms"],
            values["fetch.min.bytes"],
            values["max.partition.fetch.bytes"],
            values["max.poll.records"],
            values[MOST_DECOMPRESSED],
        )
