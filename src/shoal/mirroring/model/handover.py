"""
The document that the driver sends a task, and what the task reports of partitions that it leaves.

A document has all partitions of a task, each by an *entry* with a number of its own. The driver
sends it again whenever it changes, and the newest one counts. A partition that a document no longer has is to
be left: the task commits its position, and reports that it left the entry (:class:`Left`). The next task
resumes by the group's position, as after a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...topic_partition import TopicPartition
from .incidents import IncidentKind
from .json_values import read_value, to_json
from .ranges import CopyRange

__all__ = ["Assigned", "Document", "Left", "document_to_json", "read_document"]


@dataclass(frozen=True, slots=True)
class Left:
    """
    The report of a task on a partition that it writes no more.

    Attributes:
        entry: The number of the entry by which it had the partition.
        is_settled: Whether the task knows the outcome of all its commits.
        is_done: Whether everything up to the end is copied.

    """

    entry: int
    is_settled: bool = True
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Assigned:
    """
    One partition in a document.

    Attributes:
        entry: The number of the entry. A partition that is given out again has another one.
        range: Where to copy it to, where it begins without a position, and where it ends.
        waiting_for: Why the former task waited, as it reported last.
        accepted: The kind of incident that an operator has accepted once.

    """

    entry: int
    range: CopyRange
    waiting_for: str | None = None
    accepted: IncidentKind | None = None


#: The desired state of one task: all partitions that it is to copy.
Document: TypeAlias = Mapping[TopicPartition, Assigned]


def document_to_json(document: Document) -> Any:
    """Return a document as JSON."""
    return to_json(document)


def read_document(values: Any) -> Document:
    """Read the JSON of :func:`document_to_json`."""
    document: Document = read_value(Document, values)
    return document
