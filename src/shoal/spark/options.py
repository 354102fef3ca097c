"""
Options of ``format("shoal")``: those of Spark's own Kafka connector, and a few of ours.

Parsed where Spark makes the data source (on the driver), into values that travel to the tasks.
An option that is not known is refused: a misspelt one would otherwise do nothing in silence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties

from shoal.client.config import ClientConfig
from shoal.client.offsets import EARLIEST, LATEST
from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import CopyOptions, Handling, MultiBatch, Rebatch
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.incidents import parse_delivery, parse_incident_kind
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.sizes import parse_bytes
from shoal.mirroring.model.topics import TopicSelection
from shoal.records import Codec
from shoal.topic_partition import TopicPartition

__all__ = ["ControlAddress", "ReadOptions", "WriteOptions"]

_LATEST, _EARLIEST = "latest", "earliest"

#: So many fit into the protocol's int64 in any case.
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """
    Where the driver of a mirror listens for its tasks.

    Attributes:
        host: The driver's.
        port: The driver's.
        token: What it wants to hear first.
        locked: Whether it has to be asked for the clusters' credentials.
        key: Opens them, or is the file that has what opens them; not in the option's text, which Spark may
            show.

    """

    host: str
    port: int
    token: str
    locked: bool = False
    key: str | Path = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str | None, key: str | Path = "") -> ControlAddress | None:
        if text is None:
            return None
        host, port, token, *locked = text.split(" ")
        return cls(host, int(port), token, bool(locked), key)

    def __str__(self) -> str:
        return f"{self.host} {self.port} {self.token}" + (" locked" if self.locked else "")


@dataclass(frozen=True, slots=True)
class Offsets:
    """
    Where to begin or to end.

    Attributes:
        timestamp_ms: For all partitions that are not named: a time, ``EARLIEST`` or ``LATEST``.
        named: Offsets, ``EARLIEST`` or ``LATEST`` by partition; None where nothing is named.

    """

    timestamp_ms: int
    named: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """
    What to read, of which cluster.

    Attributes:
        source: The cluster.
        topics: Chosen by ``subscribe`` or ``subscribePattern``; None with ``assign``.
        assigned: Partitions chosen by ``assign``.
        with_bytes: Whether a row holds its batch (``rows=bytes``).
        starting: ``startingOffsets`` or ``startingTimestamp``.
        ending: ``endingOffsets`` or ``endingTimestamp``; of batch reads only.
        lanes: ``minPartitions``: how many tasks share the work.
        max_offsets_per_trigger: Of streams; None for no limit.
        fail_on_data_loss: Whether it is an error that offsets are gone.
        group: The consumer group whose pairs say where to go on; None without one.
        destination: With ``group``: where the pairs lead, so that lanes can be dealt by leaders.
        rename: As ``--rename``.
        takes_over_offsets: See :class:`~shoal.mirroring.model.copy_options.CopyOptions`.
        allow_unauthenticated_spark: See :mod:`shoal.spark.connections`.
        control: Of the mirror's driver.

    """

    source: ClientConfig
    topics: TopicSelection | None
    assigned: tuple[TopicPartition, ...]
    with_bytes: bool
    starting: Offsets
    ending: Offsets
    lanes: int
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    group: str | None
    destination: ClientConfig | None
    rename: str | None
    takes_over_offsets: bool
    allow_unauthenticated_spark: bool
    control: ControlAddress | None

    @property
    def clusters(self) -> tuple[ClientConfig, ...]:
        """The clusters that are entered with these options."""
        return (self.source, self.destination) if self.destination else (self.source,)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool, key: str | Path = "") -> ReadOptions:
        """
        Read the options of ``spark.read`` or ``spark.readStream``; ``key`` is :class:`ControlAddress`'s.

        Raises:
            ConfigError: One is missing, not known or makes no sense; names it.

        """
        left = {name.lower(): value for name, value in options.items()}
        if streaming:
            _no_end(left)
        source = _client("source", left, "kafka.")
        destination = (
            _client("destination", left, "destination.kafka.") if _has(left, "destination.") else None
        )
        topics, assigned = _selection(left)
        parsed = cls(
            source=source,
            destination=destination,
            topics=topics,
            assigned=assigned,
            with_bytes=_choice(left, "rows", "reference", ("reference", "bytes")) == "bytes",
            starting=_offsets(left, "starting", _LATEST if streaming else _EARLIEST),
            ending=_offsets(left, "ending", _LATEST),
            lanes=_integer(left, "minPartitions") or os.cpu_count() or 1,
            max_offsets_per_trigger=_integer(left, "maxOffsetsPerTrigger"),
            fail_on_data_loss=_flag(left, "failOnDataLoss", "true"),
            group=left.pop("group", None),
            rename=left.pop("rename", None),
            takes_over_offsets=_takes_over_offsets(left),
            allow_unauthenticated_spark=_flag(left, "allowUnauthenticatedSpark"),
            control=ControlAddress.parse(left.pop("control", None), key),
        )
        _nothing_left(left)
        return parsed


def _takes_over_offsets(left: dict[str, str]) -> bool:
    return _flag(left, "takesOverOffsets")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """
    Where to write, and what the references refer to.

    Attributes:
        destination: The cluster.
        copy: With references: how to copy; None without a source cluster among the options.
        rename: As ``--rename``: the destination topics' names by the rows' topics.
        allow_gaps: ``allowGaps``: whether offsets may be missing between one row with bytes and the next.
        allow_unauthenticated_spark: See :mod:`shoal.spark.connections`.
        control: Of the mirror's driver.

    """

    destination: ClientConfig
    copy: CopyOptions | None
    rename: str | None
    allow_gaps: bool
    allow_unauthenticated_spark: bool
    control: ControlAddress | None

    @property
    def clusters(self) -> tuple[ClientConfig, ...]:
        """The clusters that are entered with these options."""
        return (self.destination, self.copy.source) if self.copy else (self.destination,)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, key: str | Path = "") -> WriteOptions:
        """
        Read the options of ``df.write`` or ``df.writeStream``; ``key`` is :class:`ControlAddress`'s.

        Raises:
            ConfigError: One is missing, not known or makes no sense; names it.

        """
        left = {name.lower(): value for name, value in options.items()}
        left.pop("path", None)
        left.pop("checkpointlocation", None)
        destination = _client("destination", left, "kafka.")
        source = _client("source", left, "source.kafka.") if _has(left, "source.") else None
        parsed = cls(
            destination=destination,
            copy=_copy_settings(source, destination, left) if source else None,
            rename=left.pop("rename", None),
            allow_gaps=_flag(left, "allowGaps"),
            allow_unauthenticated_spark=_flag(left, "allowUnauthenticatedSpark"),
            control=ControlAddress.parse(left.pop("control", None), key),
        )
        _nothing_left(left)
        return parsed

    def topic_mapping(self) -> TopicSelection:
        """Return the one mapping of topics' names."""
        return TopicSelection(topics="(.*)", rename=self.rename)


def _copy_settings(source: ClientConfig, destination: ClientConfig, left: dict[str, str]) -> CopyOptions:
    if "group" not in left:
        raise ConfigError(
            "option group: name the consumer group on the source cluster that holds the position"
        )
    keep_append_time = _flag(left, "keepAppendTime")
    rules = MirrorOptions(
        source, destination, TopicSelection("(.*)"), keep_append_time=keep_append_time
    ).rules()
    continue_on = [each for each in left.pop("continueon", "").split(",") if each]
    settings = CopyOptions(source, destination, left.pop("group"), rules)
    return CopyOptions(
        source,
        destination,
        settings.group,
        rules,
        fetch_buffer_bytes=parse_bytes(
            "fetchBufferBytes", left.pop("fetchbufferbytes", str(settings.fetch_buffer_bytes))
        ),
        commit_interval_ms=_integer(left, "commitIntervalMs") or settings.commit_interval_ms,
        adopt=_flag(left, "adopt"),
        adopt_from_later=_flag(left, "adoptFromLater"),
        allow_nonempty=_flag(left, "allowNonempty"),
        delivery=parse_delivery("option delivery", left.pop("delivery", settings.delivery.value)),
        continue_on=frozenset(parse_incident_kind("option continueOn", each) for each in continue_on),
        keep_append_time=keep_append_time,
        max_decompressed_bytes=_integer(left, "maxDecompressedBytes") or settings.max_decompressed_bytes,
        multi_batch=MultiBatch(
            _choice(left, "multiBatch", settings.multi_batch.value, tuple(each.value for each in MultiBatch))
        ),
        rebatch=_rebatch(left),
        max_in_flight=_integer(left, "maxInFlight") or settings.max_in_flight,
        takes_over_offsets=_takes_over_offsets(left),
        handling=Handling.from_json(left.pop("handling")) if "handling" in left else None,
        first_start=FirstStart.from_text(left.pop("firststart")) if "firststart" in left else None,
        producer_id_expiration_ms=_integer(left, "producerIdExpirationMs")
        or settings.producer_id_expiration_ms,
    )


def _rebatch(left: dict[str, str]) -> Rebatch | None:
    if "decodeall" in left:
        size, codec = left.pop("decodeall").split(":")
        return Rebatch(int(size), Codec[codec.upper()], everything=True)
    return Rebatch.parse("rebatch", left.pop("rebatch")) if "rebatch" in left else None


def _client(name: str, left: dict[str, str], prefix: str) -> ClientConfig:
    """Take a cluster's properties, behind a prefix; what shoal does not know of them has no effect."""
    properties = {key.removeprefix(prefix): left.pop(key) for key in list(left) if key.startswith(prefix)}
    file = properties.pop("config.file", None)
    if file is not None:
        properties = _read_properties(f"option {prefix}config.file {file}", file) | properties
    config, _ = ClientConfig.from_properties(name, properties, where=f"options {prefix}*")
    return config


def _read_properties(where: str, file: str) -> dict[str, str]:
    """Read what should be no option, since Spark may show options: passwords."""
    try:
        with Path(file).open("rb") as stream:
            return dict(javaproperties.load(stream))
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: no properties file: {error}") from None


def _has(left: Mapping[str, str], prefix: str) -> bool:
    return any(key.startswith(prefix) for key in left)


def _selection(left: dict[str, str]) -> tuple[TopicSelection | None, tuple[TopicPartition, ...]]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in left]
    if len(ways) != 1:
        raise ConfigError("give one of the options subscribe, subscribePattern and assign")
    value = left.pop(ways[0].lower())
    if ways[0] == "assign":
        return None, tuple(sorted(_partitions("assign", value)))
    return TopicSelection(value if ways[0] == "subscribe" else f"({value})"), ()


def _no_end(left: Mapping[str, str]) -> None:
    for option in ("endingOffsets", "endingTimestamp"):
        if option.lower() in left:
            raise ConfigError(f"option {option}: a stream has no end; remove it, or use spark.read")


def _offsets(left: dict[str, str], which: str, default: str) -> Offsets:
    timestamp = _integer(left, f"{which}Timestamp", least=0)
    value = left.pop(f"{which}offsets", default)
    if timestamp is not None:
        return Offsets(timestamp)
    if value.lower() in (_EARLIEST, _LATEST):
        return Offsets(EARLIEST if value.lower() == _EARLIEST else LATEST)
    # As in Spark's connector: partitions that are not named begin early, or end late.
    return Offsets(EARLIEST if which == "starting" else LATEST, _partitions(f"{which}Offsets", value))


def _partitions(option: str, value: str) -> dict[TopicPartition, int]:
    """Read ``{"topic": {"0": 23}}`` as offsets, or ``{"topic": [0, 1]}`` as partitions."""
    try:
        topics = json.loads(value)
        return {
            TopicPartition(topic, int(number)): int(numbers[number])
            if isinstance(numbers, dict)
            else EARLIEST
            for topic, numbers in topics.items()
            for number in numbers
        }
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"option {option}: {value} is not what Spark's Kafka connector takes there"
        ) from None


def _integer(left: dict[str, str], option: str, *, least: int = 1) -> int | None:
    value = left.pop(option.lower(), None)
    if value is None:
        return None
    if not value.isdecimal() or len(value) > _MOST_DIGITS or int(value) < least:
        raise ConfigError(f"option {option}: {value} is no number from {least} to {'9' * _MOST_DIGITS}")
    return int(value)


def _choice(left: dict[str, str], option: str, default: str, choices: tuple[str, ...]) -> str:
    value = left.pop(option.lower(), default).lower()
    if value not in choices:
        raise ConfigError(f"option {option}: {value} is none of {', '.join(choices)}")
    return value


def _flag(left: dict[str, str], option: str, default: str = "false") -> bool:
    return _choice(left, option, default, ("true", "false")) == "true"


def _nothing_left(left: Mapping[str, str]) -> None:
    if left:
        raise ConfigError(f'format("shoal") does not know the option {", ".join(sorted(left))}')
