"""What a task has to know to copy; travels from the driver to the tasks."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ...client.config import ClientConfig
from ...errors import ConfigError
from ...records import HEADER_SIZE, Codec
from .first_start import FirstStart
from .incidents import Delivery, IncidentKind
from .sizes import parse_bytes

__all__ = ["DEFAULT_MAX_DECOMPRESSED_BYTES", "CopyOptions", "Handling", "MultiBatch", "Rebatch"]

#: Batches are of 1 MiB as brokers come, and few shrink to less than a fiftieth.
DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024


#: With less than two headers nothing is joined; with more than brokers take as they come it is cut again.
_LEAST_REBATCH_BYTES = 2 * HEADER_SIZE
_MOST_REBATCH_BYTES = 1024 * 1024


class MultiBatch(enum.Enum):
    """Whether several batches of a partition go into one Produce request; the value is the option's."""

    AUTO = "auto"
    OFF = "off"
    REQUIRED = "required"

    @classmethod
    def parse(cls, option: str, text: str) -> MultiBatch:
        """
        Raises:
            ConfigError: It is none of the three; names the option.
        """
        try:
            return cls(text)
        except ValueError:
            choices = ", ".join(each.value for each in cls)
            raise ConfigError(f"{option} {text}: none of {choices}") from None


@dataclass(frozen=True, slots=True)
class Rebatch:
    """
    Which batches are joined into larger ones.

    Attributes:
        below_bytes: Those that are smaller, as they come, header included; so many bytes of them make one.
        codec: What all of them are compressed with; None for what those have that are joined.
        everything: Whether all batches are decoded and cut anew, into ones of at most that size, as
            by a consumer and a producer: nothing goes out as it came.

    """

    below_bytes: int
    codec: Codec | None = None
    everything: bool = False

    @classmethod
    def parse(cls, option: str, text: str) -> Rebatch:
        """
        Read ``BYTES`` or ``BYTES:CODEC``, as ``64k:zstd``.

        Raises:
            ConfigError: It is neither; names the option.

        """
        size, colon, codec = text.partition(":")
        below_bytes = parse_bytes(option, size)
        if not _LEAST_REBATCH_BYTES <= below_bytes <= _MOST_REBATCH_BYTES:
            raise ConfigError(
                f"--{option} {text}: not between {_LEAST_REBATCH_BYTES} and {_MOST_REBATCH_BYTES} bytes"
            )
        if not colon:
            return cls(below_bytes)
        try:
            return cls(below_bytes, Codec[codec.upper()])
        except KeyError:
            choices = ", ".join(each.name.lower() for each in Codec)
            raise ConfigError(f"--{option} {text}: no codec; there are {choices}") from None

    def __str__(self) -> str:
        """Return what :meth:`parse` reads."""
        return str(self.below_bytes) + (f":{self.codec.name.lower()}" if self.codec is not None else "")


@dataclass(frozen=True, slots=True)
class Handling:
    """
    What becomes of records or batches between consumer and producer (a mirror maker's message handler).

    Attributes:
        handler: ``package.module:Class``; None for the one that changes nothing.
        args: The text that the class is given; None for none.
        raw: Whether it sees batches (KIP-712), and not decoded records.
        repartition: Whether records go where their keys lead, as a producer's do.
        consumer: Java's properties of the consumer, but for those of the connection.
        producer: Likewise of the producer.

    """

    handler: str | None
    args: str | None
    raw: bool
    repartition: bool
    consumer: Mapping[str, str]
    producer: Mapping[str, str]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Handling:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """
    Attributes:
        source: How to reach the source cluster; its isolation level decides
            what is copied of transactions.
        destination: How to reach the destination cluster.
        group: The consumer group on the source cluster that holds the pairs.
        rules: A digest of what decides what is copied; stored in the pairs.
        fetch_buffer_bytes: The one big allocation of a task.
        commit_interval_ms: How often a task commits what was acknowledged.
        adopt: Take over a copy without a committed pair that is the same as the
            source.
        adopt_from_later: Take it over also if the source has records before its
            first one.
        allow_nonempty: Begin in a destination partition that holds records
            which are not the source's.
        producer_id_expiration_ms: After this long without a newer batch the
            destination's brokers forget a producer id (broker configuration
            ``producer.id.expiration.ms``).
        delivery: What is promised of the destination partitions.
        continue_on: The kinds of incidents after which a partition goes on;
            the others stop it.
        keep_append_time: Decode batches of LogAppendTime, so that their
            records get the append time instead of their create times.
        max_decompressed_bytes: How large a batch that has to be decoded may
            become.
        multi_batch: Whether several batches of a partition go into one
            request, where the destination's brokers take them.
        rebatch: Which batches are joined into larger ones; None for none.
        max_in_flight: How many requests may be in flight on a connection to a
            broker, 1 to 5: it remembers the last 5 batches of a producer id
            (ProducerStateEntry), and more could not be recognised when they
            are sent again.
        takes_over_offsets: Begin at an offset that the group has committed
            without a pair, as by a consumer, behind whatever the destination
            holds; and go on by other rules than before, where nothing was
            written since the pair.
        handling: What becomes of records or batches on their way; None for
            nothing: they are mirrored as they are.
        first_start: What positions are to remember of the group's first start.
    """

    source: ClientConfig
    destination: ClientConfig
    group: str
    rules: str
    fetch_buffer_bytes: int = 16 * 1024 * 1024
    commit_interval_ms: int = 5_000
    adopt: bool = False
    adopt_from_later: bool = False
    allow_nonempty: bool = False
    producer_id_expiration_ms: int = 86_400_000
    delivery: Delivery = Delivery.EXACTLY_ONCE
    continue_on: frozenset[IncidentKind] = frozenset()
    keep_append_time: bool = False
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    multi_batch: MultiBatch = MultiBatch.AUTO
    rebatch: Rebatch | None = None
    max_in_flight: int = 5
    takes_over_offsets: bool = False
    handling: Handling | None = None
    first_start: FirstStart | None = None
