"""
Which offset of one cluster is which of the other.

A mirror writes the records that it copies one behind the other. So each source offset has one translation:
the destination offset of the first mirrored record at or after it. A *milestone* is a source offset and its
translation; each committed position is one. Between two milestones that lie equally far apart on both sides,
each offset had a record, and was mirrored: there the translation is arithmetic. Elsewhere something was
dropped (transaction markers, aborted records, offsets that compaction removed), and arithmetic finds a lower
bound: no record is missed. :mod:`.counting` makes it exact, by the records that the source still has.

Acknowledged records alone move a position without a doubt. Each other way to move it ends a stretch:

======================  =============================================================================
Event                   Its effect on the map
======================  =============================================================================
foreign records         two milestones with one source offset, ``BROKEN`` in between
at-least-once delivery  likewise, but ``REPEATED``: behind a position there may be records of other writers,
                        and copies of unknown outcome, which the mirror copies again
destination loss        cut where the mirror's last batch ends; ``BROKEN`` up to the new position. A copy
                        that was created again, or of which nothing is left, begins a new map
source reset            cut where both source logs part; ``BROKEN`` up to the new position. A topic that
                        was created again begins a new map
source retention        two milestones with one destination offset, ``BROKEN`` in between
send failure            likewise, around the skipped batches
resumed behind the      nothing: the position leads to them
position
adopted copy            from the beginning of the comparison, ``KNOWN`` if the copy has a record at each
                        offset, else ``BROKEN``
first position          a new map; it is whole if the copy never held a record
crop, rebuilt batches,  nothing: their records are counted as acknowledged
joined batches
next task or worker     nothing: it takes the map over
======================  =============================================================================

A milestone where nothing lies between the two on one side is exact on the other, whatever its stretch is.
The exception is ``REPEATED``: from the first such stretch on, any record may be at the destination twice, so
all translations of the map are lower bounds.

``AcknowledgedRun`` says the same of offsets that were just acknowledged.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from ...json_values import typed

__all__ = [
    "Exactness",
    "Milestone",
    "OffsetMap",
    "Question",
    "Stretch",
    "Translation",
]


class Exactness(enum.Enum):
    """The value is the word in tables and reports."""

    #: The first mirrored record at or after the offset; nothing is read twice, nothing is missed.
    EXACT = "exact"
    #: The mirror has not reached the offset; the translation is that of its position.
    AHEAD = "ahead"
    #: Nothing is missed; records may be read twice.
    AT_LEAST = "at least"


class Question(NamedTuple):
    """
    An offset to translate.

    Attributes:
        is_source: Whether it is one of the map's source; otherwise it is one of the destination.

    """

    offset: int
    is_source: bool


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
    #: As ``BROKEN``, and copies of records that the mirror copied again, or had copied before, may lie there.
    REPEATED = 3


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


#: The number of milestones that stay. Their distance doubles backwards, so 40 reach over all offsets.
MOST_MILESTONES = 40

#: The number of edges of gaps that become milestones at a time. Most of them would be thinned at once.
MOST_EDGES = 32

#: Larger than any offset.
_OFFSETS = 2**63

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

    @classmethod
    def begun_at(
        cls, source: int, destination: int, *, is_whole: bool | None = None, is_repeated: bool = False
    ) -> OffsetMap:
        """
        Return the map of a mirror that begins there.

        Args:
            source: The first source offset.
            destination: The destination offset of its record.
            is_whole: See :class:`OffsetMap`; None if only an empty copy's map is.
            is_repeated: Whether the mirror may have copied records before that it copies again.

        """
        stretch = Stretch.REPEATED if is_repeated and destination else Stretch.KNOWN
        is_whole = destination == 0 if is_whole is None else is_whole
        return cls((Milestone(source, destination, stretch),), is_whole)

    # Growing

    def reached(self, source: int, destination: int, stretch: Stretch = Stretch.KNOWN) -> OffsetMap:
        """
        Return the map with the mirror's new position, thinned; the same map if nothing moved.

        A position that goes back on one side is behind an incident: the map is cut there, and the rest is not
        trusted.
        """
        last = self.milestones[-1]
        if (source, destination) == (last.source, last.destination):
            return self
        if source < last.source or destination < last.destination:
            return self.cut(source, destination).reached(source, destination, Stretch.BROKEN)
        added = (*self.milestones, Milestone(source, destination, stretch))
        return replace(self, milestones=_thinned(added, MOST_MILESTONES))

    def passed(self, edges: Sequence[tuple[int, int]]) -> OffsetMap:
        """
        Return the map with the newest of the gaps that the mirror has passed.

        Args:
            edges: A source and a destination offset for both edges of each gap, ascending.

        """
        found = self
        for source, destination in edges[max(0, len(edges) - MOST_EDGES) :]:
            found = found.reached(source, destination)
        return found

    def cut(self, source: int, destination: int) -> OffsetMap:
        """Return the map up to the offsets behind which one side lost its records."""
        kept = [each for each in self.milestones if each.source <= source and each.destination <= destination]
        dropped = self.milestones[len(kept) :]
        is_repeated = _has_repeated(dropped)
        if not kept:
            return OffsetMap.begun_at(source, destination, is_whole=False, is_repeated=is_repeated)
        begin = kept[-1]
        if is_repeated:
            # The mirror may go on before the records of which the stretch has copies.
            kept[0] = kept[0]._replace(stretch=Stretch.REPEATED)
            kept.append(Milestone(source, destination, Stretch.REPEATED))
        elif dropped and _is_dense(begin, dropped[0]):
            further = min(source - begin.source, destination - begin.destination)
            if further:
                kept.append(Milestone(begin.source + further, begin.destination + further))
        return replace(self, milestones=tuple(kept))

    def counted_otherwise(self) -> OffsetMap:
        """
        Return the map after a change of the isolation level: its gaps cannot be counted any more.

        A reader of the present level sees more records than were mirrored, or fewer. A stretch without a gap
        needs no count.
        """
        milestones = [self.milestones[0]]
        for begin, end in pairwise(self.milestones):
            needs_count = not _is_dense(begin, end)
            is_trusted = end.stretch is Stretch.KNOWN
            milestones.append(end._replace(stretch=Stretch.BROKEN) if needs_count and is_trusted else end)
        return replace(self, milestones=tuple(milestones))

    def behind(self, before: OffsetMap | None) -> OffsetMap:
        """Return the map with another in front; without it if that does not end where this one begins."""
        if before is None or before.milestones[-1]._replace(stretch=Stretch.KNOWN) != self.milestones[0]:
            return self
        return replace(before, milestones=(*before.milestones, *self.milestones[1:]))

    def with_at_most(self, milestones: int) -> OffsetMap:
        """Return the map thinned to so many milestones, at least two."""
        return replace(self, milestones=_thinned(self.milestones, milestones))

    # Translating

    def translate(self, question: Question) -> Translation:
        """Return the offset of the other side from which on a consumer misses no mirrored record."""
        find = self._destination_of if question.is_source else self.source_of
        found = find(question.offset)
        if found.exactness is Exactness.EXACT and self._may_repeat(question):
            return found._replace(exactness=Exactness.AT_LEAST)
        return found

    def _may_repeat(self, question: Question) -> bool:
        """Whether records may be there twice; to a copy, those before the map do not matter."""
        return _has_repeated(self.milestones[1:] if question.is_source else self.milestones)

    def _destination_of(self, offset: int) -> Translation:
        """Translate without regard to records that are at the destination twice."""
        after = bisect_right(self.milestones, offset, key=attrgetter("source"))
        if after == 0:
            first = self.milestones[0]
            return Translation(first.destination, Exactness.EXACT) if self.is_whole else _EARLIEST
        begin = self.milestones[after - 1]
        if offset == begin.source:
            return Translation(begin.destination, Exactness.EXACT)
        if after == len(self.milestones):
            return Translation(begin.destination, Exactness.AHEAD)
        end = self.milestones[after]
        if begin.destination == end.destination:
            return Translation(begin.destination, Exactness.EXACT)
        if end.stretch is not Stretch.KNOWN:
            return Translation(begin.destination, Exactness.AT_LEAST)
        lowest = max(begin.destination, end.destination - (end.source - offset))
        highest = min(begin.destination + offset - begin.source, end.destination)
        return Translation(lowest, Exactness.EXACT if lowest == highest else Exactness.AT_LEAST)

    def source_of(self, offset: int) -> Translation:
        """Return the source offset of the first record that the mirror wrote from a destination offset on."""
        after = bisect_right(self.milestones, offset, key=attrgetter("destination"))
        if after == 0:
            return _EARLIEST
        begin = self.milestones[after - 1]
        if offset == begin.destination:
            return Translation(begin.source, Exactness.EXACT)
        if after == len(self.milestones):
            return Translation(begin.source, Exactness.AHEAD)
        end = self.milestones[after]
        if end.stretch is not Stretch.KNOWN:
            return Translation(begin.source, Exactness.AT_LEAST)
        lowest = begin.source + offset - begin.destination
        return Translation(lowest, Exactness.EXACT if _is_dense(begin, end) else Exactness.AT_LEAST)

    def around(self, question: Question) -> tuple[Milestone, Milestone] | None:
        """
        Return the milestones between which counting makes a translation exact that is *at least*.

        None if it is another one, or if nothing makes it exact: an incident lies near it, or the offset is
        older than the map.
        """
        side = attrgetter("source" if question.is_source else "destination")
        after = bisect_right(self.milestones, question.offset, key=side)
        if not 0 < after < len(self.milestones) or self._may_repeat(question):
            return None
        begin, end = self.milestones[after - 1 : after + 1]
        is_open = self.translate(question).exactness is Exactness.AT_LEAST
        return (begin, end) if is_open and end.stretch is Stretch.KNOWN else None

    def with_known(self, places: Iterable[Milestone]) -> OffsetMap:
        """Return the map with places that were counted in its stretches; it is not thinned."""
        own = {(each.source, each.destination) for each in self.milestones}
        added = [each for each in set(places) if (each.source, each.destination) not in own]
        return replace(self, milestones=tuple(sorted([*self.milestones, *added]))) if added else self

    # Storing

    def to_json_object(self) -> list[int]:
        """Return whether it is whole, and both distances and the stretch of each milestone."""
        numbers, last = [int(self.is_whole)], Milestone(0, 0)
        for each in self.milestones:
            numbers += each.source - last.source, each.destination - last.destination, each.stretch
            last = each
        return numbers

    @classmethod
    def from_json_object(cls, stored: Any) -> OffsetMap:
        """
        Read the result of :meth:`to_json_object`.

        Raises:
            TypeError: The object is no list of whole numbers.
            ValueError: The numbers are no milestones, or these do not ascend.

        """
        is_whole, *numbers = (typed(int, each) for each in typed(list, stored))
        milestones: list[Milestone] = []
        last = Milestone(0, 0)
        for source, destination, stretch in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            if min(source, destination) < 0:
                raise ValueError(f"milestones do not ascend behind {last}")
            last = Milestone(last.source + source, last.destination + destination, Stretch(stretch))
            milestones.append(last)
        if not milestones or max(last[:2]) >= _OFFSETS:
            raise ValueError(f"{stored!r} is no offset map")
        return cls(tuple(milestones), bool(is_whole))


def _has_repeated(milestones: Iterable[Milestone]) -> bool:
    return any(each.stretch is Stretch.REPEATED for each in milestones)


def _is_dense(begin: Milestone, end: Milestone) -> bool:
    """Whether each source offset from one milestone to the next has its record at the destination."""
    is_as_long = end.source - begin.source == end.destination - begin.destination
    return end.stretch is Stretch.KNOWN and is_as_long


# Thinning


def _thinned(milestones: tuple[Milestone, ...], most: int) -> tuple[Milestone, ...]:
    """
    Leave out milestones that add nothing, and as many others as are too many.

    The edges of stretches that are not known may be half of them; older ones are joined.
    """
    kept = list(milestones)
    if len(kept) > 2 and _is_between(*kept[-3:]):
        del kept[-2]
    while len(kept) > most:
        removed = _least_worth(kept, most // 2)
        behind = kept[removed + 1]
        kept[removed : removed + 2] = [behind._replace(stretch=max(kept[removed].stretch, behind.stretch))]
    return tuple(kept)


def _least_worth(milestones: Sequence[Milestone], most_edges: int) -> int:
    """Return the index of the milestone whose absence costs the shortest time, or of an old edge."""
    position = milestones[-1].source
    edges: list[int] = []
    least, least_worth = 0, math.inf
    for index in range(1, len(milestones) - 1):
        before, middle, after = milestones[index - 1 : index + 2]
        if middle.stretch is not Stretch.KNOWN or after.stretch is not Stretch.KNOWN:
            edges.append(index)
            continue
        # The length of the stretch without it, in relation to the distance from the position.
        worth = (after.source - before.source) / (1 + position - after.source)
        if worth < least_worth:
            least, least_worth = index, worth
    return edges[0] if len(edges) > most_edges or not least else least


def _is_between(before: Milestone, middle: Milestone, after: Milestone) -> bool:
    """Whether arithmetic finds the milestone in the middle from the other two."""
    return _is_dense(before, middle) and _is_dense(middle, after)
