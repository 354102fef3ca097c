"""
Options of ``format("shoal")``: those of Spark's own Kafka connector, and a few more.

Spark's driver parses them once, and sends the values to the tasks. An unknown option is an error, since a
misspelt one would have no effect.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.archive.urls import is_directory_url
from shoal.client.config import ClientConfig, read_servers
from shoal.client.offsets import EARLIEST, LATEST
from shoal.errors import ConfigError
from shoal.mirroring.model.topics import TopicSelection
from shoal.option_values import check_range, parse_choice, parse_flag, parse_whole
from shoal.properties_file import read_properties_file
from shoal.spark.rows import RowKind
from shoal.topic_partition import TopicPartition

__all__ = ["OffsetBound", "ReadOptions", "WriteOptions", "row_kind"]

_LATEST, _EARLIEST = "latest", "earliest"


_LARGEST_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """
    The offsets at which reading starts or ends.

    Attributes:
        timestamp_ms: A time, ``EARLIEST`` or ``LATEST``, for all partitions without an offset of their own.
        named: Offsets, ``EARLIEST`` or ``LATEST`` by partition; None without any.

    """

    timestamp_ms: int
    named: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """
    Options of ``spark.read`` and ``spark.readStream``.

    Attributes:
        source: The cluster or archive to read.
        topics: The topics of ``subscribe`` or ``subscribePattern``; None with ``assign``.
        assigned: The partitions of ``assign``.
        rows: The meaning of a row.
        starting: ``startingOffsets`` or ``startingTimestamp``.
        ending: ``endingOffsets`` or ``endingTimestamp``; of batch reads only.
        tasks: ``minPartitions``: the number of tasks.
        max_offsets_per_trigger: The limit of a stream's micro-batch; None for no limit.
        fail_on_data_loss: Whether deleted offsets are an error.

    """

    source: ClientConfig
    topics: TopicSelection | None
    assigned: tuple[TopicPartition, ...]
    rows: RowKind
    starting: OffsetBound
    ending: OffsetBound
    tasks: int
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """
        Read the options.

        Raises:
            ConfigError: An option is missing, unknown or unusable.

        """
        left = {name.lower(): value for name, value in options.items()}
        rows = row_kind(left.pop("rows", None))
        if streaming:
            _no_end(left)
        has_path = _take_path(left)
        source = _client("source", left, "kafka.")
        topics, assigned = _selection(left, may_be_all=has_path)
        parsed = cls(
            source=source,
            topics=topics,
            assigned=assigned,
            rows=rows,
            starting=_offsets(left, "starting", _LATEST if streaming else _EARLIEST),
            ending=_offsets(left, "ending", _LATEST),
            tasks=_integer(left, "minPartitions") or os.cpu_count() or 1,
            max_offsets_per_trigger=_integer(left, "maxOffsetsPerTrigger"),
            fail_on_data_loss=_flag(left, "failOnDataLoss", "true"),
        )
        _nothing_left(left)
        return parsed


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """
    Options of ``df.write`` and ``df.writeStream``.

    Attributes:
        destination: The cluster to write to.
        names: By the option ``rename``, the destination topics' names of the rows' topics.
        allow_gaps: ``allowGaps``: whether offsets may be missing between one row with bytes and the next.

    """

    destination: ClientConfig
    names: TopicSelection
    allow_gaps: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """
        Read the options.

        Raises:
            ConfigError: An option is missing, unknown or unusable.

        """
        left = {name.lower(): value for name, value in options.items()}
        left.pop("path", None)
        left.pop("checkpointlocation", None)
        destination = _client("destination", left, "kafka.")
        parsed = cls(
            destination=destination,
            names=TopicSelection(".*", rename=left.pop("rename", None)),
            allow_gaps=_flag(left, "allowGaps"),
        )
        _nothing_left(left)
        return parsed


def _client(name: str, left: dict[str, str], prefix: str) -> ClientConfig:
    """Take the properties of a cluster, which have a prefix. Unknown ones have no effect."""
    properties = {key.removeprefix(prefix): left.pop(key) for key in list(left) if key.startswith(prefix)}
    file = properties.pop("config.file", None)
    if file is not None:
        # Secrets belong into a file: Spark may show options.
        properties = read_properties_file(f"option {prefix}config.file", file) | properties
    config, _ = ClientConfig.from_properties(name, properties, where=f"options {prefix}*")
    return config


def _take_path(left: dict[str, str]) -> bool:
    """Take the argument of ``load``, if there is one: an archive in place of the servers of a cluster."""
    path = left.pop("path", None)
    if path is None:
        return False
    if "kafka.bootstrap.servers" in left:
        raise ConfigError(
            "option path (the argument of load) and option kafka.bootstrap.servers name two sources. Remove "
            "one of them"
        )
    servers = left["kafka.bootstrap.servers"] = path if is_directory_url(path) else f"./{path}"
    read_servers("option path", servers)
    return True


def _selection(
    left: dict[str, str], *, may_be_all: bool
) -> tuple[TopicSelection | None, tuple[TopicPartition, ...]]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in left]
    if may_be_all and not ways:
        return TopicSelection(".*"), ()
    if len(ways) != 1:
        raise ConfigError("set exactly one of the options subscribe, subscribePattern and assign")
    value = left.pop(ways[0].lower())
    if ways[0] == "assign":
        return None, tuple(sorted(_partitions("assign", value)))
    try:
        return TopicSelection(value if ways[0] == "subscribe" else f"({value})"), ()
    except ConfigError as error:
        raise ConfigError(str(error).replace("--topics", f"option {ways[0]}", 1)) from None


def _no_end(left: Mapping[str, str]) -> None:
    for option in ("endingOffsets", "endingTimestamp"):
        if option.lower() in left:
            raise ConfigError(f"option {option}: a stream has no end. Remove the option, or use spark.read")


def _offsets(left: dict[str, str], which: str, default: str) -> OffsetBound:
    timestamp = _integer(left, f"{which}Timestamp", least=0)
    value = left.pop(f"{which}offsets", default)
    if timestamp is not None:
        return OffsetBound(timestamp)
    if value.lower() in (_EARLIEST, _LATEST):
        return OffsetBound(EARLIEST if value.lower() == _EARLIEST else LATEST)
    # As in Spark's connector: other partitions start at their earliest offset, or end at their latest.
    return OffsetBound(EARLIEST if which == "starting" else LATEST, _partitions(f"{which}Offsets", value))


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
            f"option {option}: {value!r} is not a value that Spark's Kafka connector accepts"
        ) from None


def _integer(left: dict[str, str], option: str, *, least: int = 1) -> int | None:
    if option.lower() not in left:
        return None
    value = parse_whole(f"option {option}", left.pop(option.lower()))
    check_range(f"option {option}", value, least, _LARGEST_INT64)
    return value


def _flag(left: dict[str, str], option: str, default: str = "false") -> bool:
    return parse_flag(f"option {option}", left.pop(option.lower(), default))


def row_kind(value: str | None) -> RowKind:
    """
    Return the kind of rows for the option's value; by default with bytes.

    Raises:
        ConfigError: There is no such kind.

    """
    return parse_choice("option rows", value or RowKind.BYTES, RowKind)


def _nothing_left(left: Mapping[str, str]) -> None:
    if left:
        raise ConfigError(f'format("shoal") has no option {", ".join(sorted(left))}')
