"""Why a partition cannot be compared, or not any further; why a batch cannot be decoded."""

from __future__ import annotations

from ..errors import ShoalError
from ..topic_partition import TopicPartition
from .report import Side

__all__ = ["DamagedLog", "NotComparable", "NotDecodable"]


class NotComparable(ShoalError):
    """One partition cannot be compared, or not any further; the text says why."""


class NotDecodable(ShoalError):
    """One batch cannot be decoded; the text says which and why, as a phrase."""


class DamagedLog(ShoalError):
    """
    A log cannot be read any further: its batches are not to be told apart.

    Attributes:
        side: The cluster.
        partition: Which.
        offset: From where on.
        reason: What was found.

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
