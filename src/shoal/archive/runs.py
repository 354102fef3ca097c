"""
The manifests of an archive: at the end of each run the extent of each partition, and a digest of its objects.

The digest covers the names and sizes of a partition's objects, which a listing has. So a manifest costs a
listing and a few descriptions for each partition, however many objects there are. The content of each
object has a digest in its description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xxhash

from ..topic_partition import TopicPartition
from .description import encode
from .directory import Archive
from .names import ARCHIVE_RUNS, timed_file
from .objects import PartitionObjects

__all__ = ["write_run"]


def write_run(
    archive: Archive,
    partitions: Iterable[TopicPartition],
    directory_ids: Mapping[str, str],
    *,
    started_ms: int,
    ended_ms: int,
) -> None:
    """
    Write the manifest of a run.

    Args:
        archive: The archive.
        partitions: The partitions that the run archived, by their names in the archive.
        directory_ids: The directory of each topic.
        started_ms: The beginning of the run.
        ended_ms: Its end, which the file is named by.

    Raises:
        DamagedObject: A description cannot be read.
        ShoalError: The store does not answer, or refuses.

    """

    def extent(partition: TopicPartition, objects: PartitionObjects) -> Mapping[str, object]:
        names = {"topic": partition.topic, "topic_id": directory_ids[partition.topic]}
        return {**names, **_extent(partition.partition, objects)}

    extents = archive.each_partition(sorted(partitions), directory_ids, extent)
    values = {"started_ms": started_ms, "ended_ms": ended_ms, "partitions": extents}
    archive.store.write(f"{ARCHIVE_RUNS}/{timed_file(ended_ms)}", encode(values))


def _extent(partition: int, objects: PartitionObjects) -> Mapping[str, object]:
    sizes = objects.sizes()
    listed = "".join(f"{name} {size}\n" for name, size in sorted(sizes.items()))
    return {
        "partition": partition,
        "start_offset": objects.start_offset,
        "next_offset": objects.end_offset,
        "objects": len(objects.names),
        "bytes": sum(sizes.values()),
        "digest": xxhash.xxh3_128(listed.encode()).hexdigest(),
    }
