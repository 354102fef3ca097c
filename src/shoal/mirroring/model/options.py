"""
Options of one mirror (:class:`MirrorOptions`), with their defaults, texts and checks.

The command line and ``shoal.mirror()`` call :meth:`MirrorOptions.parse` once, with the user's values. The
options that tasks need, too, are :class:`~shoal.mirroring.model.copy_options.CopyOptions`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from ...client.config import ClientConfig
from ...client.offsets import EARLIEST, LATEST
from ...errors import ConfigError
from ...net.address import Address
from ...timing import DEFAULT_TIMING, Timing
from .copy_options import COPY_DEFAULTS, CopyOptions, copy_rules
from .follow_options import NOTHING_FOLLOWS, FollowOptions
from .group_selection import GroupSelection
from .http_access import OPEN, HttpAccess
from .option_values import (
    MOST_DIGITS,
    check_range,
    parse_fields,
    parse_flag,
    parse_listen,
    parse_seconds,
    parse_text,
    parse_whole,
    read_by,
)
from .steering_options import NOT_STEERED, SteeringOptions
from .topics import TopicSelection

__all__ = [
    "DEFAULT_GROUPS_INTERVAL_S",
    "DEFAULT_MASTER",
    "DEFAULT_MAX_NEW_PARTITIONS",
    "DEFAULT_REFRESH_S",
    "MirrorOptions",
    "Start",
    "checkpoint_name",
    "default_group",
    "without_groups",
]

DEFAULT_REFRESH_S = 30.0
DEFAULT_MAX_NEW_PARTITIONS = 1_000
DEFAULT_GROUPS_INTERVAL_S = 10.0
DEFAULT_MASTER = "local[*]"

_LARGEST_INT16 = 2**15 - 1

_LONGEST_REFRESH_S = 86_400

#: More than any cluster has.
_MOST_NEW_PARTITIONS = 10_000_000

#: 9999-12-31T23:59:59.999Z, the last time of ISO 8601.
_LAST_TIMESTAMP_MS = 253_402_300_799_999

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Most file systems allow 255 bytes in a name; a suffix (".crc", ".tmp") needs some of them.
_LONGEST_FILE_NAME = 200


@dataclass(frozen=True, slots=True)
class Start:
    """
    The start position of partitions without a committed position.

    Attributes:
        timestamp_ms: Start at the first record at or after this time, or at ListOffsets' ``EARLIEST`` or
            ``LATEST``.

    """

    timestamp_ms: int = EARLIEST

    @classmethod
    def parse(cls, option: str, text: str) -> Start:
        """
        Read ``earliest``, ``latest``, milliseconds since 1970, or an ISO 8601 time.

        A time without an offset is UTC, as in ``kafka-consumer-groups --to-datetime``.

        Raises:
            ConfigError: The text is none of these.

        """
        if text.lower() in _NAMED_STARTS:
            return cls(_NAMED_STARTS[text.lower()])
        timestamp_ms = _milliseconds(text)
        if timestamp_ms is None:
            raise ConfigError(
                f"{option} {text!r} is neither earliest nor latest nor a time from 1970 to 9999. Use "
                "milliseconds since 1970, or ISO 8601, such as 2026-01-31T12:00:00Z"
            )
        return cls(timestamp_ms)

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        names = {timestamp_ms: name for name, timestamp_ms in _NAMED_STARTS.items()}
        return names.get(self.timestamp_ms, str(self.timestamp_ms))


_NAMED_STARTS = {"earliest": EARLIEST, "latest": LATEST}


def _milliseconds(text: str) -> int | None:
    """Read a time from 1970 to 9999; None if the text is no such time."""
    if text.isdecimal():
        timestamp_ms = int(text) if len(text) <= MOST_DIGITS else -1
    else:
        try:
            timestamp_ms = (_in_utc(datetime.fromisoformat(text)) - _EPOCH) // timedelta(milliseconds=1)
        except ValueError:
            return None
    return timestamp_ms if 0 <= timestamp_ms <= _LAST_TIMESTAMP_MS else None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _parse_conf(option: str, value: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(value.items())


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """
    All options of a mirror.

    Attributes:
        source: How to reach the source cluster.
        destination: How to reach the destination cluster.
        topics: The topics to mirror, and their names at the destination.
        group: The consumer group on the source cluster that holds the position; None for
            :func:`default_group`.
        once: Copy up to the end offsets seen at the start, then end.
        start: The start position of partitions without a committed position.
        from_certificate: The file with the certificate of a cut-over from this destination to this source;
            partitions without a position since the cut begin there. None for none.
        replication_factor: The replication factor of topics that shoal creates; None for the source topic's,
            at most the number of destination brokers.
        refresh_s: Without ``once``: the time between two searches for new topics and partitions.
        max_new_partitions: Without ``once``: the most partitions that one search adds at the destination. All
            searches since the start add at most ten times as many.
        groups: The consumer groups whose offsets follow the records; None for none.
        exclude_groups: Groups to leave out of these.
        groups_interval_s: Without ``once``: the time between two translations of the groups' offsets. Rounds
            that cost more than 1.5 % of a core wait up to three times as long.
        metrics: The address that serves Prometheus; None for none.
        ui: The address of the status page; None for none.
        report: The file for the report of the run; None for none.
        checkpoint: The directory for the mirror's id in its group and for Spark's log; None for one by group,
            under the user's state directory. It holds no position.
        conf: Spark's settings, as pairs of a name and a value.
        http: The requests that metrics and page answer.
        allow_unauthenticated_spark: Send credentials to tasks even if Spark does not authenticate or encrypt.
        follow: The options for what follows the records.
        steering: The options that pause and limit the copying.
        copy: The options of copying, which tasks receive.
        timing: How long the driver and its tasks wait. Each cluster has times of its own.

    """

    source: ClientConfig
    destination: ClientConfig
    topics: TopicSelection
    group: str | None = field(default=None, metadata=read_by(parse_text))
    once: bool = field(default=False, metadata=read_by(parse_flag))
    start: Start = field(default=Start(), metadata=read_by(Start.parse))
    from_certificate: str | None = field(default=None, metadata=read_by(parse_text))
    replication_factor: int | None = field(default=None, metadata=read_by(parse_whole))
    refresh_s: float = field(default=DEFAULT_REFRESH_S, metadata=read_by(parse_seconds))
    max_new_partitions: int = field(default=DEFAULT_MAX_NEW_PARTITIONS, metadata=read_by(parse_whole))
    groups: str | None = field(default=None, metadata=read_by(parse_text))
    exclude_groups: str | None = field(default=None, metadata=read_by(parse_text))
    groups_interval_s: float = field(default=DEFAULT_GROUPS_INTERVAL_S, metadata=read_by(parse_seconds))
    metrics: Address | None = field(default=None, metadata=read_by(parse_listen))
    ui: Address | None = field(default=None, metadata=read_by(parse_listen))
    report: str | None = field(default=None, metadata=read_by(parse_text))
    master: str = field(default=DEFAULT_MASTER, metadata=read_by(parse_text))
    checkpoint: str | None = field(default=None, metadata=read_by(lambda _, text: str(text)))
    conf: tuple[tuple[str, str], ...] = field(default=(), metadata=read_by(_parse_conf))
    http: HttpAccess = OPEN
    allow_unauthenticated_spark: bool = field(default=False, metadata=read_by(parse_flag))
    follow: FollowOptions = NOTHING_FOLLOWS
    steering: SteeringOptions = NOT_STEERED
    copy: CopyOptions = COPY_DEFAULTS
    timing: Timing = DEFAULT_TIMING

    @classmethod
    def parse(
        cls,
        source: ClientConfig,
        destination: ClientConfig,
        topics: TopicSelection,
        given: Mapping[str, Any],
    ) -> MirrorOptions:
        """
        Read the options that a user gave, by their fields' names, with those that it is composed of.

        Args:
            source: How to reach the source cluster.
            destination: How to reach the destination cluster.
            topics: The topics to mirror.
            given: Texts, or Python's values. ``None`` stands for the default; other names are ignored.

        Raises:
            ConfigError: A value, or a combination of options, cannot be used.

        """
        return cls(
            source,
            destination,
            topics,
            **parse_fields(cls, given),
            http=HttpAccess.parse(given),
            follow=FollowOptions.parse(given),
            steering=SteeringOptions.parse(given),
            copy=CopyOptions.parse(given),
        )

    def __post_init__(self) -> None:
        shortest_refresh_s = self.timing.shortest_refresh_s
        for name, text in (("--group", self.group), ("--report", self.report)):
            if text is not None:
                parse_text(name, text)
        if self.replication_factor is not None:
            check_range("--replication-factor", self.replication_factor, 1, _LARGEST_INT16)
        check_range("--refresh", float(self.refresh_s), shortest_refresh_s, _LONGEST_REFRESH_S, "seconds")
        check_range("--max-new-partitions", self.max_new_partitions, 0, _MOST_NEW_PARTITIONS)
        if self.metrics is not None and self.metrics == self.ui and self.ui.port != 0:
            raise ConfigError(f"--metrics and --ui are both {self.metrics}. Use different ports")
        check_range(
            "--groups-interval",
            float(self.groups_interval_s),
            shortest_refresh_s,
            _LONGEST_REFRESH_S,
            "seconds",
        )
        if self.groups is None:
            if self.exclude_groups is not None:
                raise without_groups("--exclude-groups", self.exclude_groups)
            if self.groups_interval_s != DEFAULT_GROUPS_INTERVAL_S:
                raise without_groups("--groups-interval", f"{self.groups_interval_s:g}")
        _ = self.group_selection  # refuses an expression that cannot be compiled
        for name, _ in self.conf:
            if not name.startswith("spark."):
                raise ConfigError(f"--conf {name!r} is not a Spark setting. Their names begin with 'spark.'")
        self.copy.check()

    @property
    def group_selection(self) -> GroupSelection | None:
        """The consumer groups whose offsets follow the records; None for none."""
        return None if self.groups is None else GroupSelection(self.groups, self.exclude_groups)

    def rules(self) -> str:
        """Return the digest of the decisions about records; see :func:`copy_rules`."""
        return copy_rules(self.source, self.copy)

    def group_between(self, source_cluster_id: str | None, destination_cluster_id: str | None) -> str:
        """Return the user's group, or :func:`default_group`, which may raise."""
        return self.group or default_group(source_cluster_id, destination_cluster_id)


def without_groups(option: str, value: object) -> ConfigError:
    """Return the error about an option for consumer groups if none follow."""
    return ConfigError(
        f"{option} '{value}' has no effect without --groups. Name the groups to follow, such as '.*'"
    )


def default_group(source_cluster_id: str | None, destination_cluster_id: str | None) -> str:
    """
    Return the default name of a mirror's group.

    Raises:
        ConfigError: A cluster is too old to have an id (before Kafka 0.10.1).

    """
    if not source_cluster_id or not destination_cluster_id:
        side = "destination" if source_cluster_id else "source"
        raise ConfigError(
            f"--group is required: the {side} cluster has no id for the default name of the group"
        )
    return f"shoal.{source_cluster_id}.{destination_cluster_id}"


def checkpoint_name(group: str) -> str:
    """
    Return the name of the directory that holds a group's checkpoint.

    Args:
        group: Any name that is not empty.

    Returns:
        One safe component of a path, different for each group. It is the group's name, percent-encoded if
        necessary; if it would be too long, a digest replaces its end.

    """
    name = quote(group.encode(errors="surrogateescape"), safe="")
    if name in (".", ".."):
        return name.replace(".", "%2E")
    if len(name) <= _LONGEST_FILE_NAME:
        return name
    # Quoted names have no plus sign, so none of them equals a shortened one.
    digest = "+" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return name[: _LONGEST_FILE_NAME - len(digest)] + digest
