"""
Which partitions move, from observations at different times. The module sends no requests.

A partition that waits or is stopped does not say so to other processes: its position in the mirror's group
stands still, while its end lies behind. The mirror commits positions every few seconds, so a look or two
without movement are no sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...topic_partition import TopicPartition

__all__ = ["Movement", "PartitionSeen", "Quiet", "QuietSeen"]


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """
    A partition, as both clusters show it.

    Attributes:
        destination: Its copy.
        start: The source's first offset.
        stable_end: The source's last stable offset.
        end: The source's high watermark.
        position: The mirror's position; None if it has none.
        copies_open: Whether the mirror copies open transactions, too (``read_uncommitted``).
        problem: A phrase if the position is one of another topic: it was created again.
        copy_end: The destination offset behind the last copied record; None without a position.
        unreplicated: The number of offsets that the leader has behind the high watermark. No consumer sees
            these records yet, and the mirror does not copy them, but ``acks=1`` has acknowledged them.

    """

    source: TopicPartition
    destination: TopicPartition
    start: int
    stable_end: int
    end: int
    position: int | None
    copies_open: bool = False
    problem: str = ""
    copy_end: int | None = None
    unreplicated: int = 0

    @property
    def log_end(self) -> int:
        """The end of the leader's log."""
        return self.end + self.unreplicated

    @property
    def copied(self) -> int:
        """The offset before which nothing is left to copy, also if the log begins only there."""
        return max(self.start, self.position or 0)

    @property
    def copyable_end(self) -> int:
        """The end of what the mirror can copy now."""
        return self.end if self.copies_open else self.stable_end

    @property
    def behind(self) -> int:
        """The number of offsets that the mirror can copy and has not."""
        return max(0, self.copyable_end - self.copied)


class Movement:
    """Finds the partitions that stand still although they are behind."""

    def __init__(self, patience_s: float) -> None:
        """
        Begin without observations.

        Args:
            patience_s: How long a partition that has moved may stand still. Longer than the time between two
                commits of the mirror.

        """
        self._patience_s = patience_s
        #: How far a partition was copied, since when, and whether it has moved.
        self._seen: dict[TopicPartition, tuple[int, float, bool]] = {}

    def look(self, now: float, partitions: Sequence[PartitionSeen]) -> dict[TopicPartition, float]:
        """
        Return the partitions that are behind and stand still, with the seconds since their last movement.

        A partition that is behind counts as standing until it has moved once. One at its end has moved, seen
        or not.
        """
        standing: dict[TopicPartition, float] = {}
        for each in partitions:
            copied, since, has_moved = self._seen.get(each.source, (each.copied, now, False))
            if copied != each.copied or not each.behind:
                since, has_moved = now, True
            self._seen[each.source] = each.copied, since, has_moved
            if each.behind and not (has_moved and now - since <= self._patience_s):
                standing[each.source] = now - since
        return standing


class QuietSeen(NamedTuple):
    """
    How quiet the source is.

    Attributes:
        still_s: The seconds since any end moved.
        last_moved: The partitions whose ends moved then.
        open_transactions: The partitions whose last stable offset lies before their end.
        unreplicated: The partitions whose high watermark lies before the end of the leader's log.

    """

    still_s: float
    last_moved: tuple[TopicPartition, ...] = ()
    open_transactions: tuple[TopicPartition, ...] = ()
    unreplicated: tuple[TopicPartition, ...] = ()


class Quiet:
    """Measures how long the ends of the source stand still."""

    def __init__(self) -> None:
        """Begin without observations."""
        self._ends: dict[TopicPartition, int] | None = None
        self._moved_at = 0.0
        self._last_moved: tuple[TopicPartition, ...] = ()

    def look(self, now: float, partitions: Sequence[PartitionSeen]) -> QuietSeen:
        """Compare the ends with those of the former look; ``now`` is a time before they were read."""
        ends = {each.source: each.log_end for each in partitions}
        if self._ends is None or ends.keys() != self._ends.keys():
            self._moved_at = now
        elif ends != self._ends:
            self._moved_at = now
            before = self._ends
            self._last_moved = tuple(each for each, end in sorted(ends.items()) if before[each] != end)
        self._ends = ends
        is_open = tuple(each.source for each in partitions if each.stable_end < each.end)
        unreplicated = tuple(each.source for each in partitions if each.unreplicated)
        return QuietSeen(now - self._moved_at, self._last_moved, is_open, unreplicated)
