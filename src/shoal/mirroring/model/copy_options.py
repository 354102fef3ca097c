"""
Options of copying: a user's (:class:`CopyOptions`), and a task's (:class:`CopySettings`).

Defaults, texts and checks of these options are here alone. The command line, ``shoal.mirror()`` and
``format("shoal")`` call :meth:`CopyOptions.parse` with a user's values. The driver sends the result to its
tasks as JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...client.config import ClientConfig
from ...errors import ConfigError
from ...protocol.produce import MOST_IN_FLIGHT
from ...records import HEADER_SIZE, Codec, Record, RecordBatch, read_records, verify_crc
from ...records.compression import DEFAULT_LIMIT_BYTES
from ...timing import DEFAULT_TIMING, Timing
from .acl_prefixes import by_prefix
from .acls import Acl, grant_command, principal_of
from .first_start import FirstStart
from .incidents import POLICIES, Delivery, IncidentKind
from .option_values import (
    check_range,
    choice_of,
    parse_bytes,
    parse_fields,
    parse_flag,
    parse_whole,
    read_by,
)

__all__ = [
    "COPY_DEFAULTS",
    "DEFAULT_PRODUCER_ID_EXPIRATION_MS",
    "CopyOptions",
    "CopySettings",
    "Handling",
    "Rebatch",
    "all_copy_rules",
    "copy_rules",
]

_MIB = 1024 * 1024

#: Brokers and clients agree on batches of at most 1 MiB by default. A fetch with a smaller buffer still gets
#: one whole batch (KIP-74). Fetch's limits of bytes are int32.
_LEAST_FETCH_BUFFER_BYTES, _MOST_FETCH_BUFFER_BYTES = _MIB, 1024 * _MIB

_LARGEST_INT32 = 2**31 - 1

#: Kafka's default of ``producer.id.expiration.ms``, for brokers that do not report theirs.
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000

#: Less than two headers join nothing. Brokers refuse batches above 1 MiB by default.
_LEAST_REBATCH_BYTES, _MOST_REBATCH_BYTES = 2 * HEADER_SIZE, _MIB


@dataclass(frozen=True, slots=True)
class Rebatch:
    """
    The rule for joining batches into larger ones.

    Attributes:
        below_bytes: The size, header included, below which a batch is joined. Joined batches have at most
            as many bytes.
        codec: The codec of joined batches; None keeps the codec of their parts.
        everything: Whether all batches are decoded and cut again into batches of at most that size, as by a
            consumer and a producer.

    """

    below_bytes: int
    codec: Codec | None = None
    everything: bool = False

    @classmethod
    def parse(cls, option: str, value: object) -> Rebatch:
        """Read ``BYTES`` or ``BYTES:CODEC``, as ``64k:zstd``, or the JSON of a driver."""
        if isinstance(value, Rebatch):
            return value
        if isinstance(value, Mapping):
            codec = value["codec"]
            return cls(value["below_bytes"], None if codec is None else Codec(codec), value["everything"])
        size, colon, name = str(value).partition(":")
        below_bytes = parse_bytes(option, size)
        check_range(option, below_bytes, _LEAST_REBATCH_BYTES, _MOST_REBATCH_BYTES, "bytes")
        if not colon:
            return cls(below_bytes)
        try:
            return cls(below_bytes, Codec[name.upper()])
        except KeyError:
            codecs = ", ".join(each.name.lower() for each in Codec)
            raise ConfigError(f"{option} {value!r}: {name!r} is not one of {codecs}") from None

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        return str(self.below_bytes) + (f":{self.codec.name.lower()}" if self.codec is not None else "")


@dataclass(frozen=True, slots=True)
class Handling:
    """
    A mirror maker's message handler, and the properties of its consumer and producer.

    Attributes:
        handler: ``package.module:Class``; None for the one that changes nothing.
        args: The text that the class receives; None for none.
        raw: Whether the handler receives batches (KIP-712) instead of decoded records.
        repartition: Whether records go to the partition of their keys, as a producer's do.
        consumer: Java's properties of the consumer, without those of the connection.
        producer: Java's properties of the producer, without those of the connection.

    """

    handler: str | None
    args: str | None
    raw: bool
    repartition: bool
    consumer: Mapping[str, str]
    producer: Mapping[str, str]

    @classmethod
    def parse(cls, option: str, value: object) -> Handling:
        """Read the JSON of a driver: users set a handler by the options of ``shoal mirror-maker`` only."""
        if isinstance(value, Handling):
            return value
        if not isinstance(value, Mapping):
            raise ConfigError(f"{option} is for shoal's own tasks. Remove it")
        return cls(**value)


def _parse_continue_after(option: str, value: str | Iterable[str | IncidentKind]) -> frozenset[IncidentKind]:
    names = value.split(",") if isinstance(value, str) else value
    return frozenset(_parse_kind(option, each) for each in names if each)


def _parse_kind(option: str, value: str | IncidentKind) -> IncidentKind:
    if isinstance(value, IncidentKind):
        return value
    for kind in POLICIES:
        if kind.value == value.strip():
            return kind
    kinds = ", ".join(each.value for each in POLICIES)
    raise ConfigError(f"{option}: {value!r} is not one of {kinds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """
    The options of copying, which a user sets.

    Attributes:
        fetch_buffer_bytes: The fetch buffer of a Spark task, its one large allocation.
        adopt: Take over a copy without a committed position if it equals the source.
        delivery: The guarantee for destination partitions.
        continue_after: The kinds of incidents after which a partition continues; the others stop it.
        keep_append_time: Decode batches of LogAppendTime, so that their records get the append time instead
            of their create times.
        max_decompressed_bytes: The maximum size of a decompressed batch.
        multi_batch: Whether one request has several batches of a partition, if the destination's brokers
            accept them.
        rebatch: Which batches are joined into larger ones; None for none.
        max_in_flight: The number of requests in flight on a connection to a broker, 1 to 5.
        takes_over_offsets: Begin at an offset that the group has committed without a position of shoal's,
            such as a consumer's, behind all records of the destination.
        handling: A mirror maker's message handler; None mirrors records as they are.

    """

    fetch_buffer_bytes: int = field(default=16 * _MIB, metadata=read_by(parse_bytes))
    adopt: bool = field(default=False, metadata=read_by(parse_flag))
    delivery: Delivery = field(default=Delivery.EXACTLY_ONCE, metadata=choice_of(Delivery))
    continue_after: frozenset[IncidentKind] = field(
        default=frozenset(), metadata=read_by(_parse_continue_after)
    )
    keep_append_time: bool = field(default=False, metadata=read_by(parse_flag))
    max_decompressed_bytes: int = field(default=DEFAULT_LIMIT_BYTES, metadata=read_by(parse_bytes))
    multi_batch: bool = field(default=True, metadata=read_by(parse_flag))
    rebatch: Rebatch | None = field(default=None, metadata=read_by(Rebatch.parse))
    max_in_flight: int = field(default=MOST_IN_FLIGHT, metadata=read_by(parse_whole))
    takes_over_offsets: bool = field(default=False, metadata=read_by(parse_flag))
    handling: Handling | None = field(default=None, metadata=read_by(Handling.parse))

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> CopyOptions:
        """
        Read and check the options that a user gave, by their fields' names. Other names are ignored.

        Raises:
            ConfigError: A value, or a combination of options, cannot be used.

        """
        options = CopyOptions(**parse_fields(CopyOptions, given))
        options.check()
        return options

    def decode(self, batch: RecordBatch) -> list[Record]:
        """
        Return the records of a batch.

        Raises:
            CorruptBatch: The batch does not parse.
            UnsupportedBatch: Its records expand to more than ``max_decompressed_bytes``, or Kafka has no such
                codec.

        """
        return read_records(batch, self.max_decompressed_bytes)

    def records_to_mirror(self, batch: RecordBatch, start_offset: int) -> list[Record]:
        """
        Return the records of a source batch as they are mirrored, without those before an offset.

        Returns:
            Records with their source offsets. Their timestamps are create times, and append times with
            ``keep_append_time``, or if a message of magic 1 has no other.

        Raises:
            CorruptBatch: The CRC is wrong (a flipped bit must not look like a hole, or another format), or
                the batch does not parse.
            UnsupportedBatch: Its records expand to more than ``max_decompressed_bytes``, or Kafka has no such
                codec.

        """
        verify_crc(batch)
        header = batch.header
        records = self.decode(batch)
        if self.keep_append_time and header.magic == 2 and header.is_log_append_time:
            records = [record._replace(timestamp=header.max_timestamp) for record in records]
        return [record for record in records if record.offset >= start_offset]

    def continues_after(self, kind: IncidentKind) -> bool:
        """Whether a partition continues after an incident of this kind; otherwise it stops."""
        return not self.continue_after.isdisjoint({kind, kind.policy})

    @property
    def allows_other_writers(self) -> bool:
        """Whether other programs may write to the destination partitions (at-least-once delivery)."""
        return self.delivery is Delivery.AT_LEAST_ONCE

    @property
    def tries_multi_batch(self) -> bool:
        """Whether requests have several batches of a partition if the broker accepts them."""
        return self.multi_batch and not self.allows_other_writers

    def check(self) -> None:
        """
        Check values, and options that exclude each other.

        Tests may use smaller values than users, so this is no part of construction.

        Raises:
            ConfigError: A value, or a combination of options, cannot be used.

        """
        check_range(
            "--fetch-buffer-bytes",
            self.fetch_buffer_bytes,
            _LEAST_FETCH_BUFFER_BYTES,
            _MOST_FETCH_BUFFER_BYTES,
            "bytes",
        )
        check_range("--max-decompressed-bytes", self.max_decompressed_bytes, 1, _LARGEST_INT32)
        check_range("--max-in-flight", self.max_in_flight, 1, MOST_IN_FLIGHT)
        if self.adopt and self.allows_other_writers:
            raise ConfigError(
                "--adopt and --delivery at-least-once exclude each other: a destination partition with other "
                "writers cannot be compared with the source. Set one of the two"
            )


#: Each option's default.
COPY_DEFAULTS = CopyOptions()


def copy_rules(source: ClientConfig, options: CopyOptions) -> str:
    """
    Return a digest of everything that decides which records of a partition are copied.

    Each committed position has this digest. A task may continue by other rules, but aligns first. A
    certificate names the rules of its copy. The selection of topics, the start of a new partition and the
    speed are not part of the rules.

    Returns:
        Sixteen hexadecimal digits, the same for the same rules in every version of shoal.

    """
    return _digest(source, keep_append_time=options.keep_append_time)


def all_copy_rules(source: ClientConfig) -> frozenset[str]:
    """Return :func:`copy_rules` of all options that a mirror of this source may have had."""
    return frozenset(_digest(source, keep_append_time=keep) for keep in (False, True))


def _digest(source: ClientConfig, *, keep_append_time: bool) -> str:
    decisive = {"isolation.level": source.isolation_level.name.lower()}
    if keep_append_time:
        decisive["append.time"] = "kept"
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class CopySettings(CopyOptions):
    """
    All settings of a task: the user's options, and the driver's findings.

    Attributes:
        source: How to reach the source cluster. Its isolation level decides whether aborted records are
            copied.
        destination: How to reach the destination cluster.
        group: The consumer group on the source cluster that holds the positions.
        rules: The digest of :func:`copy_rules`, stored in each position.
        producer_id_expiration_ms: The time without a new batch after which the destination's brokers forget
            a producer id (broker configuration ``producer.id.expiration.ms``).
        first_start: The group's first start, stored in each position.
        tries_again: Whether the mirror tries stopped partitions again.
        prefixes: The prefixes of topics that expressions select, and those of their copies.
        timing: How long a task waits. Each cluster has times of its own.

    """

    source: ClientConfig
    destination: ClientConfig
    group: str
    rules: str
    producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS
    first_start: FirstStart | None = None
    tries_again: bool = False
    prefixes: tuple[tuple[str, str], ...] = ()
    timing: Timing = DEFAULT_TIMING

    def remedy_by(self, acl: Acl) -> str:
        """Return what to allow, to which principal, when the mirror tries again, and the command."""
        config = self.source if acl.cluster == "source" else self.destination
        remedy = f"allow {acl.right} to {principal_of(config)}"
        if self.tries_again:
            minutes = self.timing.retry_stopped_s / 60
            remedy += f". The mirror tries again every {minutes:g} minutes, and on SIGUSR1"
        (granted,) = by_prefix([acl], dict(self.prefixes), creates=False)
        return f"{remedy}. As an administrator: {grant_command(granted, config)}"

    @classmethod
    def of(
        cls, options: CopyOptions, source: ClientConfig, destination: ClientConfig, group: str, **found: Any
    ) -> CopySettings:
        """Return the settings of tasks that copy with these options."""
        given = {each.name: getattr(options, each.name) for each in fields(CopyOptions)}
        return cls(source, destination, group, copy_rules(source, options), **given, **found)
