"""
The places at which two logs differ: what each side has between two records that both have. No I/O.

A slot keeps no more than hashes of its records, and only a number of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from .findings import Side
from .log import LogRecord
from .records import Key, Odd, keys_of

__all__ = ["MOST_KEPT", "NOWHERE", "Compared", "Place", "Slot", "likes_of", "longest_ascending", "places_of"]

#: The most likes of one record among which a place is searched.
_MOST_LIKES = 16

#: The most records of a partition that differ and are kept, to explain them one by one; others are counted.
MOST_KEPT = 131_072


class Place(NamedTuple):
    """Offsets of both sides that belong together, or numbers of both."""

    source: int
    destination: int


NOWHERE = Place(0, 0)


class Slot(NamedTuple):
    """
    The records that each side has between two records that both have.

    Attributes:
        source: The source's records.
        destination: The destination's records.
        start: The offsets behind the record before it.
        gaps: The number of offsets of the source and of the destination that have no record.
        end: The offsets of the record behind it.
        is_last: Whether it is at the ends of both sides.
        more: The number of further records of each side, which were too many to keep.

    """

    source: list[Odd]
    destination: list[Odd]
    start: Place
    gaps: Place = NOWHERE
    end: Place = NOWHERE
    is_last: bool = False
    more: Place = NOWHERE


@dataclass(slots=True)
class Compared:
    """
    The result of a comparison so far.

    Attributes:
        records: The number of records that are the same.
        batches: The number of batches whose rows are the same.
        decoded: The number of records that were compared one by one.
        slots: The slots, by place; the last one is at the ends of both sides.

    """

    records: int = 0
    batches: int = 0
    decoded: int = 0
    slots: list[Slot] = field(default_factory=list)
    _kept: int = 0

    def add(self, slot: Slot) -> None:
        """Add a slot, without the records that both sides have in the same order."""
        pairs = _common(slot)
        self.records += len(pairs)
        self.decoded += len(pairs)
        for each in _split(slot, pairs):
            if each.source or each.destination or each.is_last or any(each.more):
                self._keep(each)

    def _keep(self, slot: Slot) -> None:
        """Keep a slot, or only the number of its records if there are too many already."""
        records = Place(len(slot.source), len(slot.destination))
        if not self._kept or self._kept + sum(records) <= MOST_KEPT or slot.is_last:
            self._kept += sum(records)
        elif any(self.slots[-1].more):
            before = self.slots.pop()
            more = Place(before.more.source + records.source, before.more.destination + records.destination)
            slot = before._replace(more=more, end=slot.end)
        else:
            slot = slot._replace(source=[], destination=[], more=records)
        self.slots.append(slot)


def _split(slot: Slot, pairs: Sequence[Place]) -> Iterator[Slot]:
    """Yield the slots between some pairs of records, and the rest behind them."""
    start, first, gaps = slot.start, NOWHERE, slot.gaps
    for here, there in pairs:
        ours, theirs = slot.source[here], slot.destination[there]
        source, destination = slot.source[first.source : here], slot.destination[first.destination : there]
        own = Place(_gaps(source) + ours.gap, _gaps(destination) + theirs.gap)
        yield Slot(source, destination, start, own, Place(ours.offset, theirs.offset))
        start, first = Place(ours.end, theirs.end), Place(here + 1, there + 1)
        gaps = Place(gaps.source - own.source, gaps.destination - own.destination)
    source, destination = slot.source[first.source :], slot.destination[first.destination :]
    yield slot._replace(source=source, destination=destination, start=start, gaps=gaps)


def _gaps(records: Sequence[Odd]) -> int:
    return sum(each.gap for each in records)


def _common(slot: Slot) -> list[Place]:
    """Return the indexes of the longest part that both sides have in the same order."""
    if not slot.source or not slot.destination:
        return []
    places = places_of(slot.destination)
    pairs = [
        Place(here, there)
        for here, each in enumerate(slot.source)
        for there in reversed(likes_of(each, places))
    ]
    return [pairs[at] for at in longest_ascending([pair.destination for pair in pairs])]


def longest_ascending(numbers: Sequence[int]) -> list[int]:
    """Return the indexes of the most numbers that ascend (patience sorting)."""
    smallest: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for index, number in enumerate(numbers):
        length = bisect_left(smallest, number)
        before.append(ends[length - 1] if length else None)
        if length == len(ends):
            smallest.append(number)
            ends.append(index)
        else:
            smallest[length], ends[length] = number, index
    found: list[int] = []
    last = ends[-1] if ends else None
    while last is not None:
        found.append(last)
        last = before[last]
    return found[::-1]


def places_of(destination: Sequence[LogRecord | Odd]) -> dict[Key, list[int]]:
    """Return the indexes of each key."""
    places: dict[Key, list[int]] = {}
    for there, each in enumerate(destination):
        for key in keys_of(each, Side.DESTINATION):
            places.setdefault(key, []).append(there)
    return places


def likes_of(record: LogRecord | Odd, places: dict[Key, list[int]]) -> Sequence[int]:
    """Return the indexes of the first records that may be a copy of one of the source."""
    found = [places[key] for key in keys_of(record, Side.SOURCE) if key in places]
    if len(found) <= 1:
        return found[0][:_MOST_LIKES] if found else ()
    return sorted(chain.from_iterable(each[:_MOST_LIKES] for each in found))
