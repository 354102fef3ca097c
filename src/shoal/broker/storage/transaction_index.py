"""
Which transactions are open in a partition, and which were aborted.

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
        last_offset: The marker's.
        producer_id: Whose it was.
        first_offset: Of its first record.
        last_stable_offset: What it was when the marker was written: no
            transaction that is listed later begins before it.

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
        """Offset of the first record, by producer id."""
        return self._open

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins, if one is open."""
        return min(self._open.values(), default=None)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Open a transaction, unless this producer has one."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int, aborted: bool) -> None:
        """Close a producer's transaction; a marker without one (nothing was written here) is no news."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None or not aborted:
            return
        stable = self.first_unstable_offset
        last_stable_offset = marker_offset + 1 if stable is None else stable
        self._aborted.append(AbortedTransaction(marker_offset, producer_id, first_offset, last_stable_offset))

    def aborted_in(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        """
        Return the aborted transactions that a reader must know of.

        Args:
            start: The first offset it reads.
            end: The offset after the last.

        Returns:
            ``(producer_id, first_offset)`` of those that overlap the range;
            one may begin before it.

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
