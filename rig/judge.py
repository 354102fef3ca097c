"""The one judge between real clusters: each record once, in order, and no other.

Each due record has a place: its number among all that are due. `Places` follows arrivals one by one, so that
hours of them need a byte for each record. `compare` follows a copy that was read whole, and `judge` follows
a group of consumers from stay to stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from rig.record import Record

__all__ = ["Order", "Places", "Stay", "Verdict", "compare", "judge"]

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
    """

    due: int = 0
    arrived: int = 0
    missing: int = 0
    twice: int = 0
    late: int = 0
    foreign: int = 0
    again: int = 0
    details: tuple[str, ...] = ()

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
        )


class Order(Enum):
    """The order of an arrival among the others."""

    NEXT = "next"
    LATE = "late"
    AGAIN = "again"


class Places:
    """The places of one log's records that have arrived."""

    def __init__(self, first: int = 0) -> None:
        """Begin at a place; those before it count as arrived."""
        self._arrived = bytearray(b"\1" * first)

    def arrive(self, place: int) -> Order:
        """Note an arrival."""
        if place >= len(self._arrived):
            self._arrived.extend(bytes(place - len(self._arrived)) + b"\1")
            return Order.NEXT
        if self._arrived[place]:
            return Order.AGAIN
        self._arrived[place] = 1
        return Order.LATE

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


def judge(
    expected: Sequence[Hashable],
    stays: Sequence[Stay],
    first: int = 0,
    *,
    to_end: bool = True,
    least: int = 0,
    in_order: bool = True,
    lost: Collection[Hashable] = (),
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
    """
    places = {record: place for place, record in enumerate(expected)}
    followed, verdict = Places(first), Verdict()
    for number, stay in enumerate(stays):
        verdict += _follow(places, followed, stay, in_order, lost).of(f"stay {number} at the {stay.where}")
    end = len(expected) if to_end else max(least, followed.end)
    due = expected[first:end]
    missing = [each for each in due if not followed.has(places[each]) and each not in lost]
    return verdict + Verdict(len(due), missing=len(missing), details=_described("missing", missing))


def _follow(
    places: Mapping[Hashable, int],
    followed: Places,
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
            case Order.AGAIN:
                repeated.append(record)
            case Order.LATE if record in lost:  # another cluster still has it
                repeated.append(record)
            case Order.LATE if in_order:
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
        ours, theirs = source.get(partition, ()), destination.get(partition, ())
        copies = Counter(map(_content, ours))
        stay = Stay("destination", not at_least_once, _occurrences(theirs, copies))
        found = judge(
            _occurrences(ours, copies),
            [stay],
            to_end=least is None,
            least=least or 0,
            in_order=not at_least_once,
        )
        verdict += found.of(f"partition {partition}")
    return verdict


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """A record that differs from all others of its partition, also if their contents are equal."""

    content: tuple[Hashable, ...]
    number: int
    offset: int = field(compare=False)

    def __repr__(self) -> str:
        return f"key {self.content[0]!r} at offset {self.offset}"


def _occurrences(records: Sequence[Record], most: Counter[tuple[Hashable, ...]]) -> list[_Occurrence]:
    """Number the occurrences of each content; a surplus one is the last that the source has."""
    seen: Counter[Hashable] = Counter()
    found = []
    for each in records:
        content = _content(each)
        found.append(_Occurrence(content, min(seen[content], max(0, most[content] - 1)), each.offset))
        seen[content] += 1
    return found


def _content(record: Record) -> tuple[Hashable, ...]:
    return (record.key, record.value, record.headers, record.timestamp)
