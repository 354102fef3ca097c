"""What a row points to: a run of offsets of one partition, and where it goes."""

from __future__ import annotations

from typing import NamedTuple

from ...topic_partition import TopicPartition

__all__ = ["OPEN_END", "CopyRange"]

#: The end of a range without one: it is copied until the task is told to end.
OPEN_END = 2**63 - 1


class CopyRange(NamedTuple):
    """
    A run of offsets to copy.

    Attributes:
        topic: The source topic.
        partition: The partition's number, on both sides.
        destination_topic: The topic's name at the destination.
        start_offset: Where the mirror of this partition begins if it has no
            committed pair; a pair always wins.
        end_offset: The first offset that is not wanted; ``OPEN_END`` for whatever comes.

    """

    topic: str
    partition: int
    destination_topic: str
    start_offset: int
    end_offset: int

    @property
    def is_open(self) -> bool:
        return self.end_offset == OPEN_END

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def destination(self) -> TopicPartition:
        return TopicPartition(self.destination_topic, self.partition)
