"""
The open and the aborted transactions of a partition.

Kafka's ``ProducerStateManager.ongoingTxns`` and ``TransactionIndex``; guarded
by the log's lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["AbortedTransaction", "TransactionIndex"]


class AbortedTransaction(NamedTuple):
    """
    A transaction that ended with an ABORT marker.

    Attributes:
        last_offset: The offset of the marker.
        first_offset: The offset of its first record.
        last_stable_offset: The last stable offset after the marker: no later entry begins before it.

    """

    last_offset: int
    producer_id: int
    first_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transactions of one partition."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []

    @property
    def open(self) -> dict[int, int]:
        """The first offset of each open transaction, by producer id."""
        return self._open

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction, if one is open."""
        return min(self._open.values(), default=None)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Open a transaction, unless this producer has one."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int, aborted: bool) -> None:
        """End a producer's transaction, if it wrote to this partition."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None or not aborted:
            return
        stable = self.first_unstable_offset
        last_stable_offset = marker_offset + 1 if stable is None else stable
        self._aborted.append(AbortedTransaction(marker_offset, producer_id, first_offset, last_stable_offset))

    def aborted_in(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        """
        Return the aborted transactions that overlap a range of offsets.

        Args:
            start: The first offset.
            end: The offset after the last one.

        Returns:
            ``(producer_id, first_offset)`` of each; it may begin before the range.

        """
        found: list[tuple[int, int]] = []
        for transaction in self._aborted[bisect_left(self._aborted, (start,)) :]:
            if transaction.first_offset < end:
                found.append((transaction.producer_id, transaction.first_offset))
            if transaction.last_stable_offset >= end:
                break
        return found

    def forget_before(self, offset: int) -> None:
        """Forget the transactions that ended before the log's new start."""
        del self._aborted[: bisect_left(self._aborted, (offset,))]
