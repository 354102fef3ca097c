"""The reasons that a partition cannot be compared, or not to its end."""

from __future__ import annotations

from ..errors import ShoalError
from ..topic_partition import TopicPartition
from .findings import Side

__all__ = ["DamagedLog", "NotComparable"]


class NotComparable(ShoalError):
    """One partition cannot be compared, or not any further; the text has the reason."""


class DamagedLog(ShoalError):
    """
    A log cannot be read any further: a length in it leads nowhere.

    Attributes:
        side: The side whose log it is.
        offset: The first offset that cannot be read.
        reason: The defect.

    """

    def __init__(self, side: Side, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(side, partition, offset, reason)
        self.side = side
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def _text(self) -> str:
        where = f"{self.partition} of the {self.side.value} cluster"
        return f"{where} is damaged at offset {self.offset}, and cannot be read any further: {self.reason}"
