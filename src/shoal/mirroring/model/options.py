"""
Options of one mirror (:class:`MirrorOptions`), with their defaults, texts and checks.

The options that tasks need, too, are :class:`~shoal.mirroring.model.copy_options.CopyOptions`.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from urllib.parse import quote

from ... import kinds
from ...client.config import ClientConfig, IsolationLevel
from ...declare import option, read_fields
from ...errors import ConfigError
from ...net.address import Address
from ...option_values import check_range
from ...protocol.produce import MOST_IN_FLIGHT
from ...timing import DEFAULT_TIMING, Timing
from .acls import Acl, acl_commands, by_prefix, prefixes_of
from .copy_options import COPY_DEFAULTS, CopyOptions
from .follow_options import Follower, FollowOptions, GroupSelection, groups_option
from .http_access import HttpOptions
from .steering import SteeringOptions
from .topics import TopicSelection
from .window import Start, Until, parse_duration

__all__ = ["MirrorOptions", "checkpoint_name", "default_group"]

_LARGEST_INT16 = 2**15 - 1

_LONGEST_REFRESH_S = 86_400

#: More than any cluster has.
_MOST_NEW_PARTITIONS = 10_000_000

#: Most file systems allow 255 bytes in a name; a suffix (".crc", ".tmp") needs some of them.
_LONGEST_FILE_NAME = 200


class MetricsBy(enum.Enum):
    """The subjects of metrics with the label ``topic``."""

    PARTITION = "partition"
    TOPIC = "topic"


@dataclass(frozen=True)
class MirrorOptions(SteeringOptions, FollowOptions, HttpOptions, CopyOptions):
    """
    All options of a mirror.

    The constructor takes each option as a text, as the command line has it, or as Python's own value.

    Attributes:
        source: How to reach the source cluster: ``HOST:PORT[,HOST:PORT…]``, or a Java client's properties.
        destination: How to reach the destination cluster, likewise.
        topics: The topics to mirror, and their names at the destination; a text as ``--topics``, if they
            keep their names.
        timing: How long the driver and its tasks wait. Each cluster has times of its own.
        ignored: Warnings of properties without effect.

    Examples:
        >>> import shoal
        >>> options = shoal.MirrorOptions("old:9092", "new:9092", "orders.*", start="latest", refresh_s=10)
        >>> options.refresh_s, str(options.start)
        (10.0, 'latest')

    """

    source: ClientConfig
    destination: ClientConfig
    topics: TopicSelection
    group: str | None = option(
        kinds.text("NAME"),
        "consumer group on the source cluster that holds the position "
        "(default: shoal.<source cluster id>.<destination cluster id>)",
        default=None,
        group="mirror",
    )
    once: bool = option(
        kinds.FLAG,
        "copy up to the end offsets seen at the start, then exit",
        group="mirror",
    )
    start: Start = option(
        kinds.text("earliest|latest|TIMESTAMP", Start.parse),
        "start position for partitions without a committed position: earliest, latest (partitions that are "
        "newer than the group's first start begin at their first record), or a timestamp (milliseconds since "
        "1970, or ISO 8601)",
        default=Start(),
        group="mirror",
    )
    until: Until | None = option(
        kinds.text("now|TIMESTAMP|OFFSET", Until.parse),
        "copy the records before the first one of this time, or before this offset of the only partition, "
        "then exit. The mirror copies meanwhile, and waits for what is to come. The word now is the same as "
        "--once. A whole number below 100,000,000,000 is an offset, and offset:N is any",
        default=None,
        group="mirror",
    )
    last: timedelta | None = option(
        kinds.text("DURATION", parse_duration),
        "copy the records of the last 24h (or 90s, 30m, 7d), then exit: --start so long ago, and --until now",
        default=None,
        group="mirror",
    )
    from_certificate: str | None = option(
        kinds.FILE,
        "go back after the cut-over of this certificate: copy the records behind the cut to the old source, "
        "which must have no others since. Partitions that have a position since the cut keep it "
        "(docs/moving-a-cluster.md)",
        default=None,
        group="mirror",
    )
    replication_factor: int | None = option(
        kinds.whole(1, _LARGEST_INT16),
        "replication factor of topics that shoal creates (default: the source topic's, at most the number of "
        "destination brokers)",
        default=None,
        group="mirror",
    )
    refresh_s: float = option(
        kinds.SECONDS,
        "without --once: time between two searches for new topics and partitions",
        default=30.0,
        group="mirror",
        name="refresh",
    )
    max_new_partitions: int = option(
        kinds.whole(0, _MOST_NEW_PARTITIONS),
        "without --once: the most partitions that one search adds at the destination for new topics and "
        "partitions, and a tenth of the most since the start. If the source lists more, none is added, and "
        "that is an incident. A start adds all that --dry-run lists",
        default=1_000,
        group="mirror",
    )
    groups: str | None = groups_option(default=None)
    metrics: Address | None = option(
        kinds.ADDRESS,
        "serve metrics for Prometheus at this address. Port 0 takes a free port",
        default=None,
        group="monitoring",
    )
    metrics_by: MetricsBy = option(
        kinds.choice(MetricsBy),
        "serve the metrics of each partition, or the totals of each topic: for thousands of partitions",
        default=MetricsBy.PARTITION,
        group="monitoring",
    )
    ui: Address | None = option(
        kinds.ADDRESS,
        "serve a status page for browsers at this address. Port 0 takes a free port",
        default=None,
        group="monitoring",
    )
    report: str | None = option(
        replace(kinds.FILE, metavar="FILE.html"),
        "write a report of the run at its end, as one page",
        default=None,
        group="monitoring",
    )
    master: str = option(kinds.text("MASTER"), "any Spark master", default="local[*]", group="Spark")
    checkpoint: str | None = option(
        kinds.DIRECTORY,
        "directory for the mirror's id in its group and for Spark's log. Positions are in the group, not "
        "here (default: by group, under the user's state directory)",
        default=None,
        group="Spark",
    )
    conf: tuple[tuple[str, str], ...] = option(
        kinds.SETTINGS, "a Spark setting. May be repeated", default=(), group="Spark"
    )
    timing: Timing = DEFAULT_TIMING
    ignored: tuple[str, ...] = field(default=(), init=False, compare=False)

    def __post_init__(self) -> None:
        ignored: list[str] = []
        for name in ("source", "destination"):
            config = ClientConfig.given(name, getattr(self, name), ignored.append)
            object.__setattr__(self, name, config)
        object.__setattr__(self, "ignored", tuple(ignored))
        if isinstance(self.topics, str):
            object.__setattr__(self, "topics", TopicSelection(self.topics))
        read_fields(self)
        self._set_window()
        # An archive holds no position: that of a restore is where the records go.
        until_ms = self.until.timestamp_ms if self.until else None
        kept_as = self.topics.destination_of if self.topics.rename else None
        object.__setattr__(self, "source", self.source.kept_by(self.destination, kept_as, until_ms))
        self._check()

    def _set_window(self) -> None:
        """Let ``start``, ``until`` and ``once`` say what ``last`` and ``until`` mean."""
        if self.last is not None:
            if self.until is not None or self.start != Start():
                raise ConfigError(
                    "--last sets where a mirror begins and ends. Remove it, or --start and --until"
                )
            object.__setattr__(self, "start", Start.before_now(self.last))
            object.__setattr__(self, "until", Until())
            object.__setattr__(self, "last", None)
        if self.until is None:
            return
        self.until.check_behind("--start", self.start)
        object.__setattr__(self, "once", True)

    def _check(self) -> None:
        """Check what depends on more than one option."""
        shortest_s = self.timing.shortest_refresh_s
        check_range("--refresh", self.refresh_s, shortest_s, _LONGEST_REFRESH_S, "seconds")
        check_range("--max-in-flight", self.max_in_flight, 1, MOST_IN_FLIGHT)
        if self.metrics is not None and self.metrics == self.ui and self.ui.port != 0:
            raise ConfigError(f"--metrics and --ui are both {self.metrics}. Use different ports")
        self.check_served(metrics=self.metrics, ui=self.ui)
        self._check_ends()
        _ = self.group_selection  # refuses an expression that cannot be compiled
        if self.adopt and self.allows_other_writers:
            raise ConfigError(
                "--adopt and --delivery at-least-once exclude each other: a destination partition with other "
                "writers cannot be compared with the source. Set one of the two"
            )

    def _check_ends(self) -> None:
        """Refuse options that have no meaning for the kind of an end."""
        given = {
            "a directory for --from": self.source.keeper is not None,
            "--segment-bytes": self.segment_bytes != COPY_DEFAULTS.segment_bytes,
            "--segment-seconds": self.segment_s != COPY_DEFAULTS.segment_s,
            "--sync": self.sync,
            "--sync acls": self.has(Follower.ACLS),
            "--from-certificate": self.from_certificate,
            "a message handler": self.handling,
            "--rebatch": self.rebatch,
            "--adopt": self.adopt,
            "keep_append_time": self.keep_append_time,
            "--delivery at-least-once": self.allows_other_writers,
            "isolation.level=read_uncommitted": self.source.isolation_level
            is IsolationLevel.READ_UNCOMMITTED,
        }
        self.source.check_options("--from", given)
        self.destination.check_options("--to", given)

    @property
    def group_selection(self) -> GroupSelection | None:
        """The consumer groups whose offsets follow the records; None for none."""
        return None if self.groups is None else GroupSelection(self.groups)

    def acl_commands(
        self, acls: Iterable[Acl], *, is_own: bool = False, creates: bool | None = None
    ) -> list[str]:
        """
        Return the commands that grant a mirror its ACLs, by prefix if an expression selects its topics.

        Args:
            acls: The ACLs by names.
            is_own: Whether to name the principals by which this process logs in.
            creates: Whether later topics are created; by default if the mirror runs on.

        """
        creates = not self.once if creates is None else creates
        granted = by_prefix(acls, prefixes_of(self.topics), creates=creates)
        return acl_commands(granted, (self.source, self.destination), is_own=is_own)

    def grants(self, *acls: Acl, creates: bool = False) -> str:
        """Return the commands by which an administrator grants ACLs to this process, as a sentence."""
        commands = self.acl_commands(acls, is_own=True, creates=creates)
        return f"As an administrator: {' && '.join(commands)}"

    def group_between(self, source_cluster_id: str | None, destination_cluster_id: str | None) -> str:
        """Return the user's group, or :func:`default_group`, which may raise."""
        return self.group or default_group(source_cluster_id, destination_cluster_id)


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
