"""
The configurations of topics and brokers, as far as this principal may read them.

They also show whether the source keeps the mirror's positions, however long no mirror runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...client.admin import NOT_ALLOWED, describe_broker_config, describe_topic_configs
from ...client.cluster import Cluster, patiently
from ...client.committed_offsets import takes_retention
from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError, Stopped
from ...records.compression import DEFAULT_LIMIT_BYTES
from ..model.copy_options import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from .topic_configs import Configs

__all__ = [
    "BrokerConfigs",
    "decompression_limit",
    "describe_brokers",
    "describe_topics",
    "not_authorized",
    "warning_of_expiry",
]

_LARGEST_LIMIT_BYTES = 512 * 1024 * 1024


def not_authorized(topic: str) -> BrokerError:
    """Return the cause of an error that the missing ACL of a topic leads to; the surface finds it there."""
    return BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {topic}")


def describe_topics(
    cluster: Cluster, topics: Sequence[str], patience_s: float
) -> tuple[dict[str, Configs], list[str]]:
    """Return the configurations of those topics that may be described, and the names of the others."""

    def describe() -> tuple[dict[str, Configs], list[str]]:
        refused: list[str] = []
        return {**describe_topic_configs(cluster, topics, refused)}, refused

    return patiently(describe, patience_s=patience_s)


def decompression_limit(topics: Iterable[Configs]) -> int:
    """
    Return the maximum size of a decompressed batch: 64 MiB, or four times the largest batch of these topics.

    A hostile batch of some kilobytes can expand to gigabytes, so the limit is at most 512 MiB.
    """
    values = [each["max.message.bytes"].value or "" for each in topics if "max.message.bytes" in each]
    sizes = [int(value) for value in values if value.isdecimal()]
    return min(max(DEFAULT_LIMIT_BYTES, 4 * max(sizes, default=0)), _LARGEST_LIMIT_BYTES)


class BrokerConfigs(NamedTuple):
    """
    The configurations of a cluster's brokers.

    Attributes:
        configs: Those of the brokers that return them.
        is_refused: Whether this principal may not describe a broker.

    """

    configs: Sequence[Mapping[str, str | None]]
    is_refused: bool

    @property
    def has_timestamp_after(self) -> bool:
        """Whether a broker has ``log.message.timestamp.after.max.ms`` (Kafka 3.6 and later)."""
        return any("log.message.timestamp.after.max.ms" in each for each in self.configs)

    @property
    def producer_id_expiration_ms(self) -> int:
        """The shortest ``producer.id.expiration.ms``; Kafka's default if no broker returns it."""
        return self._shortest("producer.id.expiration.ms") or DEFAULT_PRODUCER_ID_EXPIRATION_MS

    @property
    def offsets_retention_minutes(self) -> int | None:
        """The shortest ``offsets.retention.minutes``; None if no broker returns it."""
        return self._shortest("offsets.retention.minutes")

    def _shortest(self, name: str) -> int | None:
        texts = [each.get(name) for each in self.configs]
        return min((int(text) for text in texts if text and text.isdecimal()), default=None)


def describe_brokers(cluster: Cluster) -> BrokerConfigs:
    """Describe the brokers; a broker that is down, and missing ACLs, do not prevent a mirror."""
    described = []
    is_refused = False
    for node_id in cluster.metadata.brokers:
        try:
            described.append(describe_broker_config(cluster, node_id))
        except BrokerError as error:
            is_refused = is_refused or error.code in NOT_ALLOWED
        except Stopped:
            raise
        except ShoalError:
            continue
    return BrokerConfigs(described, is_refused)


#: Kafka's default of ``offsets.retention.minutes``: 7 days.
_DEFAULT_RETENTION_MINUTES = 7 * 24 * 60


def warning_of_expiry(source: Cluster, group: str) -> str | None:
    """
    Return a warning if the source deletes the positions of a mirror that does not run; None if it keeps them.

    Args:
        source: The cluster of the group.
        group: The mirror's group.

    Raises:
        ShoalError: The group's coordinator does not answer.

    """
    if takes_retention(source, group):
        return None
    told = describe_brokers(source).offsets_retention_minutes
    setting = "offsets.retention.minutes"
    if told is None:
        setting = f"Kafka's default of {setting}, since no broker returned its value"
    return (
        f"{source} takes no retention time with a position (OffsetCommit v2 to v4). If no mirror of group "
        f"{group!r} runs for {_duration(told or _DEFAULT_RETENTION_MINUTES)}, the cluster deletes the "
        f"positions ({setting})"
    )


def _duration(minutes: int) -> str:
    """Return ``7 days``, or ``90 minutes``."""
    days, rest = divmod(minutes, 24 * 60)
    number, unit = (minutes, "minute") if rest else (days, "day")
    return f"{number} {unit}{'s' if number > 1 else ''}"
