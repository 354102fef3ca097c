"""
The places at which two logs differ: what each side has between two records that both have. No I/O.

A slot keeps no more than hashes of its records, and only a number of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from .findings import NOWHERE, Place, Side
from .log import LogRecord
from .records import Key, Odd, keys_of

__all__ = ["MOST_DIFFERENT", "Compared", "Slot", "common", "gaps_of", "longest_ascending"]

#: The most likes of one record among which a place is searched.
_MOST_LIKES = 16

#: The records of a partition that may differ before the comparison ends: they are explained one by one.
MOST_DIFFERENT = 131_072


@dataclass(slots=True)
class Slot:
    """
    The records that each side has between two records that both have, and that are not explained yet.

    Attributes:
        source: The source's records.
        destination: The destination's records.
        start: The offsets behind the record before it.
        gaps: The number of offsets of the source and of the destination that have no record.
        end: The offsets of the record behind it.
        is_last: Whether it is at the ends of both sides.
        removed: The number of records of each side that were in gaps of the other.
        all: The records of each side, explained or not.

    """

    source: list[Odd]
    destination: list[Odd]
    start: Place
    gaps: Place = NOWHERE
    end: Place = NOWHERE
    is_last: bool = False
    removed: Place = NOWHERE
    all: tuple[list[Odd], list[Odd]] = field(init=False)

    def __post_init__(self) -> None:
        self.all = self.source, self.destination

    def drop(self, source: Collection[int] = (), destination: Collection[int] = ()) -> None:
        """Take records out by their offsets."""
        self.source = [each for each in self.source if each.offset not in source]
        self.destination = [each for each in self.destination if each.offset not in destination]


@dataclass(slots=True)
class Compared:
    """
    The result of a comparison so far.

    Attributes:
        records: The number of records that are the same.
        batches: The number of batches whose rows are the same.
        decoded: The number of records that were compared one by one.
        slots: The slots, by place; the last one is at the ends of both sides, unless it ended early.
        cut: The place at which it ended early: a log is damaged there, or too many records differ before it.
        room: The number of further records that may differ.

    """

    records: int = 0
    batches: int = 0
    decoded: int = 0
    slots: list[Slot] = field(default_factory=list)
    cut: Place | None = None
    room: int = MOST_DIFFERENT

    def add(self, slot: Slot) -> None:
        """Add a slot, without the records that both sides have in the same order."""
        pairs = common(slot.source, slot.destination)
        self.records += len(pairs)
        self.decoded += len(pairs)
        for each in _split(slot, pairs):
            if each.source or each.destination or each.is_last:
                self.slots.append(each)
                self.room -= 0 if each.is_last else len(each.source) + len(each.destination)


def _split(slot: Slot, pairs: Sequence[tuple[int, int]]) -> Iterator[Slot]:
    """Yield the slots between some pairs of records, and the rest behind them."""
    start, first, gaps = slot.start, NOWHERE, slot.gaps
    for here, there in pairs:
        ours, theirs = slot.source[here], slot.destination[there]
        source, destination = slot.source[first.source : here], slot.destination[first.destination : there]
        own = Place(gaps_of(source) + ours.gap, gaps_of(destination) + theirs.gap)
        yield Slot(source, destination, start, own, Place(ours.offset, theirs.offset))
        start, first = Place(ours.end, theirs.end), Place(here + 1, there + 1)
        gaps = Place(gaps.source - own.source, gaps.destination - own.destination)
    source, destination = slot.source[first.source :], slot.destination[first.destination :]
    yield replace(slot, source=source, destination=destination, start=start, gaps=gaps)


def gaps_of(records: Sequence[Odd]) -> int:
    """Return the number of gaps before records."""
    return sum(each.gap for each in records)


def common(
    source: Sequence[LogRecord | Odd], destination: Sequence[LogRecord | Odd]
) -> list[tuple[int, int]]:
    """Return the indexes of the most records that both sides have in the same order."""
    if not source or not destination:
        return []
    places = _places_of(destination)
    pairs = [(here, there) for here, each in enumerate(source) for there in reversed(_likes_of(each, places))]
    return [pairs[at] for at in longest_ascending([there for _, there in pairs])]


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


def _places_of(destination: Sequence[LogRecord | Odd]) -> dict[Key, list[int]]:
    """Return the indexes of each key."""
    places: dict[Key, list[int]] = {}
    for there, each in enumerate(destination):
        for key in keys_of(each, Side.DESTINATION):
            places.setdefault(key, []).append(there)
    return places


def _likes_of(record: LogRecord | Odd, places: dict[Key, list[int]]) -> Sequence[int]:
    """Return the indexes of the first records that may be a copy of one of the source."""
    found = [places[key] for key in keys_of(record, Side.SOURCE) if key in places]
    if len(found) <= 1:
        return found[0][:_MOST_LIKES] if found else ()
    return sorted(chain.from_iterable(each[:_MOST_LIKES] for each in found))
