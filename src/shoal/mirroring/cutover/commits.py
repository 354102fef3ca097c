"""The offsets that a cut-over commits: which of them the destination has, and which it may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...topic_partition import TopicPartition
from ..sync.report import Action, GroupOffset, GroupsReport
from .certificate import CutGroupOffset

__all__ = ["Commits", "cut_offsets"]

_Key = tuple[str, TopicPartition]


@dataclass
class Commits:
    """
    The offsets of a cut-over, by group and destination partition.

    Attributes:
        done: The offsets that the destination has confirmed, or has shown since.
        unconfirmed: Those whose commit began and has no answer, and that it has not shown since.

    """

    done: dict[_Key, GroupOffset] = field(default_factory=dict)
    unconfirmed: dict[_Key, GroupOffset] = field(default_factory=dict)

    def begin(self, preview: GroupsReport) -> None:
        """Take the offsets that are committed next. Without an outcome, they remain unconfirmed."""
        for key, offset in _offsets(preview):
            if offset.action is Action.WRITE:
                self.unconfirmed[key] = offset

    def end(self, outcome: GroupsReport) -> None:
        """Take the outcome of the commits."""
        for key, offset in _offsets(outcome):
            before = self.unconfirmed.pop(key, None)
            if offset.action is Action.UNCONFIRMED:
                self.unconfirmed[key] = offset
            elif offset.action is Action.WRITTEN or (
                before is not None and offset.action is Action.UNCHANGED
            ):
                self.done[key] = offset

    def see(self, report: GroupsReport) -> None:
        """Take the offsets that the destination has now; one that it lacks may still be on its way."""
        for key, offset in _offsets(report):
            if key in self.unconfirmed and offset.action is Action.UNCHANGED:
                del self.unconfirmed[key]
                self.done[key] = offset


def _offsets(report: GroupsReport) -> Iterator[tuple[_Key, GroupOffset]]:
    for group in report.groups:
        for offset in group.offsets:
            if offset.counterpart is not None:
                yield (offset.group, offset.counterpart), offset


def cut_offsets(report: GroupsReport) -> list[CutGroupOffset]:
    """Return the offsets of groups for the certificate."""
    return [
        CutGroupOffset(
            each.group,
            each.partition.topic,
            each.partition.partition,
            each.committed,
            each.translated,
            None if each.exactness is None else each.exactness.value,
            each.action.value,
        )
        for group in report.groups
        for each in group.offsets
        if each.action is not Action.NOT_MIRRORED
    ]
