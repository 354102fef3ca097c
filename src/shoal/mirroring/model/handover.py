"""
The document that the driver sends a task, and what the task reports of partitions that it leaves.

A document has all partitions of a task, each by an *entry* with a number of its own. The driver
sends it again whenever it changes, and the newest one counts. A partition that a document no longer has is to
be left: the task reports that it left the entry (:class:`Left`), with the position for the next task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ...topic_partition import TopicPartition
from .incidents import IncidentKind
from .json_values import read_value, to_json
from .position import MirrorPosition
from .ranges import CopyRange

__all__ = ["Assigned", "Document", "InheritedPosition", "Left", "document_to_json", "read_document"]


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


#: The desired state of one task: all partitions that it is to copy.
Document: TypeAlias = Mapping[TopicPartition, Assigned]


def document_to_json(document: Document, known: Collection[int] = ()) -> Any:
    """
    Return a document as JSON.

    Args:
        known: The numbers of the entries that the task has already; these have no position.

    """
    return to_json(
        {
            partition: replace(each, inherited=None) if each.entry in known else each
            for partition, each in document.items()
        }
    )


def read_document(values: Any) -> Document:
    """Read the JSON of :func:`document_to_json`."""
    document: Document = read_value(Document, values)
    return document
