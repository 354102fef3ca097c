"""The batches and records in a broker's log, from the output of Kafka's own DumpLogSegments."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rig.jars import tool_command

__all__ = [
    "DumpFailed",
    "DumpedBatch",
    "DumpedRecord",
    "dump_partition",
    "dump_partitions",
]

_DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"

_FIELD = re.compile(r"(\w+): (\S+)")
_HORIZON = re.compile(r"deleteHorizonMs: OptionalLong\[(\d+)\]")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime", "NoTimestampType")


class DumpFailed(Exception):
    """DumpLogSegments ended with an error; the text has its output."""


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record inside a batch, or message inside a wrapper.

    Attributes:
        timestamp: Milliseconds since 1970, -1 for none.
        is_valid: Whether the message's own CRC is right (magic 0 and 1); True for magic 2.
    """

    offset: int
    timestamp_type: str
    timestamp: int
    is_valid: bool


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One batch as DumpLogSegments shows it.

    A message of magic 0 or 1, or a wrapper of such messages, also counts as a batch. It has only its last
    offset; base offset, count, sequences, producer and leader epoch are -1.

    Attributes:
        delete_horizon_ms: Time from which the cleaner may drop its tombstones; None if it is not set.
        position: Start in its segment file, in bytes.
        max_timestamp: Milliseconds since 1970.
        size: Whole batch, with the 12 bytes of offset and length.
        codec: none, gzip, snappy, lz4 or zstd.
        is_valid: Whether the CRC is right.
        records: The records in it; empty unless the dump was deep.
    """

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    codec: str
    crc: int
    is_valid: bool
    records: tuple[DumpedRecord, ...] = ()

    @property
    def has_holes(self) -> bool:
        """Whether the batch has records, but fewer than offsets."""
        return 0 < self.count <= self.last_offset - self.base_offset


def dump_partition(directory: Path, deep: bool = False) -> list[DumpedBatch]:
    """Return the batches of all segments of one partition; see `dump_partitions`."""
    return dump_partitions([directory], deep)[directory]


def dump_partitions(directories: Sequence[Path], deep: bool = False) -> dict[Path, list[DumpedBatch]]:
    """Return the batches of all segments of partitions, in offset order, by one run of the tool.

    Args:
        directories: Directories as of `KafkaCluster.partition_dir`. If the broker is running, the dump
            has all batches that it wrote to the file, even those that it has not synced to disk.
        deep: Decode the records too.

    Raises:
        DumpFailed: DumpLogSegments could not read them.
    """
    segments = [segment for directory in directories for segment in sorted(directory.glob("*.log"))]
    options = [*["--deep-iteration"] * deep, "--files", _joined(segments)]
    result = subprocess.run(
        [*tool_command(_DUMP_LOG_SEGMENTS), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0 or not segments:
        raise DumpFailed(
            f"DumpLogSegments of {_joined(directories)}:\n{result.stdout[-2000:]}\n{result.stderr}"
        )
    found: dict[Path, list[DumpedBatch]] = {directory: [] for directory in directories}
    for text in re.split(r"^Dumping ", result.stdout, flags=re.MULTILINE)[1:]:
        segment, _, lines = text.partition("\n")
        found[Path(segment).parent] += _batches(lines.splitlines())
    return found


def _joined(paths: Sequence[Path]) -> str:
    return ",".join(map(str, paths))


def _batches(lines: Sequence[str]) -> list[DumpedBatch]:
    """Read the lines of batches, each followed by those of its records."""
    found: list[DumpedBatch] = []
    heads = [n for n, line in enumerate(lines) if line.startswith(("baseOffset:", "offset:"))]
    for head, following in pairwise([*heads, len(lines)]):
        records = [_record(line) for line in lines[head + 1 : following] if line.startswith("| offset:")]
        found.append(_batch(lines[head], tuple(records)))
    return found


def _batch(line: str, records: tuple[DumpedRecord, ...]) -> DumpedBatch:
    field = dict(_FIELD.findall(line))
    horizon = _HORIZON.search(line)
    return DumpedBatch(
        base_offset=int(field.get("baseOffset", -1)),
        last_offset=int(field["lastOffset"] if "lastOffset" in field else field["offset"]),
        count=int(field.get("count", -1)),
        base_sequence=int(field.get("baseSequence", -1)),
        last_sequence=int(field.get("lastSequence", -1)),
        producer_id=int(field.get("producerId", -1)),
        producer_epoch=int(field.get("producerEpoch", -1)),
        partition_leader_epoch=int(field.get("partitionLeaderEpoch", -1)),
        is_transactional=field.get("isTransactional") == "true",
        is_control=field.get("isControl") == "true",
        delete_horizon_ms=int(horizon[1]) if horizon else None,
        position=int(field["position"]),
        timestamp_type=_timestamp_type(field),
        max_timestamp=int(field[_timestamp_type(field)]),
        size=int(field["size"]),
        magic=int(field["magic"]),
        codec=field["compresscodec"].lower(),
        crc=int(field["crc"]),
        is_valid=field["isvalid"] == "true",
        records=records,
    )


def _record(line: str) -> DumpedRecord:
    field = dict(_FIELD.findall(line))
    timestamp_type = _timestamp_type(field)
    return DumpedRecord(
        offset=int(field["offset"]),
        timestamp_type=timestamp_type,
        timestamp=int(field[timestamp_type]),
        is_valid=field.get("isValid", "true") == "true",
    )


def _timestamp_type(field: dict[str, str]) -> str:
    return next(each for each in _TIMESTAMP_TYPES if each in field)
