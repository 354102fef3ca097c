"""The properties of a raw consumer, with the names of Java's consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConfigError
from ..config import KNOWN_PROPERTIES, ClientConfig
from ..membership import MembershipSettings
from ..offsets import EARLIEST, LATEST
from ..properties import (
    Property,
    boolean,
    bytes_only,
    integer,
    java,
    most_decompressed,
    one_of,
    read_into,
    table_of,
    written,
)

__all__ = ["CONSUMER_PROPERTIES", "ConsumerSettings"]

_WHERE = "the consumer's configuration"

_DESERIALIZER = bytes_only("org.apache.kafka.common.serialization.ByteArrayDeserializer")

#: The timestamp in ListOffsets for each ``auto.offset.reset``.
_RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

#: A response carries at least so much, so that any batch of the default max.message.bytes fits.
_SMALLEST_FETCH = 2 * 1024 * 1024


def _fetch_bytes(value: str) -> int:
    return max(integer()(value), _SMALLEST_FETCH)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A raw consumer's configuration; without a group there is no membership."""

    client: ClientConfig
    membership: MembershipSettings | None
    fetch_raw_bytes: bool = java("fetch.raw.bytes", "false", boolean)
    auto_offset_reset: str = java("auto.offset.reset", "latest", one_of("earliest", "latest", "none"))
    enable_auto_commit: bool = java("enable.auto.commit", "true", boolean)
    auto_commit_interval_ms: int = java("auto.commit.interval.ms", "5000", integer())
    check_crcs: bool = java("check.crcs", "true", boolean)
    default_api_timeout_ms: int = java("default.api.timeout.ms", "60000", integer())
    fetch_max_bytes: int = java("fetch.max.bytes", "52428800", _fetch_bytes)
    fetch_max_wait_ms: int = java("fetch.max.wait.ms", "500", integer())
    fetch_min_bytes: int = java("fetch.min.bytes", "1", integer())
    max_partition_fetch_bytes: int = java("max.partition.fetch.bytes", "1048576", integer())
    max_poll_records: int = java("max.poll.records", "500", integer(1))
    max_decompressed_bytes: int = most_decompressed()
    group_protocol: str = java("group.protocol", "classic", one_of("classic"))
    key_deserializer: str | None = java("key.deserializer", None, _DESERIALIZER)
    value_deserializer: str | None = java("value.deserializer", None, _DESERIALIZER)

    @property
    def reset_to(self) -> int | None:
        """Return ``auto.offset.reset`` as a special timestamp of ListOffsets; None if there is none."""
        return _RESETS[self.auto_offset_reset]

    @property
    def commits_by_itself(self) -> bool:
        """Whether the consumer commits without a call; without a group there is nothing to commit to."""
        return self.enable_auto_commit and self.membership is not None

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ConsumerSettings:
        """
        Read the properties of a Java consumer.

        Raises:
            ConfigError: A property is unknown or unsupported, or has an invalid value.

        """
        given = written(properties, CONSUMER_PROPERTIES.keys() | KNOWN_PROPERTIES, _WHERE)
        client, _ = ClientConfig.from_properties("source", given, where=_WHERE)
        membership = read_into(MembershipSettings, given, _WHERE)
        if membership.heartbeat_interval_ms >= membership.session_timeout_ms:
            raise ConfigError(f"{_WHERE}: heartbeat.interval.ms must be less than session.timeout.ms")
        if membership.instance_id == "":
            raise ConfigError(f"{_WHERE}: group.instance.id is empty. Remove it, or give this member a name")
        has_group = bool(membership.group)
        return read_into(cls, given, _WHERE, client=client, membership=membership if has_group else None)


#: The properties that have an effect.
CONSUMER_PROPERTIES: Mapping[str, Property] = table_of(ConsumerSettings, MembershipSettings)
