"""Plan the tasks of an archive: one for each object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from shoal.archive.directory import Archive
from shoal.archive.objects import PartitionObjects
from shoal.client.config import ClientConfig
from shoal.mirroring.model.ranges import CopyRange

__all__ = ["object_ranges"]

#: Partitions whose descriptions are read at a time: a store takes tens of milliseconds for each.
_AT_A_TIME = 16


def object_ranges(config: ClientConfig, ranges: Sequence[CopyRange]) -> list[CopyRange]:
    """
    Cut ranges of offsets, one for each partition, at the ends of their objects.

    Raises:
        ShoalError: A description is damaged, an object is missing, or the store does not answer.

    """
    assert config.directory is not None, "it is an archive"
    archive = Archive.open(config.directory, config.store_credentials)
    topics = archive.topics()

    def of_partition(wanted: CopyRange) -> list[CopyRange]:
        objects = archive.objects(wanted.topic, topics[wanted.topic].directory_id, wanted.partition)
        return list(_cut(wanted, objects))

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return [piece for pieces in pool.map(of_partition, ranges) for piece in pieces]


def _cut(wanted: CopyRange, objects: PartitionObjects) -> Iterator[CopyRange]:
    offset = wanted.start_offset
    while offset < wanted.end_offset and (found := objects.at(offset)) is not None:
        name, until = found
        end = min(until, objects.facts(name).next_offset, wanted.end_offset)
        yield wanted._replace(start_offset=offset, end_offset=end)
        offset = end
