"""
The manifests of an archive: at the end of a run the extent of each partition, and a digest of its objects.

A run that finds what the newest manifest says writes none.

The digest covers the names and sizes of a partition's objects, which a listing has. So a manifest costs a
listing and a few descriptions for each partition, however many objects there are. The content of each
object has a digest in its description.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import xxhash

from .description import DamagedObject, encode, now_ms, read_newest
from .directory import Archive, ArchivedTopic
from .names import ARCHIVE_RUNS, timed_file
from .objects import PartitionObjects

__all__ = ["write_run"]

#: The largest file that is read: a hundred thousand partitions take 30 MB.
_LARGEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Extent:
    """The extent of one partition in the archive."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int | None
    next_offset: int | None
    objects: int
    bytes: int
    digest: str

    @classmethod
    def of(cls, topic: ArchivedTopic, partition: int, objects: PartitionObjects) -> _Extent:
        sizes = objects.sizes()
        listed = "".join(f"{name} {size}\n" for name, size in sorted(sizes.items()))
        return cls(
            topic.topic,
            topic.directory_id,
            partition,
            objects.start_offset,
            objects.end_offset,
            len(objects.names),
            sum(sizes.values()),
            xxhash.xxh3_128(listed.encode()).hexdigest(),
        )


@dataclass(frozen=True, slots=True)
class _Run:
    started_ms: int
    ended_ms: int
    partitions: Sequence[_Extent]


def write_run(archive: Archive, topics: Iterable[str], started_ms: int, ended_ms: int | None = None) -> None:
    """
    Write the manifest of a run, unless the newest one has the same extents.

    Args:
        topics: The names of the topics that the run archived.
        started_ms: The beginning of the run.
        ended_ms: Its end, which the file is named by; None for now.

    Raises:
        DamagedObject: A description cannot be read.
        ShoalError: The store does not answer, or refuses.

    """
    found = archive.topics()
    archived = [found[name] for name in sorted(topics) if name in found]
    ended_ms = now_ms() if ended_ms is None else ended_ms
    run = _Run(started_ms, ended_ms, archive.each_partition(archived, _Extent.of))
    try:
        before = read_newest(_Run, archive.store, ARCHIVE_RUNS, _LARGEST_BYTES)
    except DamagedObject:
        before = None  # another manifest is worth more than an error about this one
    if before is None or before.partitions != run.partitions:
        archive.store.write(f"{ARCHIVE_RUNS}/{timed_file(ended_ms)}", encode(run))
