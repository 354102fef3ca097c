"""
Positions that one task hands over to the next task of the same partition.

A task that ends in good order has the position of each of its partitions. The brokers have acknowledged
everything that it sent, and the position is committed unless the coordinator did not respond. The next task
continues from there without asking both clusters, and commits positions that are not committed yet.

The driver keeps the positions in between, and hands each over once. If Spark repeats a task, the new attempt
gets no positions and aligns its partitions. The driver ignores positions from an older attempt if another one
has taken the partition since. After an interruption of the mirror's membership, the driver drops all
positions: another process may have written.

A commit may take effect later if its task did not end in good order, or if the coordinator did not answer it.
The partitions are *unsettled*. A task that ended in good order hands over what it tried to commit. The next
task sends only what that leads to, too (DOUBT in docs/resume-protocol.md). Without that knowledge the group
needs a new generation, which refuses the commit (FENCE).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from ...topic_partition import TopicPartition
from ..model.handover import InheritedPosition
from ..model.position import MirrorPosition

__all__ = ["Handovers"]


class Handovers:
    """The positions that the driver keeps between two tasks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[TopicPartition, InheritedPosition] = {}
        self._owners: dict[TopicPartition, object] = {}
        #: The last task that took each partition, until it has ended in good order and without a doubt.
        self._unsettled: dict[TopicPartition, object] = {}

    def leave(self, positions: Mapping[TopicPartition, InheritedPosition | None], owner: object) -> None:
        """Keep the positions of partitions that the reporting task owns; ignore the others."""
        with self._lock:
            for partition, left in positions.items():
                is_settled = left is None or not left.doubts
                if is_settled and self._unsettled.get(partition) is owner:
                    del self._unsettled[partition]
                if left is not None and self._owners.get(partition) is owner:
                    self._left[partition] = left

    def have_unsettled(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether a former task of some partition may have sent a commit that is not known here."""
        with self._lock:
            return any(map(self._is_unsettled, partitions))

    def take(
        self, partitions: Collection[TopicPartition], owner: object, *, is_fenced: bool
    ) -> tuple[dict[TopicPartition, InheritedPosition], frozenset[TopicPartition]]:
        """
        Remove and return the positions of partitions; make the task that requests them their owner.

        Args:
            is_fenced: Whether the group refuses all commits of former tasks.

        Returns:
            The positions, and the partitions that became unsettled meanwhile: no task may take them now.

        """
        with self._lock:
            unsettled = frozenset() if is_fenced else frozenset(filter(self._is_unsettled, partitions))
            taken = [partition for partition in partitions if partition not in unsettled]
            self._owners.update(dict.fromkeys(taken, owner))
            self._unsettled.update(dict.fromkeys(taken, owner))
            found = [partition for partition in taken if partition in self._left]
            return {partition: self._left.pop(partition) for partition in found}, unsettled

    def _is_unsettled(self, partition: TopicPartition) -> bool:
        return partition in self._unsettled and partition not in self._left

    def uncommitted(self) -> dict[TopicPartition, MirrorPosition]:
        """Return positions that are not committed."""
        with self._lock:
            return {
                partition: left.position for partition, left in self._left.items() if not left.is_committed
            }

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the positions of partitions that another mirror has now, or that have to be aligned."""
        with self._lock:
            for partition in partitions:
                self._left.pop(partition, None)
                self._owners.pop(partition, None)

    def forget(self) -> None:
        """Drop all positions, and those that the present owners of partitions will report."""
        with self._lock:
            self._left.clear()
            self._owners.clear()
