"""
Which offset of one cluster is which of the other.

A mirror writes the records that it copies one behind the other. So each source offset has one translation:
the destination offset of the first mirrored record at or after it. A *milestone* is a source offset and its
translation; each committed position is one. Between two milestones that lie equally far apart on both sides,
each offset had a record, and was mirrored: there the translation is arithmetic. Elsewhere something was
dropped (transaction markers, aborted records, offsets that compaction removed), and :class:`OffsetMap` asks
which source offsets a copy would take. If they are as many as the destination offsets, the translation is
exact. If they are fewer, compaction has removed some since, and the translation is a lower bound: no record
is missed.

:class:`AcknowledgedRun` says the same of offsets that were just acknowledged.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from ...records import Record

__all__ = [
    "AcknowledgedRun",
    "Exactness",
    "Milestone",
    "OffsetMap",
    "Stretch",
    "Taken",
    "Translation",
    "add_run",
    "spans_of",
]


@dataclass(frozen=True, slots=True)
class AcknowledgedRun:
    """
    A run of consecutive source offsets whose records the destination has acknowledged.

    Source offset ``n`` of a run is ``destination_start + n - source_start`` at the destination. So runs
    translate a consumer's offset from one cluster to the other (docs/datasource.md has an example).

    Attributes:
        source_start: The first source offset.
        source_end: The source offset behind the last one.
        destination_start: The destination offset of ``source_start``.

    Examples:
        >>> import shoal
        >>> run = shoal.AcknowledgedRun(source_start=5, source_end=8, destination_start=100)
        >>> run.destination_start + 6 - run.source_start
        101

    """

    source_start: int
    source_end: int
    destination_start: int


def add_run(runs: list[list[int]], source_start: int, source_end: int, landed: int) -> None:
    """Extend the last run (the values of :class:`AcknowledgedRun`) by a batch, or begin a new run."""
    if runs:
        last = runs[-1]
        if last[1] == source_start and source_start - last[0] == landed - last[2]:
            last[1] = source_end
            return
    runs.append([source_start, source_end, landed])


def spans_of(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Return the runs of consecutive offsets, as pairs of first and end."""
    spans: list[tuple[int, int]] = []
    for record in records:
        if spans and spans[-1][1] == record.offset:
            spans[-1] = spans[-1][0], record.offset + 1
        else:
            spans.append((record.offset, record.offset + 1))
    return spans


class Exactness(enum.Enum):
    """The value is the word in tables and reports."""

    #: The first mirrored record at or after the offset; nothing is read twice, nothing is missed.
    EXACT = "exact"
    #: The mirror has not reached the offset; the translation is that of its position.
    AHEAD = "ahead"
    #: Nothing is missed; records may be read twice.
    AT_LEAST = "at least"


class Translation(NamedTuple):
    """An offset of the other cluster, and how exact it is."""

    offset: int
    exactness: Exactness


class Stretch(enum.IntEnum):
    """How far a map trusts the offsets between a milestone and the one before it. The value is stored."""

    #: All mirrored source offsets in between are in between at the destination, and nothing else is.
    KNOWN = 0
    #: An incident lies in between: records of others, or records that one side lost.
    BROKEN = 1
    #: A version without maps mirrored it: as ``KNOWN`` if as many offsets were taken as there are records.
    UNPROVED = 2


class Milestone(NamedTuple):
    """
    A source offset and its translation.

    Attributes:
        source: All mirrored records before this source offset lie before ``destination``, and no others do.
        destination: The destination offset of the first mirrored record at or after ``source``.
        stretch: How far the offsets behind the milestone before are trusted.

    """

    source: int
    destination: int
    stretch: Stretch = Stretch.KNOWN


#: Returns the source offsets between two that a copy would take now, as spans of first and end;
#: None if some of them cannot be read any more.
Taken = Callable[[int, int], "Sequence[tuple[int, int]] | None"]

#: So many milestones stay. Their distance doubles backwards, so 40 reach over all offsets there are.
_MOST_MILESTONES = 40

_EARLIEST = Translation(0, Exactness.AT_LEAST)


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """
    The milestones of one partition, from its mirror's first offset to its position.

    Attributes:
        milestones: Ascending on both sides, at least one; the last is the mirror's position.
        is_whole: Whether the first milestone is where the mirror began: it copied nothing before.

    """

    milestones: tuple[Milestone, ...]
    is_whole: bool = True

    # Growing

    def reached(self, source: int, destination: int, stretch: Stretch = Stretch.KNOWN) -> OffsetMap:
        """Return the map with the mirror's new position, thinned; the same map if nothing moved."""
        last = self.milestones[-1]
        if (source, destination) == (last.source, last.destination):
            return self
        kept = _thinned((*self.milestones, Milestone(source, destination, stretch)))
        return OffsetMap(kept, self.is_whole and kept[0] == self.milestones[0])

    def cut(self, source: int, destination: int) -> OffsetMap:
        """Return the map up to the offsets behind which one side lost its records."""
        kept = [each for each in self.milestones if each.source <= source and each.destination <= destination]
        if kept:
            return replace(self, milestones=tuple(kept))
        return OffsetMap((Milestone(source, destination),), is_whole=False)

    # Translating

    def to_destination(self, offset: int, taken: Taken) -> Translation:
        """
        Return the destination offset of the first mirrored record at or after a source offset.

        Args:
            offset: The source offset; one before the source's log start means the log start.
            taken: Called if arithmetic is not enough, for the offsets between two milestones.

        """
        after = bisect_right(self.milestones, offset, key=attrgetter("source"))
        if after == 0:
            first = self.milestones[0]
            return Translation(first.destination, Exactness.EXACT) if self.is_whole else _EARLIEST
        begin = self.milestones[after - 1]
        if after == len(self.milestones):
            is_reached = offset == begin.source
            return Translation(begin.destination, Exactness.EXACT if is_reached else Exactness.AHEAD)
        end = self.milestones[after]
        if offset == begin.source:
            return Translation(begin.destination, Exactness.EXACT)
        if end.stretch is Stretch.BROKEN:
            return Translation(begin.destination, Exactness.AT_LEAST)
        lowest, highest = begin.destination, begin.destination + offset - begin.source
        if end.stretch is Stretch.KNOWN:
            lowest = max(lowest, end.destination - (end.source - offset))
            highest = min(highest, end.destination)
            if lowest == highest:
                return Translation(lowest, Exactness.EXACT)
        spans = taken(begin.source, end.source)
        if spans is not None and _count(spans) == end.destination - begin.destination:
            before = _count((first, min(last, offset)) for first, last in spans if first < offset)
            return Translation(begin.destination + before, Exactness.EXACT)
        return Translation(lowest, Exactness.AT_LEAST)

    def to_source(self, offset: int, taken: Taken) -> Translation:
        """
        Return a source offset from which on all mirrored records lie at or after a destination offset.

        Args:
            offset: The destination offset.
            taken: As for :meth:`to_destination`.

        """
        after = bisect_right(self.milestones, offset, key=attrgetter("destination"))
        if after == 0:
            return _EARLIEST
        begin = self.milestones[after - 1]
        if after == len(self.milestones):
            is_reached = offset == begin.destination
            return Translation(begin.source, Exactness.EXACT if is_reached else Exactness.AHEAD)
        end = self.milestones[after]
        if offset == begin.destination:
            return Translation(begin.source, Exactness.EXACT)
        if end.stretch is Stretch.BROKEN:
            return Translation(begin.source, Exactness.AT_LEAST)
        records = offset - begin.destination
        lowest = begin.source + records
        if end.stretch is Stretch.KNOWN and end.source - begin.source == end.destination - begin.destination:
            return Translation(lowest, Exactness.EXACT)
        spans = taken(begin.source, end.source)
        if spans is not None and _count(spans) == end.destination - begin.destination:
            return Translation(_nth(spans, records), Exactness.EXACT)
        return Translation(lowest, Exactness.AT_LEAST)

    # Storing

    def to_json_object(self) -> list[list[int]]:
        """
        Return the milestones for a commit's metadata: the last as it is, the others by their distance to it.

        A map that is not whole ends with an empty list.
        """
        last = self.milestones[-1]
        stored = [
            [last.source - each.source, last.destination - each.destination, each.stretch.value]
            for each in reversed(self.milestones)
        ]
        stored = [each if each[2] else each[:2] for each in stored]
        stored[0][:2] = last.source, last.destination
        return stored if self.is_whole else [*stored, []]

    @classmethod
    def from_json_object(cls, stored: list[list[int]]) -> OffsetMap:
        """
        Read the result of :meth:`to_json_object`.

        Raises:
            ValueError: It is not such a list, or does not ascend.

        """
        whole = bool(stored and stored[-1])
        (source, destination, *_), *_ = stored
        milestones = [Milestone(source, destination, _stretch(stored[0]))]
        for each in stored[1:] if whole else stored[1:-1]:
            milestones.insert(0, Milestone(source - each[0], destination - each[1], _stretch(each)))
            if not (0 <= milestones[0].source <= milestones[1].source) or not (
                0 <= milestones[0].destination <= milestones[1].destination
            ):
                raise ValueError(f"milestones do not ascend: {milestones[:2]}")
        return cls(tuple(milestones), whole)


def _stretch(stored: list[int]) -> Stretch:
    return Stretch(stored[2]) if len(stored) > 2 else Stretch.KNOWN


def _count(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in spans)


def _nth(spans: Sequence[tuple[int, int]], number: int) -> int:
    for first, end in spans:
        if number < end - first:
            return first + number
        number -= end - first
    raise ValueError("there are fewer offsets")


def _thinned(milestones: tuple[Milestone, ...]) -> tuple[Milestone, ...]:
    """Leave out milestones that say nothing new, and as many others as are too many."""
    kept = list(milestones)
    if len(kept) > 2 and _is_between(*kept[-3:]):
        del kept[-2]
    while len(kept) > _MOST_MILESTONES:
        between = [index for index in range(1, len(kept) - 1) if _is_in_one_segment(kept, index)]
        if not between:
            return tuple(kept[-_MOST_MILESTONES:])
        del kept[min(between, key=lambda index: _worth(kept, index))]
    return tuple(kept)


def _is_in_one_segment(milestones: Sequence[Milestone], index: int) -> bool:
    """Whether the map stays right without a milestone: it is not at the edge of anything."""
    return milestones[index].stretch is milestones[index + 1].stretch is Stretch.KNOWN


def _is_between(before: Milestone, middle: Milestone, after: Milestone) -> bool:
    """Whether arithmetic finds the milestone in the middle from the other two."""
    return (
        middle.stretch is after.stretch is Stretch.KNOWN
        and middle.source - before.source == middle.destination - before.destination
        and after.source - middle.source == after.destination - middle.destination
    )


def _worth(milestones: Sequence[Milestone], index: int) -> float:
    """Return the length of the stretch without a milestone, in relation to its distance from the position."""
    length = milestones[index + 1].source - milestones[index - 1].source
    return length / (1 + milestones[-1].source - milestones[index + 1].source)
