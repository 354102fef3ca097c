"""
Options of copying: a user's (:class:`CopyOptions`), and a task's (:class:`CopySettings`).

Tasks receive the settings: the options, and what the driver has found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ... import kinds
from ...client.config import ClientConfig, IsolationLevel
from ...declare import option
from ...errors import ConfigError
from ...option_values import check_range, parse_bytes
from ...protocol.produce import MOST_IN_FLIGHT
from ...records import HEADER_SIZE, NO_END, Codec, Record, RecordBatch, read_records, verify_crc
from ...records.compression import DEFAULT_LIMIT_BYTES
from ...timing import DEFAULT_TIMING, Timing
from .acls import Acl, by_prefix, grant_command, principal_of
from .first_start import FirstStart
from .incidents import POLICIES, Delivery, IncidentKind

__all__ = [
    "COPY_DEFAULTS",
    "DEFAULT_PRODUCER_ID_EXPIRATION_MS",
    "CopyOptions",
    "CopySettings",
    "Handling",
    "Rebatch",
    "copy_rules",
    "isolation_level_of",
]

_MIB = 1024 * 1024

#: Brokers and clients agree on batches of at most 1 MiB by default. A fetch with a smaller buffer still gets
#: one whole batch (KIP-74). Fetch's limits of bytes are int32.
_LEAST_FETCH_BUFFER_BYTES, _MOST_FETCH_BUFFER_BYTES = _MIB, 1024 * _MIB

_LARGEST_INT32 = 2**31 - 1

_LEAST_SEGMENT_BYTES, _MOST_SEGMENT_BYTES = _MIB, 1024 * _MIB

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
        """Read ``BYTES`` or ``BYTES:CODEC``, as ``64k:zstd``."""
        if isinstance(value, Rebatch):
            return value
        number, colon, name = str(value).partition(":")
        below_bytes = parse_bytes(option, number)
        check_range(option, below_bytes, _LEAST_REBATCH_BYTES, _MOST_REBATCH_BYTES, "bytes")
        if not colon:
            return cls(below_bytes)
        try:
            return cls(below_bytes, Codec[name.upper()])
        except KeyError:
            codecs = ", ".join(each.name.lower() for each in Codec)
            raise ConfigError(f"{option} {value!r}: {name!r} is not one of {codecs}") from None


@dataclass(frozen=True, slots=True)
class Handling:
    """
    A mirror maker's message handler, and the properties of its consumer and producer.

    Attributes:
        handler: ``package.module:Class``.
        args: The text that the class receives; None for none.
        raw: Whether the handler receives batches (KIP-712) instead of decoded records.
        consumer: Java's properties of the consumer, without those of the connection.
        producer: Java's properties of the producer, without those of the connection.

    """

    handler: str
    args: str | None
    raw: bool
    consumer: Mapping[str, str]
    producer: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class CopyOptions:
    """
    The options of copying, which a user sets.

    Attributes:
        max_decompressed_bytes: The maximum size of a decompressed batch.
        multi_batch: Whether one request has several batches of a partition, if the destination's brokers
            accept them.
        max_in_flight: The number of requests in flight on a connection to a broker, 1 to 5.
        takes_over_offsets: Begin at an offset that the group has committed without a position of shoal's,
            such as a consumer's, behind all records of the destination.
        handling: A mirror maker's message handler; None mirrors records as they are.

    """

    adopt: bool = option(
        kinds.FLAG,
        "take over copies without a committed position, such as those of another group or of MirrorMaker 2: "
        "each is compared with the source as a whole, and the mirror continues behind it. A copy that "
        "differs, or that begins later than the source (but see --continue-after source-retention), stops "
        "its partition, and nothing is written (docs/from-mirrormaker.md)",
        group="mirror",
    )
    fetch_buffer_bytes: int = option(
        kinds.size(_LEAST_FETCH_BUFFER_BYTES, _MOST_FETCH_BUFFER_BYTES),
        "fetch buffer of each Spark task",
        default=16 * _MIB,
        group="mirror",
    )
    rebatch: Rebatch | None = option(
        kinds.text("BYTES[:CODEC]", Rebatch.parse),
        "join consecutive batches below this size into larger ones, as 64k:zstd: they are decoded, and "
        "compressed again with this codec or their own (default: batches stay as they are)",
        default=None,
        group="mirror",
    )
    delivery: Delivery = option(
        kinds.choice(Delivery),
        "at-least-once is for destination partitions with other writers: records may be duplicated after a "
        "failure",
        default=Delivery.EXACTLY_ONCE,
        group="guarantees",
    )
    continue_after: frozenset[IncidentKind] = option(
        kinds.choices(POLICIES),
        "data loss and foreign writes stop a partition. After these kinds it continues, and the mirror "
        "counts the incident and exits with code 4. foreign-records: copy the next records behind those of "
        "another producer. destination-loss: if the destination lost acknowledged records, or its topic was "
        "recreated, mirror again what the source still has. source-reset: if the source lost mirrored "
        "records, or its topic was recreated, mirror its present records behind the earlier ones. "
        "source-retention: skip records that the source deleted before they were mirrored, or does not "
        "send, or that a copy of --adopt never had",
        default=frozenset(),
        group="guarantees",
    )
    keep_append_time: bool = False
    segment_bytes: int = option(
        kinds.size(_LEAST_SEGMENT_BYTES, _MOST_SEGMENT_BYTES),
        "to a directory: a segment is archived once it has so many bytes",
        default=256 * _MIB,
        group="archive",
    )
    segment_s: float = option(
        kinds.seconds(1, 86_400),
        "to a directory: a segment is archived at the latest so long after its first batch. Until then its "
        "records are not archived, and the lag has them",
        default=600.0,
        group="archive",
        name="segment-seconds",
    )
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    multi_batch: bool = True
    max_in_flight: int = MOST_IN_FLIGHT
    takes_over_offsets: bool = False
    handling: Handling | None = None

    def decode(self, batch: RecordBatch) -> list[Record]:
        """
        Return the records of a batch.

        Raises:
            CorruptBatch: The batch does not parse.
            UnsupportedBatch: Its records expand to more than ``max_decompressed_bytes``, or Kafka has no such
                codec.

        """
        return read_records(batch, self.max_decompressed_bytes)

    def records_to_mirror(
        self, batch: RecordBatch, start_offset: int, end_offset: int = NO_END
    ) -> list[Record]:
        """
        Return the records of a source batch as they are mirrored, from an offset on, and before another.

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
        append_time, records = batch.header.append_time, self.decode(batch)
        if self.keep_append_time and append_time is not None:
            records = [record._replace(timestamp=append_time) for record in records]
        return [record for record in records if start_offset <= record.offset < end_offset]

    @property
    def joining(self) -> Rebatch:
        """The rule for joining batches; without ``--rebatch`` no batch is small enough."""
        return self.rebatch or Rebatch(0)

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


#: Each option's default.
COPY_DEFAULTS = CopyOptions()


def copy_rules(source: ClientConfig) -> str:
    """
    Return a digest of what decides which records of a partition are copied: the isolation level.

    Each committed position has this digest. A task may continue by other rules, but aligns first. A
    certificate names the rules of its copy. The selection of topics, the start of a new partition and the
    speed are not part of the rules.

    Returns:
        Sixteen hexadecimal digits, the same for the same rules in every version of shoal.

    """
    return _RULES[source.isolation_level]


def isolation_level_of(rules: str) -> IsolationLevel | None:
    """Return the isolation level of :func:`copy_rules`; None if they are not of this version."""
    return next((level for level, known in _RULES.items() if known == rules), None)


_RULES = {
    level: hashlib.sha256(json.dumps({"isolation.level": level.name.lower()}).encode()).hexdigest()[:16]
    for level in IsolationLevel
}


@dataclass(frozen=True)
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
        return cls(source, destination, group, copy_rules(source), **(given | found))
