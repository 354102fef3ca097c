"""Kafka's own DumpLogSegments reads the segments of an archive."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rig.dump import dump_partition
from rig.jars import tool_command
from shoal.records import RecordBatch
from shoal.records.aborted import Marker, read_marker
from tests.archive.archiving import Archiving
from tests.world.contents import batches_of
from tests.world.source import SourcePartition

_TOOL = "org.apache.kafka.tools.DumpLogSegments"


def dump_indexes(files: Sequence[Path]) -> list[tuple[int, int, int]]:
    """Return producer id, first offset and last offset of each entry, by one run of the tool."""
    dumped = subprocess.run(
        [*tool_command(_TOOL), "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        check=True,
    )
    entries = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+)", dumped.stdout)
    return [(int(producer_id), int(first), int(last)) for producer_id, first, last in entries]


def aborted_in(found: Sequence[RecordBatch]) -> list[tuple[int, int, int]]:
    """Return the aborted transactions of a log, in the order of their markers."""
    first_offsets: dict[int, int] = {}
    aborted = []
    for each in found:
        header = each.header
        if not header.is_control:
            if header.is_transactional:
                first_offsets.setdefault(header.producer_id, header.base_offset)
            continue
        first_offset = first_offsets.pop(header.producer_id, None)
        if first_offset is not None and read_marker(each) == Marker.ABORT:
            aborted.append((header.producer_id, first_offset, header.last_offset))
    return aborted


def test_dump_log_segments_reads_a_hundred_segments_of_every_kind_of_batch(tmp_path: Path) -> None:
    with Archiving.started(tmp_path / "archive") as archiving:
        source = SourcePartition(archiving.brokers.topic()[0].log, random.Random(36))
        for number in range(100):
            source.grow()
            if number % 4 == 0:
                source.any_transaction()
            archiving.to_the_end()
        objects, found = archiving.objects(), batches_of(source.log)
        assert len(objects.names) == 100
        directory = tmp_path / "archive" / objects.path
        dumped = dump_partition(directory, deep=True)
        assert all(each.is_valid for each in dumped)
        assert [(each.last_offset, each.size) for each in dumped] == [
            (each.header.last_offset, each.header.size) for each in found
        ]
        indexes = sorted(directory.glob("*.txnindex"))
        assert len(indexes) > 5
        assert dump_indexes(indexes) == aborted_in(found)
