"""
Every option of one mirror.

The command line, ``shoal.mirror(...)`` and Spark's data source parse theirs
into a :class:`MirrorOptions`, once; nothing below them sees a string.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from ...client.config import ClientConfig
from ...client.offsets import EARLIEST, LATEST
from ...errors import ConfigError
from ...net.address import Address, parse_bootstrap
from .copy_options import DEFAULT_MAX_DECOMPRESSED_BYTES, Handling, MultiBatch, Rebatch
from .http_access import OPEN, HttpAccess
from .incidents import Delivery, IncidentKind
from .topics import TopicSelection

__all__ = [
    "DEFAULT_COMMIT_INTERVAL_MS",
    "DEFAULT_FETCH_BUFFER_BYTES",
    "DEFAULT_MASTER",
    "DEFAULT_REFRESH_S",
    "DEFAULT_RETRY_STOPPED_S",
    "DEFAULT_SLICE_S",
    "MirrorOptions",
    "Start",
    "checkpoint_name",
    "default_group",
    "parse_listen",
]

DEFAULT_FETCH_BUFFER_BYTES = 16 * 1024 * 1024
DEFAULT_COMMIT_INTERVAL_MS = 5_000
DEFAULT_SLICE_S = 15.0
DEFAULT_REFRESH_S = 30.0
DEFAULT_RETRY_STOPPED_S = 300.0
DEFAULT_MASTER = "local[*]"

#: A batch larger than this cannot come: brokers and clients agree on 1 MiB
#: unless told otherwise. A fetch that gets less still gets one batch (KIP-74).
_LEAST_FETCH_BUFFER_BYTES = 1024 * 1024
#: Fetch's limits of bytes are int32s.
_LARGEST_FETCH_BUFFER_BYTES = 1024 * 1024 * 1024

_LARGEST_INT32 = 2**31 - 1

#: Below, Spark's own work for a slice would be most of it.
_SHORTEST_SLICE_S = 1
#: What a slice began with, above all who leads a partition, is looked at again in the next.
_LONGEST_SLICE_S = 3600
_SHORTEST_REFRESH_S = 1
_LONGEST_REFRESH_S = 86_400
#: An attempt ends the slice under way: partitions that are stopped must not hold up the others.
_SHORTEST_RETRY_STOPPED_S = 10

#: 9999-12-31T23:59:59.999Z, which is also the last that ISO-8601 can say.
_LAST_TIMESTAMP_MS = 253_402_300_799_999

#: A number with more digits is none of ours; Python itself refuses to read one of thousands.
_MOST_DIGITS = 18

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Most file systems allow 255 bytes; what stands after a name (".crc", ".tmp") needs room too.
_LONGEST_FILE_NAME = 200


@dataclass(frozen=True, slots=True)
class Start:
    """
    Where a partition begins that has no committed pair.

    Attributes:
        timestamp_ms: The first record at or after it; or ListOffsets'
            ``EARLIEST`` or ``LATEST``.

    """

    timestamp_ms: int = EARLIEST

    @classmethod
    def parse(cls, text: str) -> Start:
        """
        Read ``earliest``, ``latest``, milliseconds since 1970, or an ISO-8601 time.

        A time without an offset is UTC, as in ``kafka-consumer-groups --to-datetime``.

        Raises:
            ConfigError: It is none of these.

        """
        if text.lower() in _NAMED_STARTS:
            return cls(_NAMED_STARTS[text.lower()])
        timestamp_ms = _milliseconds(text)
        if timestamp_ms is None:
            raise ConfigError(
                f"--start {text}: neither earliest nor latest nor a time from 1970 to 9999 "
                "(milliseconds since 1970, or as in 2026-01-31T12:00:00Z)"
            )
        return cls(timestamp_ms)

    def __str__(self) -> str:
        """Return what :meth:`parse` reads."""
        names = {timestamp_ms: name for name, timestamp_ms in _NAMED_STARTS.items()}
        return names.get(self.timestamp_ms, str(self.timestamp_ms))


_NAMED_STARTS = {"earliest": EARLIEST, "latest": LATEST}


def _milliseconds(text: str) -> int | None:
    """Read a time from 1970 to 9999; None where the text is no such time."""
    if text.isdecimal():
        timestamp_ms = int(text) if len(text) <= _MOST_DIGITS else -1
    else:
        try:
            timestamp_ms = (_in_utc(datetime.fromisoformat(text)) - _EPOCH) // timedelta(milliseconds=1)
        except ValueError:
            return None
    return timestamp_ms if 0 <= timestamp_ms <= _LAST_TIMESTAMP_MS else None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """
    Attributes:
        source: How to reach the cluster to read from.
        destination: How to reach the cluster to write to.
        topics: Which topics, and their names at the destination.
        group: The consumer group on the source cluster that holds the
            position; None for :func:`default_group`.
        once: Copy up to the end offsets seen at the start, then end.
        start: For partitions without a committed pair.
        replication_factor: Of topics that are created; None for the source's,
            or what the destination can hold.
        fetch_buffer_bytes: Of each lane: one Spark task at work.
        commit_interval_ms: Between two commits of a partition's position.
        slice_s: Without ``once``: how long a micro-batch copies before
            positions are dealt anew.
        refresh_s: Without ``once``: between two looks for new topics and
            partitions.
        retry_stopped_s: Without ``once``: between two attempts of a stopped
            partition whose reason can heal; 0 for none.
        adopt: Take over copies without a committed pair that are the same as
            the source, whoever made them.
        adopt_from_later: Take them over also if the source has records before
            their first ones.
        allow_nonempty: Also copy into a destination partition that holds
            records which are not the source's, without a committed pair.
        delivery: What is promised of the destination partitions.
        continue_on: The kinds of incidents after which a partition goes on.
        keep_append_time: Decode batches of LogAppendTime, so that their
            records get the append time instead of their create times.
        max_decompressed_bytes: How large a batch that has to be decoded may
            become.
        multi_batch: Whether several batches of a partition go into one
            request, where the destination's brokers take them.
        rebatch: Which batches are joined into larger ones; None for none.
        max_in_flight: How many requests may be in flight to a broker, 1 to 5.
        takes_over_offsets: Begin where a consumer of the group was; see
            :class:`~shoal.mirroring.model.copy_options.CopyOptions`.
        handling: What becomes of records or batches on their way; None for nothing.
        metrics: Where Prometheus is answered; None for nowhere.
        ui: Where browsers are; None for nowhere.
        report: The file that a report of the run is written to at its end.
        master: Spark's.
        checkpoint: Spark's checkpoint directory; None for one by group, under
            the user's state directory.
        spark_conf: Pairs of a name and a value.
        http: Which requests metrics and page answer.
        allow_unauthenticated_spark: Send credentials to tasks also if Spark does not authenticate or encrypt.

    """

    source: ClientConfig
    destination: ClientConfig
    topics: TopicSelection
    group: str | None = None
    once: bool = False
    start: Start = Start()
    replication_factor: int | None = None
    fetch_buffer_bytes: int = DEFAULT_FETCH_BUFFER_BYTES
    commit_interval_ms: int = DEFAULT_COMMIT_INTERVAL_MS
    slice_s: float = DEFAULT_SLICE_S
    refresh_s: float = DEFAULT_REFRESH_S
    retry_stopped_s: float = DEFAULT_RETRY_STOPPED_S
    adopt: bool = False
    adopt_from_later: bool = False
    allow_nonempty: bool = False
    delivery: Delivery = Delivery.EXACTLY_ONCE
    continue_on: frozenset[IncidentKind] = frozenset()
    keep_append_time: bool = False
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    multi_batch: MultiBatch = MultiBatch.AUTO
    rebatch: Rebatch | None = None
    max_in_flight: int = 5
    takes_over_offsets: bool = False
    handling: Handling | None = None
    metrics: Address | None = None
    ui: Address | None = None
    report: str | None = None
    master: str = DEFAULT_MASTER
    checkpoint: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    http: HttpAccess = OPEN
    allow_unauthenticated_spark: bool = False

    def __post_init__(self) -> None:
        if self.group == "":
            raise ConfigError("--group: the name of a group cannot be empty")
        if self.replication_factor is not None and not 0 < self.replication_factor < 2**15:
            raise ConfigError(f"--replication-factor {self.replication_factor}: not between 1 and 32767")
        if self.fetch_buffer_bytes < _LEAST_FETCH_BUFFER_BYTES:
            raise ConfigError(
                f"--fetch-buffer-bytes {self.fetch_buffer_bytes}: less than {_LEAST_FETCH_BUFFER_BYTES}, "
                "which one batch may need"
            )
        if self.fetch_buffer_bytes > _LARGEST_FETCH_BUFFER_BYTES:
            raise ConfigError(
                f"--fetch-buffer-bytes {self.fetch_buffer_bytes}: more than {_LARGEST_FETCH_BUFFER_BYTES}, "
                "the most that is fetched at once"
            )
        if not 0 < self.commit_interval_ms <= _LARGEST_INT32:
            raise ConfigError(
                f"--commit-interval-ms {self.commit_interval_ms}: not between 1 and {_LARGEST_INT32}"
            )
        if not 0 < self.max_decompressed_bytes <= _LARGEST_INT32:
            raise ConfigError(
                f"--max-decompressed-bytes {self.max_decompressed_bytes}: not between 1 and {_LARGEST_INT32}"
            )
        # Written so that not-a-number is refused as well.
        if not _SHORTEST_SLICE_S <= self.slice_s <= _LONGEST_SLICE_S:
            raise ConfigError(
                f"--slice {self.slice_s:g}: not between {_SHORTEST_SLICE_S} and {_LONGEST_SLICE_S} seconds"
            )
        if not _SHORTEST_REFRESH_S <= self.refresh_s <= _LONGEST_REFRESH_S:
            raise ConfigError(
                f"--refresh {self.refresh_s:g}: not between {_SHORTEST_REFRESH_S} and {_LONGEST_REFRESH_S} "
                "seconds"
            )
        if self.retry_stopped_s and not (
            _SHORTEST_RETRY_STOPPED_S <= self.retry_stopped_s <= _LONGEST_REFRESH_S
        ):
            raise ConfigError(
                f"--retry-stopped: {self.retry_stopped_s:g} is neither 0 nor between "
                f"{_SHORTEST_RETRY_STOPPED_S} and {_LONGEST_REFRESH_S} seconds"
            )
        if self.multi_batch is MultiBatch.REQUIRED and self.delivery is Delivery.AT_LEAST_ONCE:
            raise ConfigError(
                "--multi-batch required: brokers that take several batches in a request take them at the "
                "log's end from one writer alone, and --delivery at-least-once is for several; give "
                "--multi-batch auto"
            )
        if self.adopt_from_later and not self.adopt:
            raise ConfigError(
                "--adopt-from-later: says which copies --adopt takes over, and --adopt is not given; give "
                "both"
            )
        if self.adopt and self.allow_nonempty:
            raise ConfigError(
                "--adopt and --allow-nonempty: the one stops at a copy that is not the same as the source, "
                "and the other copies behind it; give one of the two"
            )
        if self.adopt and self.delivery is Delivery.AT_LEAST_ONCE:
            raise ConfigError(
                "--adopt and --delivery at-least-once: a destination partition that may have other writers "
                "is no copy that could be compared; give one of the two"
            )
        if self.metrics is not None and self.metrics == self.ui and self.ui.port != 0:
            raise ConfigError(f"--metrics and --ui are both {self.ui}; give them different ports")
        if self.report == "":
            raise ConfigError("--report: the name of a file cannot be empty")
        for name, _ in self.spark_conf:
            if not name.startswith("spark."):
                raise ConfigError(f"--conf {name}: no Spark setting; their names begin with spark.")

    def rules(self) -> str:
        """
        Return a digest of everything that decides what is copied of a partition.

        It is stored in each committed pair, and a mirror with other rules
        refuses to go on from there: a resumed position is found by walking
        the source with the same decisions. Which topics are selected, where
        a new partition starts and how fast it goes do not belong here.

        Returns:
            Sixteen hexadecimal digits. The same for the same rules in every
            version of shoal that decides alike.

        """
        decisive = {"isolation.level": self.source.isolation_level.name.lower()}
        if self.keep_append_time:
            decisive["append.time"] = "kept"
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def group_between(self, source_cluster_id: str | None, destination_cluster_id: str | None) -> str:
        """Return the group that was given, else :func:`default_group`, which may raise."""
        return self.group or default_group(source_cluster_id, destination_cluster_id)


def default_group(source_cluster_id: str | None, destination_cluster_id: str | None) -> str:
    """
    Return the group of a mirror that was not given one.

    Raises:
        ConfigError: A cluster is too old to have an id (before Kafka 0.10.1).

    """
    if not source_cluster_id or not destination_cluster_id:
        side = "destination" if source_cluster_id else "source"
        raise ConfigError(
            f"the {side} cluster has no id to make the group's name from; name one with --group"
        )
    return f"shoal.{source_cluster_id}.{destination_cluster_id}"


def checkpoint_name(group: str) -> str:
    """
    Return the name of the directory that holds a group's checkpoint.

    Args:
        group: Any name that is not empty.

    Returns:
        One safe component of a path, different for each group: the group's name, percent-encoded where
        it has to be, and cut in favour of a digest where it would be too long.

    """
    name = quote(group.encode(errors="surrogateescape"), safe="")
    if name in (".", ".."):
        return name.replace(".", "%2E")
    if len(name) <= _LONGEST_FILE_NAME:
        return name
    # No quoted name has a plus sign, so none can be taken for a cut one.
    digest = "+" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return name[: _LONGEST_FILE_NAME - len(digest)] + digest


def parse_listen(option: str, text: str) -> Address:
    """
    Read where a server is to listen: ``HOST:PORT``; port 0 takes a free one.

    Raises:
        ConfigError: It is none; names the option.

    """
    host, _, port = text.rpartition(":")
    if text.startswith(":") and not host:
        port = text if len(text) > 1 else ":PORT"
        raise ConfigError(
            f"--{option} {text!r}: the host is missing. Use 127.0.0.1{port} to listen locally, or "
            f"0.0.0.0{port} on all interfaces"  # noqa: S104 (says it, binds nothing)
        )
    try:
        # What clients connect to has no port 0; for a server it means something.
        (address,) = parse_bootstrap(f"{host}:1" if port == "0" else text)
    except ValueError:
        raise ConfigError(f"--{option} {text}: not HOST:PORT, as 127.0.0.1:9100 or [::1]:9100") from None
    return Address(address.host, 0) if port == "0" else address
