"""
Positions that one task hands over to the next task of the same partition.

A task that ends in good order knows the position of each of its partitions. The brokers have acknowledged
everything that it sent, and the position is committed unless the coordinator did not respond. The next task
continues from there without asking both clusters, and commits positions that are not committed yet.

The driver keeps the positions in between, and hands each over once. If Spark repeats a task, the new attempt
gets no positions and aligns its partitions. The driver ignores positions from an older attempt if another one
has taken the partition since. After an interruption of the mirror's membership, the driver drops all
positions: another process may have written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...client.committed_offsets import Committed
from ...topic_partition import TopicPartition
from ..model.position import MirrorPosition

__all__ = ["Handover", "Handovers", "InheritedPosition"]


@dataclass(frozen=True, slots=True)
class InheritedPosition:
    """
    The position at which a task left a partition. Brokers have acknowledged everything that the task sent.

    Attributes:
        position: The position.
        is_committed: Whether the position is committed.
        doubted_for_s: The time for which an older commit with an unknown outcome may still replace it.
        leader_epochs: The leader epochs of source and destination when the partition was aligned. After an
            election, either log may differ.

    """

    position: MirrorPosition
    is_committed: bool
    doubted_for_s: float
    leader_epochs: tuple[int, int]

    def to_json_object(self, partition: TopicPartition) -> list[Any]:
        """Return the position as JSON."""
        committed = self.position.to_committed()
        known = [self.is_committed, self.doubted_for_s, self.leader_epochs]
        return [*partition, committed.offset, committed.metadata, *known]

    @classmethod
    def from_json_object(cls, values: Sequence[Any]) -> tuple[TopicPartition, InheritedPosition] | None:
        """Read the JSON of :meth:`to_json_object`; None if it has no position of shoal's."""
        topic, partition, offset, metadata, is_committed, doubted_for_s, leader_epochs = values
        position = MirrorPosition.from_committed(Committed(offset, metadata))
        if position is None:
            return None
        left = cls(position, is_committed, doubted_for_s, tuple(leader_epochs))
        return TopicPartition(topic, partition), left


@dataclass(frozen=True, slots=True)
class Handover:
    """
    The driver's knowledge of a task's partitions when the task begins.

    Attributes:
        left: The positions of partitions that a former task left in good order.
        in_trouble: Partitions that waited at their last report, with the reason, which is transient.
        given_up: Partitions that no longer belong to this mirror.

    """

    left: Mapping[TopicPartition, InheritedPosition] = field(default_factory=dict)
    in_trouble: Mapping[TopicPartition, str] = field(default_factory=dict)
    given_up: frozenset[TopicPartition] = frozenset()

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> Handover:
        """Read the driver's answer to a task that requests partitions."""
        left = dict(filter(None, map(InheritedPosition.from_json_object, values["left"])))
        in_trouble = {TopicPartition(topic, number): reason for topic, number, reason in values["in_trouble"]}
        return cls(left, in_trouble, frozenset(TopicPartition(*each) for each in values["given_up"]))


class Handovers:
    """The positions that the driver keeps between two tasks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[TopicPartition, list[Any]] = {}
        self._owners: dict[TopicPartition, object] = {}

    def leave(self, written: Iterable[list[Any]], owner: object) -> None:
        """Keep the positions of partitions that the reporting task owns; ignore the others."""
        with self._lock:
            for each in written:
                partition = TopicPartition(each[0], each[1])
                if self._owners.get(partition) is owner:
                    self._left[partition] = each

    def take(self, partitions: Sequence[TopicPartition], owner: object) -> list[list[Any]]:
        """Remove and return the positions of partitions; make the task that requests them their owner."""
        with self._lock:
            self._owners.update(dict.fromkeys(partitions, owner))
            found = (self._left.pop(partition, None) for partition in partitions)
            return [each for each in found if each is not None]

    def uncommitted(self) -> dict[TopicPartition, MirrorPosition]:
        """Return positions that are not committed, or that an older commit may still replace."""
        with self._lock:
            read = dict(filter(None, map(InheritedPosition.from_json_object, self._left.values())))
        return {
            partition: left.position
            for partition, left in read.items()
            if not left.is_committed or left.doubted_for_s
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
