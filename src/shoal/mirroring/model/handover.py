"""
The document that the driver sends a task, and what the task reports of partitions that it leaves.

A :class:`Document` has all partitions of a task, each by an *entry* with a number of its own. The driver
sends it again whenever it changes, and the newest one counts. A partition that a document no longer has is to
be left: the task reports that it left the entry (:class:`Left`), with the position for the next task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...client.committed_offsets import Committed
from ...topic_partition import TopicPartition
from .incidents import IncidentKind
from .json_values import typed
from .position import MirrorPosition
from .ranges import CopyRange

__all__ = ["Assigned", "Document", "InheritedPosition", "Left", "leaves_from_json", "leaves_to_json"]


@dataclass(frozen=True, slots=True)
class InheritedPosition:
    """
    The position at which a task left a partition. Brokers have acknowledged everything that the task sent.

    Attributes:
        leader_epochs: The leader epochs of source and destination when the partition was aligned. After an
            election, either log may differ.
        committed: The position that was committed last; None if that is not known.
        doubts: The positions whose commit has an unknown outcome, and may take effect later.

    """

    position: MirrorPosition
    leader_epochs: tuple[int, int]
    committed: MirrorPosition | None = None
    doubts: tuple[MirrorPosition, ...] = ()

    @property
    def is_committed(self) -> bool:
        """Whether the position is committed."""
        return self.committed == self.position

    def to_json_object(self) -> list[Any]:
        """Return the position as JSON."""
        known = [_to_json(self.committed), [_to_json(each) for each in self.doubts]]
        return [_to_json(self.position), list(self.leader_epochs), *known]

    @classmethod
    def from_json_object(cls, values: Sequence[Any] | None) -> InheritedPosition | None:
        """Read the JSON of :meth:`to_json_object`; None if it has no position of shoal's."""
        if values is None:
            return None
        position, leader_epochs, committed, doubts = values
        read = _from_json(position)
        if read is None:
            return None
        in_doubt = tuple(filter(None, map(_from_json, doubts)))
        return cls(read, tuple(leader_epochs), _from_json(committed), in_doubt)


def _to_json(position: MirrorPosition | None) -> list[Any] | None:
    if position is None:
        return None
    committed = position.to_committed()
    return [committed.offset, committed.metadata]


def _from_json(values: Sequence[Any] | None) -> MirrorPosition | None:
    return MirrorPosition.from_committed(Committed(*values)) if values else None


@dataclass(frozen=True, slots=True)
class Left:
    """
    The report of a task on a partition that it writes no more.

    Attributes:
        entry: The number of the entry by which it had the partition.
        position: The position from which the next task can go on at once; None if that one has to align it.
        is_settled: Whether the task knows the outcome of all its commits, or hands over what they had.
        is_done: Whether everything up to the end is copied.

    """

    entry: int
    position: InheritedPosition | None = None
    is_settled: bool = True
    is_done: bool = False


def leaves_to_json(leaves: Mapping[TopicPartition, Left]) -> list[list[Any]]:
    """Return the partitions that a task leaves as JSON."""
    return [
        [
            *partition,
            left.entry,
            left.position.to_json_object() if left.position else None,
            left.is_settled,
            left.is_done,
        ]
        for partition, left in leaves.items()
    ]


def leaves_from_json(values: Iterable[Sequence[Any]]) -> dict[TopicPartition, Left]:
    """Read the JSON of :func:`leaves_to_json`."""
    return {
        TopicPartition(typed(str, topic), typed(int, number)): Left(
            typed(int, entry),
            InheritedPosition.from_json_object(position),
            typed(bool, is_settled),
            typed(bool, is_done),
        )
        for topic, number, entry, position, is_settled, is_done in values
    }


@dataclass(frozen=True, slots=True)
class Assigned:
    """
    One partition in a document.

    Attributes:
        entry: The number of the entry. A partition that is given out again has another one.
        range: Where to copy it to, where it begins without a position, and where it ends.
        inherited: The position that the former task left; only in the first document with the entry.
        waiting_for: Why the former task waited, as it reported last.
        accepted: The kind of incident that an operator has accepted once.
        interruptions: How often the task's lease was interrupted before the document came; the task's own.

    """

    entry: int
    range: CopyRange
    inherited: InheritedPosition | None = None
    waiting_for: str | None = None
    accepted: IncidentKind | None = None
    interruptions: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """
    The desired state of one task.

    Attributes:
        partitions: All partitions that it is to copy.

    """

    partitions: Mapping[TopicPartition, Assigned] = field(default_factory=dict)

    def to_json_object(self, known: Iterable[int] = ()) -> dict[str, Any]:
        """
        Return the document as JSON.

        Args:
            known: The numbers of the entries that the task has already; these have no position.

        """
        numbers = frozenset(known)
        partitions = [
            [
                each.entry,
                *each.range,
                None if each.entry in numbers or each.inherited is None else each.inherited.to_json_object(),
                each.waiting_for,
                each.accepted and each.accepted.value,
            ]
            for each in self.partitions.values()
        ]
        return {"partitions": partitions}

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> Document:
        """Read the JSON of :meth:`to_json_object`."""
        partitions = {}
        for entry, topic, number, destination, start, end, inherited, waiting_for, accepted in values[
            "partitions"
        ]:
            copied = CopyRange(
                typed(str, topic), typed(int, number), typed(str, destination), typed(int, start), end
            )
            partitions[copied.source] = Assigned(
                typed(int, entry),
                copied,
                InheritedPosition.from_json_object(inherited),
                waiting_for,
                None if accepted is None else IncidentKind(accepted),
            )
        return cls(partitions)
