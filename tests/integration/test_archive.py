"""Kafka's own DumpLogSegments reads the segments of an archive."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rig.dump import dump_partition
from rig.jars import tool_command
from shoal.records import Codec
from tests import batches
from tests.archive.archives import add, new_archive, objects_of, plain

_TOOL = "org.apache.kafka.tools.DumpLogSegments"


def test_dump_log_segments_reads_batches_and_index(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "archive")
    transaction = batches.batch(
        [b"v"], base_offset=5, flags=batches.TRANSACTIONAL, producer_id=7, producer_epoch=0
    )
    fetched = (
        plain(3)
        + bytes(batches.batch(2, base_offset=3, codec=Codec.ZSTD))
        + bytes(transaction + batches.marker(0, 7, base_offset=6))
        + bytes(batches.batch(4, base_offset=7, holes=[1]))
    )
    name, _ = add(archive, fetched, tmp_path, aborted=[(7, 5)])
    directory = tmp_path / "archive" / objects_of(archive).path
    dumped = dump_partition(directory, deep=True)
    assert all(each.is_valid for each in dumped)
    assert [each.base_offset for each in dumped] == [0, 3, 5, 6, 7]
    assert sum(each.size for each in dumped) == len(fetched)
    index = subprocess.run(
        [*tool_command(_TOOL), "--files", str(directory / f"{name}.txnindex")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "producerId: 7 firstOffset: 5 lastOffset: 6 lastStableOffset: 7" in index.stdout
