"""A run of offsets of one partition, and its destination."""

from __future__ import annotations

from typing import NamedTuple

from ...topic_partition import TopicPartition

__all__ = ["OPEN_END", "CopyRange"]

#: The end of a range without one: its task copies until the driver ends the task.
OPEN_END = 2**63 - 1


class CopyRange(NamedTuple):
    """
    A run of offsets to copy.

    Attributes:
        topic: The source topic.
        partition: The partition's number, on both sides.
        destination_topic: The topic's name at the destination.
        start_offset: The start offset of a partition without a committed position, which takes precedence.
        end_offset: The offset behind the last one to copy; ``OPEN_END`` for no end.

    """

    topic: str
    partition: int
    destination_topic: str
    start_offset: int
    end_offset: int

    @property
    def is_open(self) -> bool:
        """Whether the range has no end."""
        return self.end_offset == OPEN_END

    @property
    def source(self) -> TopicPartition:
        """The source partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def destination(self) -> TopicPartition:
        """The destination partition."""
        return TopicPartition(self.destination_topic, self.partition)
