"""Archives that tests write by shoal's own writer, and batches that are not shoal's."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from shoal.archive.aborted import OpenAborted
from shoal.archive.directory import Archive, ArchivedTopic
from shoal.archive.downloads import wait_for_any
from shoal.archive.files import FileRange
from shoal.archive.names import ObjectName
from shoal.archive.objects import PartitionObjects
from shoal.archive.reading import PartitionReader, ReadBatches
from shoal.archive.segment import OpenSegment, SegmentFacts
from shoal.errors import BeingDownloaded
from shoal.records import split
from tests.world import batches

__all__ = [
    "TOPIC_ID",
    "add",
    "bytes_of",
    "described",
    "new_archive",
    "objects_of",
    "plain",
    "read_all",
    "reader_of",
    "room",
]

TOPIC_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")


def plain(*counts: int, base_offset: int = 0, timestamp: int = 1_000) -> bytes:
    """Return batches with these numbers of records, one behind the other."""
    made = b""
    for count in counts:
        values = [b"value at %d" % (base_offset + number) for number in range(count)]
        made += batches.batch(values, base_offset=base_offset, base_timestamp=timestamp)
        base_offset += count
    return made


def described(partitions: int = 1, name: str = "orders") -> ArchivedTopic:
    return ArchivedTopic(name, str(TOPIC_ID), partitions, 3, {"retention.ms": "1000"}, {}, name, 1)


def new_archive(directory: Path | str, partitions: int = 1) -> Archive:
    archive = Archive.open(str(directory), creates=True)
    archive.describe(described(partitions))
    return archive


def objects_of(archive: Archive, partition: int = 0) -> PartitionObjects:
    return archive.objects("orders", str(TOPIC_ID), partition)


def reader_of(archive: Archive, partition: int = 0) -> PartitionReader:
    return PartitionReader(objects_of(archive, partition))


def room(size: int) -> memoryview:
    """Return memory for batches that a reader returns."""
    return memoryview(bytearray(size))


def bytes_of(read: ReadBatches | None) -> bytes | None:
    """Return the batches that a reader returned."""
    got: Any = read and read.record_set
    return os.pread(got.file.fileno(), got.size, got.position) if isinstance(got, FileRange) else got


def read_patiently(reader: PartitionReader, offset: int, most_bytes: int) -> ReadBatches | None:
    """Read as soon as the object is there."""
    while True:
        try:
            return reader.read(offset, room(most_bytes))
        except BeingDownloaded as pending:
            wait_for_any([pending.address], 30.0)


def read_all(objects: PartitionObjects, most_bytes: int = 10_000) -> bytes:
    """Return the batches of a partition, each answer with at most so many bytes or one batch."""
    found, offset = b"", objects.start_offset or 0
    with closing(PartitionReader(objects)) as reader:
        while (data := bytes_of(read_patiently(reader, offset, most_bytes))) is not None:
            found += data
            offset = [*split(memoryview(data))][-1].header.next_offset
    return found


def add(
    archive: Archive,
    record_set: bytes,
    spool: Path,
    *,
    offset: int = 0,
    generation: int = 1,
    aborted: Iterable[tuple[int, int]] = (),
    follows: int | None = None,
    sliced: Sequence[bytes] = (),
) -> tuple[ObjectName, SegmentFacts]:
    """Archive record sets as one segment of partition 0."""
    known = OpenAborted()
    known.learn(aborted)
    segment = OpenSegment(spool / "spool.log", offset, known, follows=offset if follows is None else follows)
    for each in (record_set, *sliced):
        segment.take(memoryview(each))
    found = segment.publish(archive.store, objects_of(archive).path, generation, lambda: None)
    segment.drop()
    return found
