"""
The manifests of an archive: at the end of a run the extent of each partition, and a digest of its objects.

A run that finds what the newest manifest says writes none.

The digest covers the names and sizes of a partition's objects, which a listing has. So a manifest costs a
listing and a few descriptions for each partition, however many objects there are. The content of each
object has a digest in its description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xxhash

from .description import DamagedObject, encode, newest_time, read_json
from .directory import Archive, ArchivedTopic
from .names import ARCHIVE_RUNS, timed_file
from .objects import PartitionObjects

__all__ = ["write_run"]

#: The largest file that is read: a hundred thousand partitions take 30 MB.
_LARGEST_BYTES = 64 * 1024 * 1024


def write_run(archive: Archive, topics: Iterable[ArchivedTopic], *, started_ms: int, ended_ms: int) -> None:
    """
    Write the manifest of a run, unless the newest one has the same extents.

    Args:
        topics: The topics that the run archived, sorted by name.
        started_ms: The beginning of the run.
        ended_ms: Its end, which the file is named by.

    Raises:
        DamagedObject: A description cannot be read.
        ShoalError: The store does not answer, or refuses.

    """
    extents = archive.each_partition(topics, _extent)
    if extents == _newest_extents(archive):
        return
    values = {"started_ms": started_ms, "ended_ms": ended_ms, "partitions": extents}
    archive.store.write(f"{ARCHIVE_RUNS}/{timed_file(ended_ms)}", encode(values))


def _newest_extents(archive: Archive) -> object:
    newest = newest_time(archive.store, ARCHIVE_RUNS)
    if newest is None:
        return None
    try:
        found = read_json(archive.store, f"{ARCHIVE_RUNS}/{timed_file(newest)}", _LARGEST_BYTES)
    except DamagedObject:
        return None  # another manifest is worth more than an error about this one
    return found.get("partitions")


def _extent(topic: ArchivedTopic, partition: int, objects: PartitionObjects) -> Mapping[str, object]:
    sizes = objects.sizes()
    listed = "".join(f"{name} {size}\n" for name, size in sorted(sizes.items()))
    return {
        "topic": topic.name,
        "topic_id": topic.directory_id,
        "partition": partition,
        "start_offset": objects.start_offset,
        "next_offset": objects.end_offset,
        "objects": len(objects.names),
        "bytes": sum(sizes.values()),
        "digest": xxhash.xxh3_128(listed.encode()).hexdigest(),
    }
