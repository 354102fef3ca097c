"""Plan the tasks of an archive: one for each object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.archive.directory import ArchivedTopic
from shoal.archive.objects import PartitionObjects
from shoal.client.config import ClientConfig
from shoal.mirroring.model.ranges import CopyRange
from shoal.topic_partition import TopicPartition

__all__ = ["object_ranges"]


def object_ranges(config: ClientConfig, ranges: Sequence[CopyRange]) -> list[CopyRange]:
    """
    Cut ranges of offsets, one for each partition, at the ends of their objects.

    Raises:
        ShoalError: A description is damaged, an object is missing, or the store does not answer.

    """
    archive = config.open_archive()
    wanted = {each.source: each for each in ranges}

    def cut(topic: ArchivedTopic, number: int, objects: PartitionObjects) -> list[CopyRange]:
        return list(_cut(wanted[TopicPartition(topic.topic, number)], objects))

    topics = [topic for _, topic in sorted(archive.topics().items())]
    return [piece for pieces in archive.each_partition(topics, cut, wanted) for piece in pieces]


def _cut(wanted: CopyRange, objects: PartitionObjects) -> Iterator[CopyRange]:
    offset = wanted.start_offset
    while offset < wanted.end_offset and (found := objects.at(offset)) is not None:
        name, until = found
        end = min(until, objects.facts(name).next_offset, wanted.end_offset)
        yield wanted._replace(start_offset=offset, end_offset=end)
        offset = end
