"""
Positions that one task hands over to the next task of the same partition.

A task that ends a slice in good order knows of each partition where it stands:
everything that it sent is acknowledged, and committed unless the coordinator
did not answer. The next task continues from there without asking both clusters
what they hold, and commits what is not committed yet. The driver keeps it in
between, and gives it away once: a task that is repeated finds nothing, and
resumes; and what an older attempt says of a partition that another has taken
since is not believed. When the mirror's place in its group was interrupted, nothing is
kept: another process may have written.
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
    Where a task left a partition: everything that it sent is acknowledged.

    Attributes:
        pair: How far it is copied.
        is_committed: Whether the group's coordinator has that, too.
        doubted_for_s: How long an older commit may still take its place, one whose outcome is not known.
        leader_epochs: Of source and destination, in which it was aligned: after an election either
            log may be another.

    """

    pair: MirrorPosition
    is_committed: bool
    doubted_for_s: float
    leader_epochs: tuple[int, int]

    def to_json_object(self, partition: TopicPartition) -> list[Any]:
        committed = self.pair.to_committed()
        known = [self.is_committed, self.doubted_for_s, self.leader_epochs]
        return [*partition, committed.offset, committed.metadata, *known]

    @classmethod
    def from_json_object(cls, values: Sequence[Any]) -> tuple[TopicPartition, InheritedPosition] | None:
        """Read what :meth:`to_json_object` wrote; None where the pair is none of ours."""
        topic, partition, offset, metadata, is_committed, doubted_for_s, leader_epochs = values
        pair = MirrorPosition.from_committed(Committed(offset, metadata))
        if pair is None:
            return None
        left = cls(pair, is_committed, doubted_for_s, tuple(leader_epochs))
        return TopicPartition(topic, partition), left


@dataclass(frozen=True, slots=True)
class Handover:
    """
    The driver's knowledge of a task's partitions when the task begins.

    Attributes:
        left: Those that a former task left in good order.
        in_trouble: Those that waited when they were heard of last, and what for; time can heal it.
        given_up: Those that are not this mirror's any more.

    """

    left: Mapping[TopicPartition, InheritedPosition] = field(default_factory=dict)
    in_trouble: Mapping[TopicPartition, str] = field(default_factory=dict)
    given_up: frozenset[TopicPartition] = frozenset()

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> Handover:
        left = dict(filter(None, map(InheritedPosition.from_json_object, values["left"])))
        in_trouble = {TopicPartition(topic, number): reason for topic, number, reason in values["in_trouble"]}
        return cls(left, in_trouble, frozenset(TopicPartition(*each) for each in values["given_up"]))


class Handovers:
    """The positions that the driver keeps between two tasks; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[TopicPartition, list[Any]] = {}
        self._owners: dict[TopicPartition, object] = {}

    def leave(self, written: Iterable[list[Any]], owner: object) -> None:
        """Keep what the owner of partitions says; nothing of other partitions."""
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

    def uncommitted(self) -> dict[TopicPartition, MirrorPosition]:
        """Return positions that are not committed, or that an older commit may still replace."""
        with self._lock:
            read = dict(filter(None, map(InheritedPosition.from_json_object, self._left.values())))
        return {
            partition: left.pair
            for partition, left in read.items()
            if not left.is_committed or left.doubted_for_s
        }

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep nothing of these any more: they are another mirror's, or have to be aligned."""
        with self._lock:
            for partition in partitions:
                self._left.pop(partition, None)
                self._owners.pop(partition, None)

    def forget(self) -> None:
        """Keep nothing that was left until now, nor what is left by those who own partitions now."""
        with self._lock:
            self._left.clear()
            self._owners.clear()
