"""Records that follow each other and have the same explanation, joined to ranges. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .findings import Difference, DifferenceKind, NotCompared, OffsetRange, Side

__all__ = ["Explanation", "Ranges", "at", "one"]


class Explanation(NamedTuple):
    """
    The explanation of records that differ.

    Attributes:
        kind: How they differ; None if they could not be compared.
        detail: More, as a phrase.
        damaged: The sides on which a batch does not match its CRC.

    """

    kind: DifferenceKind | None
    detail: str | None = None
    damaged: tuple[Side, ...] = ()


@dataclass(slots=True)
class _Range:
    explanation: Explanation
    source: OffsetRange
    destination: OffsetRange
    records: int
    copy_of: OffsetRange | None

    def takes(self, other: _Range) -> bool:
        """
        Take another range in if it follows this one, and has the same explanation; return whether.

        If both are in their places, and nothing lies between them on one side, no record that both logs have
        does on the other: only markers, or offsets that compaction emptied.
        """
        touch = self.source.end == other.source.start, self.destination.end == other.destination.start
        is_in_place = self.copy_of is None and self.explanation.kind is not DifferenceKind.REORDERED
        if (
            self.explanation != other.explanation
            or not (any(touch) if is_in_place else all(touch))
            or not _is_behind(self.source, other.source)
            or not _is_behind(self.destination, other.destination)
        ):
            return False
        if self.copy_of is None or other.copy_of is None:
            if self.copy_of != other.copy_of:
                return False
        elif self.copy_of.end != other.copy_of.start:
            return False
        else:
            self.copy_of = OffsetRange(self.copy_of.start, other.copy_of.end)
        self.source = OffsetRange(self.source.start, other.source.end)
        self.destination = OffsetRange(self.destination.start, other.destination.end)
        self.records += other.records
        return True


def _is_behind(last: OffsetRange, following: OffsetRange) -> bool:
    """Whether a range is behind another; empty ones are places, and must be the same."""
    if last.start == last.end or following.start == following.end:
        return last == following
    return last.end <= following.start


class Ranges:
    """Collects ranges, in any order."""

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def add(
        self,
        explanation: Explanation,
        source: OffsetRange,
        destination: OffsetRange,
        records: int = 1,
        copy_of: OffsetRange | None = None,
    ) -> None:
        """Add some records."""
        found = _Range(explanation, source, destination, records, copy_of)
        if not self._ranges or not self._ranges[-1].takes(found):
            self._ranges.append(found)

    def _joined(self) -> Sequence[_Range]:
        joined: list[_Range] = []
        for each in sorted(self._ranges, key=lambda each: (each.source, each.destination)):
            if not joined or not joined[-1].takes(each):
                joined.append(replace(each))
        return joined

    def differences(self) -> list[Difference]:
        """Return the ranges that differ, by place."""
        return [
            Difference(kind, each.source, each.destination, each.records, damaged, each.copy_of, detail)
            for each in self._joined()
            for kind, detail, damaged in [each.explanation]
            if kind is not None
        ]

    def not_compared(self) -> list[NotCompared]:
        """Return the ranges that could not be compared, by place."""
        return [
            NotCompared(each.source, each.destination, each.records, each.explanation.detail or "")
            for each in self._joined()
            if each.explanation.kind is None
        ]


def one(offset: int) -> OffsetRange:
    """Return the range of one record."""
    return OffsetRange(offset, offset + 1)


def at(place: int) -> OffsetRange:
    """Return the empty range before a record."""
    return OffsetRange(place, place)
