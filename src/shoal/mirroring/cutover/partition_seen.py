"""One partition at a look of a cut-over."""

from __future__ import annotations

from dataclasses import dataclass

from ...topic_partition import TopicPartition
from ..model.position import MirrorPosition

__all__ = ["PartitionSeen"]


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
        unreplicated: The number of offsets that the leader has behind the high watermark. No consumer sees
            these records yet, and the mirror does not copy them, but ``acks=1`` has acknowledged them.

    """

    source: TopicPartition
    destination: TopicPartition
    start: int
    stable_end: int
    end: int
    position: MirrorPosition | None
    copies_open: bool = False
    problem: str = ""
    unreplicated: int = 0

    @property
    def log_end(self) -> int:
        """The end of the leader's log."""
        return self.end + self.unreplicated

    @property
    def copied(self) -> int:
        """The offset before which nothing is left to copy, also if the log begins only there."""
        return max(self.start, 0 if self.position is None else self.position.source_offset)

    @property
    def copy_end(self) -> int | None:
        """The destination offset behind the last copied record; None without a position."""
        return None if self.position is None else self.position.destination_offset

    @property
    def copyable_end(self) -> int:
        """The end of what the mirror can copy now."""
        return self.end if self.copies_open else self.stable_end

    @property
    def behind(self) -> int:
        """The number of offsets that the mirror can copy and has not."""
        return max(0, self.copyable_end - self.copied)
