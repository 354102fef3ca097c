"""The one judge of copies and of readers: each record once, in order, and no other.

Each due record has a place: its number among all that are due. `judge_copy` follows a copy, `compare` all
partitions of two topics, and `judge` a reader from stay to stay.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from rig.record import Record

__all__ = ["Loss", "Stay", "Verdict", "compare", "judge", "judge_copy"]

#: Number of wrong records of a kind to describe.
_DESCRIBED = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of records, and descriptions of the first wrong ones.

    Attributes:
        due: Records that have to arrive.
        arrived: Arrivals, of any kind.
        missing: Due records that did not arrive.
        twice: Arrivals of records that had arrived before.
        late: Arrivals after a record that is due later.
        foreign: Arrivals of records that are not due.
        again: Arrivals of records that had arrived before, as is allowed.
        lacking: The places of the records that are missing, or that were reported as lost.
    """

    due: int = 0
    arrived: int = 0
    missing: int = 0
    twice: int = 0
    late: int = 0
    foreign: int = 0
    again: int = 0
    details: tuple[str, ...] = ()
    lacking: tuple[int, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether no record is wrong; those that may arrive again are not."""
        return not (self.missing or self.twice or self.late or self.foreign)

    def of(self, name: str) -> Verdict:
        """Return the same with a name before each description."""
        return replace(self, details=tuple(f"{name}: {each}" for each in self.details))

    def __str__(self) -> str:
        return (
            f"{self.arrived} records arrived, {self.missing} missing, {self.twice} twice, {self.late} late, "
            f"{self.foreign} foreign, {self.again} again"
        )

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.due + other.due,
            self.arrived + other.arrived,
            self.missing + other.missing,
            self.twice + other.twice,
            self.late + other.late,
            self.foreign + other.foreign,
            self.again + other.again,
            self.details + other.details,
            self.lacking + other.lacking,
        )


class _Order(Enum):
    """The order of an arrival among the others."""

    NEXT = "next"
    LATE = "late"
    AGAIN = "again"


class _Places:
    """The places of one log's records that have arrived, a byte for each."""

    def __init__(self, first: int = 0) -> None:
        """Begin at a place; those before it count as arrived."""
        self._arrived = bytearray(b"\1" * first)

    def arrive(self, place: int) -> _Order:
        """Note an arrival."""
        if place >= len(self._arrived):
            self._arrived.extend(bytes(place - len(self._arrived)) + b"\1")
            return _Order.NEXT
        if self._arrived[place]:
            return _Order.AGAIN
        self._arrived[place] = 1
        return _Order.LATE

    def has(self, place: int) -> bool:
        return place < len(self._arrived) and bool(self._arrived[place])

    @property
    def end(self) -> int:
        """The place after the newest one that has arrived."""
        return len(self._arrived)


@dataclass(frozen=True, slots=True)
class Stay:
    """The records of one partition that a reader read at one cluster, up to its commit.

    Attributes:
        where: The cluster's name, for descriptions.
        is_exact: Whether the reader began where it had ended, or at an offset of its own.
        records: The records in the order in which it read them.
    """

    where: str
    is_exact: bool
    records: Sequence[Hashable]


class Loss(NamedTuple):
    """Records that a mirror reported as lost, once.

    Attributes:
        records: How many records; None if it could not count them.
        before: The place before which all of them were.
    """

    records: int | None
    before: int


def judge(
    expected: Sequence[Hashable],
    stays: Sequence[Stay],
    first: int = 0,
    *,
    to_end: bool = True,
    least: int = 0,
    in_order: bool = True,
    lost: Collection[Hashable] = (),
    losses: Sequence[Loss] = (),
) -> Verdict:
    """Follow a reader through a partition, from stay to stay.

    Args:
        expected: The source's records in order; no two are equal.
        stays: All stays of the reader.
        first: The place of the first record that it has to read.
        to_end: Whether the last stay has to read to the end.
        least: The number of first records that it has to read otherwise, at the least.
        in_order: Whether a record that arrives late is wrong.
        lost: Records that may be missing, as they were deleted.
        losses: The numbers of further records that may be missing.
    """
    places = {record: place for place, record in enumerate(expected)}
    followed, verdict = _Places(first), Verdict()
    for number, stay in enumerate(stays):
        verdict += _follow(places, followed, stay, in_order, lost).of(f"stay {number} at the {stay.where}")
    end = len(expected) if to_end else max(least, followed.end)
    due = range(len(expected))[first:end]
    lacking = [place for place in due if not followed.has(place) and expected[place] not in lost]
    missing = [expected[place] for place in sorted(_unreported(lacking, losses))]
    details = _described("missing", missing)
    return verdict + Verdict(len(due), missing=len(missing), details=details, lacking=tuple(lacking))


def _follow(
    places: Mapping[Hashable, int],
    followed: _Places,
    stay: Stay,
    in_order: bool,
    lost: Collection[Hashable],
) -> Verdict:
    foreign: list[Hashable] = []
    repeated: list[Hashable] = []
    late: list[Hashable] = []
    for record in stay.records:
        place = places.get(record)
        if place is None:
            foreign.append(record)
            continue
        match followed.arrive(place):
            case _Order.AGAIN:
                repeated.append(record)
            case _Order.LATE if record in lost:  # another cluster still has it
                repeated.append(record)
            case _Order.LATE if in_order:
                late.append(record)
    twice, again = (repeated, []) if stay.is_exact else ([], repeated)
    details = _described("read twice", twice) + _described("late", late) + _described("foreign", foreign)
    return Verdict(
        arrived=len(stay.records),
        twice=len(twice),
        late=len(late),
        foreign=len(foreign),
        again=len(again),
        details=details,
    )


def _described(what: str, records: Sequence[Hashable]) -> tuple[str, ...]:
    return tuple(f"{what}: {each!r}" for each in records[:_DESCRIBED])


def _unreported(lacking: Sequence[int], losses: Sequence[Loss]) -> Iterator[int]:
    """Yield the places of lacking records, the last one first, that cannot be among the lost ones."""
    earlier = sorted(losses, key=lambda loss: loss.before)
    room = 0.0
    for place in reversed(lacking):
        while earlier and earlier[-1].before > place:
            records = earlier.pop().records
            room += math.inf if records is None else records
        if room < 1:
            yield place
        else:
            room -= 1


def judge_copy(
    expected: Sequence[tuple[int, Hashable]],
    copy: Sequence[tuple[int, Hashable]],
    *,
    may_repeat: bool = False,
    in_order: bool = True,
    least: int | None = None,
    may_lack: Collection[int] = (),
    losses: Sequence[Loss] = (),
) -> Verdict:
    """Compare two logs, each as offsets and contents; offsets may differ, and contents be equal.

    Args:
        may_repeat: Whether a record may arrive again.
        in_order: Whether a record whose first arrival is late is wrong.
        least: The number of first records that have to be there; None for all.
        may_lack: The places of records that may be missing.
        losses: The numbers of further records that the mirror reported as lost.
    """
    contents = Counter(content for _, content in expected)
    due = _occurrences(expected, contents)

    def judged(found: Sequence[_Occurrence]) -> Verdict:
        return judge(
            due,
            [Stay("destination", not may_repeat, found)],
            to_end=least is None,
            least=least or 0,
            in_order=in_order,
            lost={due[place] for place in may_lack},
            losses=losses,
        )

    verdict = judged(_occurrences(copy, contents))
    if verdict.is_exact or len(contents) == len(due):
        return verdict
    # A copy may lack the first of equal records, and have the later ones, or those between.
    of_the_last = judged(_occurrences(copy, contents, before=contents - Counter(each for _, each in copy)))
    if of_the_last.is_exact or may_repeat:
        return of_the_last if of_the_last.is_exact else verdict
    aligned = judged(_aligned(due, _occurrences(copy, contents), may_lack))
    return aligned if aligned.is_exact else verdict


def compare(
    source: Mapping[int, Sequence[Record]],
    destination: Mapping[int, Sequence[Record]],
    *,
    at_least_once: bool = False,
    least: int | None = None,
) -> Verdict:
    """Compare partition, key, value, headers, timestamp and order of two readings; offsets may differ.

    Args:
        at_least_once: Whether a record may arrive again, and late, as a first copy then may.
        least: The number of first records that have to be there of each partition; None for all.
    """
    verdict = Verdict()
    for partition in sorted({*source, *destination}):
        ours, theirs = map(_contents, (source.get(partition, ()), destination.get(partition, ())))
        found = judge_copy(ours, theirs, may_repeat=at_least_once, in_order=not at_least_once, least=least)
        verdict += found.of(f"partition {partition}")
    return verdict


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """A record that differs from all others of its partition, also if their contents are equal."""

    content: Hashable
    number: int
    offset: int = field(compare=False)

    def __repr__(self) -> str:
        return f"{self.content!r:.200} at offset {self.offset}"


def _occurrences(
    records: Sequence[tuple[int, Hashable]],
    most: Counter[Hashable],
    before: Mapping[Hashable, int] = MappingProxyType({}),
) -> list[_Occurrence]:
    """
    Number the occurrences of each content; a surplus one is the last that the source has.

    Args:
        before: How many of each content lie before the first one.

    """
    seen: Counter[Hashable] = Counter(before)
    found = []
    for offset, content in records:
        found.append(_Occurrence(content, min(seen[content], max(0, most[content] - 1)), offset))
        seen[content] += 1
    return found


def _aligned(
    due: Sequence[_Occurrence], copy: Sequence[_Occurrence], may_lack: Collection[int]
) -> list[_Occurrence]:
    """
    Return which records a copy in order has, of equal ones: as many as possible.

    Of as many, those before whose last one the fewest are missing that may not be. The table has the best sum
    for each end of both logs.
    """
    worth = len(due) + 1
    price = [0 if place in may_lack else 1 for place in range(len(due))]
    best = [[0] * (len(due) + 1) for _ in range(len(copy) + 1)]
    for number, found in reversed(list(enumerate(copy))):
        for place, wanted in reversed(list(enumerate(due))):
            both = worth + best[number + 1][place + 1] if found.content == wanted.content else 0
            best[number][place] = max(both, best[number + 1][place], best[number][place + 1] - price[place])
    aligned, place = [], 0
    for number, found in enumerate(copy):
        while place < len(due) and best[number][place] == best[number][place + 1] - price[place]:
            place += 1
        if place < len(due) and best[number][place] > best[number + 1][place]:
            aligned.append(due[place])
            place += 1
        else:
            aligned.append(found)  # it is one too many
    return aligned


def _contents(records: Sequence[Record]) -> list[tuple[int, Hashable]]:
    return [(each.offset, (each.key, each.value, each.headers, each.timestamp)) for each in records]
