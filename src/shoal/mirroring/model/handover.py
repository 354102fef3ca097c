"""The position at which a task left a partition, and the driver's answer to the task that takes it next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...client.committed_offsets import Committed
from ...topic_partition import TopicPartition
from .incidents import IncidentKind
from .position import MirrorPosition

__all__ = [
    "Handover",
    "InheritedPosition",
    "inherited_from_json",
    "inherited_to_json",
    "leaves_from_json",
    "leaves_to_json",
]


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

    def to_json_object(self, partition: TopicPartition) -> list[Any]:
        """Return the position as JSON."""
        known = [_to_json(self.committed), [_to_json(each) for each in self.doubts]]
        return [*partition, _to_json(self.position), list(self.leader_epochs), *known]

    @classmethod
    def from_json_object(cls, values: Sequence[Any]) -> tuple[TopicPartition, InheritedPosition] | None:
        """Read the JSON of :meth:`to_json_object`; None if it has no position of shoal's."""
        topic, partition, position, leader_epochs, committed, doubts = values
        read = _from_json(position)
        if read is None:
            return None
        in_doubt = tuple(filter(None, map(_from_json, doubts)))
        return TopicPartition(topic, partition), cls(
            read, tuple(leader_epochs), _from_json(committed), in_doubt
        )


def _to_json(position: MirrorPosition | None) -> list[Any] | None:
    if position is None:
        return None
    committed = position.to_committed()
    return [committed.offset, committed.metadata]


def _from_json(values: Sequence[Any] | None) -> MirrorPosition | None:
    return MirrorPosition.from_committed(Committed(*values)) if values else None


def inherited_to_json(positions: Mapping[TopicPartition, InheritedPosition]) -> list[list[Any]]:
    """Return positions by partition as JSON."""
    return [left.to_json_object(partition) for partition, left in positions.items()]


def inherited_from_json(values: Iterable[Sequence[Any]]) -> dict[TopicPartition, InheritedPosition]:
    """Read the JSON of :func:`inherited_to_json`, without entries that have no position of shoal's."""
    return dict(filter(None, map(InheritedPosition.from_json_object, values)))


def leaves_to_json(leaves: Mapping[TopicPartition, InheritedPosition | None]) -> list[list[Any]]:
    """Return the partitions that a task leaves as JSON, each with its position if there is one."""
    return [left.to_json_object(each) if left else [*each] for each, left in leaves.items()]


def leaves_from_json(values: Iterable[Sequence[Any]]) -> dict[TopicPartition, InheritedPosition | None]:
    """Read the JSON of :func:`leaves_to_json`."""
    entries = list(values)
    left: dict[TopicPartition, InheritedPosition | None] = {
        TopicPartition(topic, partition): None for topic, partition, *_ in entries
    }
    return left | inherited_from_json(each for each in entries if len(each) > 2)


@dataclass(frozen=True, slots=True)
class Handover:
    """
    The driver's knowledge of a task's partitions when the task begins.

    Attributes:
        left: The positions of partitions that a former task left in good order.
        in_trouble: Partitions that waited at their last report, with the reason, which is transient.
        given_up: Partitions that no longer belong to this mirror.
        accepted: The kind of incident that an operator has accepted once, by stopped partition.

    """

    left: Mapping[TopicPartition, InheritedPosition] = field(default_factory=dict)
    in_trouble: Mapping[TopicPartition, str] = field(default_factory=dict)
    given_up: frozenset[TopicPartition] = frozenset()
    accepted: Mapping[TopicPartition, IncidentKind] = field(default_factory=dict)

    def to_json_object(self) -> dict[str, Any]:
        """Return the driver's answer to a task that requests partitions, as JSON."""
        return {
            "left": inherited_to_json(self.left),
            "in_trouble": [[*partition, reason] for partition, reason in self.in_trouble.items()],
            "given_up": list(self.given_up),
            "accepted": [[*partition, kind.value] for partition, kind in self.accepted.items()],
        }

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> Handover:
        """Read the JSON of :meth:`to_json_object`."""
        left = inherited_from_json(values["left"])
        in_trouble = {TopicPartition(topic, number): reason for topic, number, reason in values["in_trouble"]}
        given_up = frozenset(TopicPartition(*each) for each in values["given_up"])
        accepted = {TopicPartition(topic, number): kind for topic, number, kind in values["accepted"]}
        return cls(left, in_trouble, given_up, {each: IncidentKind(kind) for each, kind in accepted.items()})
