"""
What one task leaves to the next that copies the same partition.

A task that ends a slice in good order knows of each partition where it stands:
everything that it sent is acknowledged, and committed unless the coordinator
did not answer. The next task goes on from there without asking both clusters
what they hold, and commits what is not committed yet. The driver keeps it in
between, and gives it away once: a task that is repeated finds nothing, and
realigns; and what an older attempt says of a partition that another has taken
since is not believed. When the mirror's place in its group was interrupted, nothing is
kept: somebody else may have written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..client.groups import Committed
from ..client.metadata import TopicPartition
from .pair import Pair

__all__ = ["Handover", "Handovers", "Left"]


@dataclass(frozen=True, slots=True)
class Left:
    """
    Where a task left a partition: everything that it sent is acknowledged.

    Attributes:
        pair: How far it is copied.
        is_committed: Whether the group's coordinator has that, too.
        leader_epochs: Of source and destination, in which it was aligned: after an election either
            log may be another.

    """

    pair: Pair
    is_committed: bool
    leader_epochs: tuple[int, int]

    def to_json_object(self, partition: TopicPartition) -> list[Any]:
        committed = self.pair.to_committed()
        return [*partition, committed.offset, committed.metadata, self.is_committed, self.leader_epochs]


@dataclass(frozen=True, slots=True)
class Handover:
    """
    What is known of a task's partitions when it begins.

    Attributes:
        left: Those that a former task left in good order.
        in_trouble: Those that waited when they were heard of last, and what for; time can heal it.

    """

    left: Mapping[TopicPartition, Left] = field(default_factory=dict)
    in_trouble: Mapping[TopicPartition, str] = field(default_factory=dict)

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> Handover:
        left = {}
        for topic, partition, offset, metadata, is_committed, leader_epochs in values["left"]:
            pair = Pair.from_committed(Committed(offset, metadata))
            if pair is not None:
                left[TopicPartition(topic, partition)] = Left(pair, is_committed, tuple(leader_epochs))
        in_trouble = {TopicPartition(topic, number): reason for topic, number, reason in values["in_trouble"]}
        return cls(left, in_trouble)


class Handovers:
    """What the driver keeps between two tasks. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[TopicPartition, list[Any]] = {}
        self._owners: dict[TopicPartition, object] = {}

    def leave(self, written: Iterable[list[Any]], owner: object) -> None:
        """Keep what the owner of partitions says (:meth:`Left.to_json_object`); of others nothing."""
        with self._lock:
            for each in written:
                partition = TopicPartition(each[0], each[1])
                if self._owners.get(partition) is owner:
                    self._left[partition] = each

    def take(self, partitions: Sequence[TopicPartition], owner: object) -> list[list[Any]]:
        """Give away what is kept of these partitions: to one task, their owner from now on, and once."""
        with self._lock:
            self._owners.update(dict.fromkeys(partitions, owner))
            found = (self._left.pop(partition, None) for partition in partitions)
            return [each for each in found if each is not None]

    def forget(self) -> None:
        """Keep nothing that was left until now, nor what is left by those who own partitions now."""
        with self._lock:
            self._left.clear()
            self._owners.clear()
