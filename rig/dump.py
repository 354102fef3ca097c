"""What is really in a broker's log: Kafka's own DumpLogSegments, parsed."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rig.jars import class_path, java

__all__ = ["DumpedBatch", "dump_partition"]

_FIELD = re.compile(r"(\w+): (\S+)")


class DumpFailed(Exception):
    """DumpLogSegments ended with an error; the text has its output."""


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """
    One batch as DumpLogSegments shows it.

    Attributes:
        position: Where it starts in its segment file, in bytes.
        max_timestamp: Milliseconds since 1970.
        size: Whole batch, with the 12 bytes of offset and length.
        codec: none, gzip, snappy, lz4 or zstd.
        is_valid: The CRC is right.

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
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    codec: str
    crc: int
    is_valid: bool


def dump_partition(directory: Path) -> list[DumpedBatch]:
    """
    Return the batches of all segments of a partition, in offset order.

    Args:
        directory: As of `KafkaCluster.partition_dir`. The broker may be running: what it has
            written to the file is seen, synced to disk or not.

    Raises:
        DumpFailed: DumpLogSegments could not read them.

    """
    segments = sorted(directory.glob("*.log"))
    tool = ["kafka.tools.DumpLogSegments", "--files", ",".join(map(str, segments))]
    result = subprocess.run(
        [str(java()), "-XX:TieredStopAtLevel=1", "-cp", class_path(), *tool],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0 or not segments:
        raise DumpFailed(f"DumpLogSegments of {directory}:\n{result.stdout}\n{result.stderr}")
    return [_batch(line) for line in result.stdout.splitlines() if line.startswith("baseOffset:")]


def _batch(line: str) -> DumpedBatch:
    field = dict(_FIELD.findall(line))
    timestamp_type = next(t for t in ("CreateTime", "LogAppendTime", "NoTimestampType") if t in field)
    return DumpedBatch(
        base_offset=int(field["baseOffset"]),
        last_offset=int(field["lastOffset"]),
        count=int(field["count"]),
        base_sequence=int(field["baseSequence"]),
        last_sequence=int(field["lastSequence"]),
        producer_id=int(field["producerId"]),
        producer_epoch=int(field["producerEpoch"]),
        partition_leader_epoch=int(field["partitionLeaderEpoch"]),
        is_transactional=field["isTransactional"] == "true",
        is_control=field["isControl"] == "true",
        position=int(field["position"]),
        timestamp_type=timestamp_type,
        max_timestamp=int(field[timestamp_type]),
        size=int(field["size"]),
        magic=int(field["magic"]),
        codec=field["compresscodec"].lower(),
        crc=int(field["crc"]),
        is_valid=field["isvalid"] == "true",
    )
