"""
Say of each record that only one side has what became of it: over all slots, after both sides were compared.

Each rule takes the records out that it explains, so their order matters: a record that was moved is neither
missing nor extra, and a double is not what a log cleaner left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TypeAlias, TypeVar

from ..client.config import IsolationLevel
from ..records import Record, read_key_value_headers
from .compare import MOST_KEPT, Place, Slot, Times
from .findings import ABORTED, Difference, DifferenceKind, NotCompared, OffsetRange, Side
from .locate import keys_of
from .log import Log, LogRecord

__all__ = ["MOST_RANGES", "Findings", "explain", "joined", "records_by_kind"]

#: The most ranges that are listed for a partition; the others are counted.
MOST_RANGES = 100

#: How far from the offsets of their times records may lie: times need not ascend.
_AROUND = 1_024

#: The number of first offsets before a comparison, and of last ones, that are tried for doubles.
_TRIED_OFFSETS = 4_096

#: The number of doubles in a row that are no accident, if the source may have deleted older likes.
_TELLING = 16

#: A place behind all offsets.
_END = 2**63 - 1

_ONLY_TIME = "only the timestamp is another"

R = TypeVar("R", Difference, NotCompared)


@dataclass(slots=True)
class Findings:
    """
    The explanations of all records in which both sides differ.

    Attributes:
        differences: Ranges that differ, by place.
        not_compared: Ranges that could not be compared, by place.
        removed: The number of records that only one side has, since the other's log cleaner removed them.
        lag: The first source record that the copy does not have yet; None if it has all.
        deleted_until: The source offset before which the copy may have had a tombstone, and lost it since.

    """

    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    removed: int = 0
    lag: int | None = None
    deleted_until: int = _END


@dataclass(slots=True)
class _Odd:
    """The records of a slot that are not explained yet."""

    source: list[LogRecord]
    destination: list[LogRecord]
    slot: Slot

    def drop(self, source: set[int] | dict[int, int], destination: set[int] | dict[int, int]) -> None:
        """Take records out by their offsets."""
        self.source = [each for each in self.source if each.offset not in source]
        self.destination = [each for each in self.destination if each.offset not in destination]


@dataclass(frozen=True, slots=True)
class _Facts:
    """
    The facts that the rules have in common.

    Attributes:
        ours: The source.
        theirs: The destination.
        times: The timestamps that count.
        begin: Where the comparison began.
        mirrored_until: The source offset before which the copy must have everything.

    """

    ours: Log
    theirs: Log
    times: Times
    begin: Place
    mirrored_until: int

    def key(self, record: LogRecord, side: Side) -> int | None:
        return self.times.key(record, side)


def explain(
    slots: Sequence[Slot],
    ours: Log,
    theirs: Log,
    times: Times,
    begin: Place,
    *,
    is_by_content: bool,
    mirrored_until: int,
    explains_compaction: bool,
) -> Findings:
    """
    Explain the records of all slots.

    Args:
        slots: The slots, by place, without the records that both sides have in the same order.
        ours: The source.
        theirs: The destination.
        times: The timestamps that count.
        begin: Where the comparison began.
        is_by_content: Whether the records alone show that place.
        mirrored_until: The source offset before which the copy must have everything.
        explains_compaction: Whether to find out which records the log cleaner has removed.

    """
    facts = _Facts(ours, theirs, times, begin, mirrored_until)
    found = Findings()
    odd = [_Odd(list(each.source), list(each.destination), each) for each in slots]
    for each in odd:
        _take_unreadable(each, found)
    _take_moved(odd, facts, found)
    _take_elsewhere(odd, facts, found)
    for each in odd:
        if each.slot.is_last:
            _take_lag(each, facts, found)
    if explains_compaction:
        _take_removed(odd, facts, found)
    if is_by_content and odd and odd[0].slot.start == begin:
        _take_before_copy(odd[0], facts)
    for each in odd:
        _name(each, facts, found)
    found.differences += _doubled_before(facts)
    skips = _skips(slots)
    found.differences = joined(found.differences, skips)
    found.not_compared = joined(found.not_compared, skips)
    return found


# Unreadable


def _take_unreadable(odd: _Odd, found: Findings) -> None:
    """Name batches that cannot be read: all records of their slot stand beside them."""
    walls = [
        (side, each)
        for side, records in ((Side.SOURCE, odd.source), (Side.DESTINATION, odd.destination))
        for each in records
        if each.body is None
    ]
    if not walls:
        return
    source, destination = (
        _whole(odd.source, odd.slot.start.source),
        _whole(odd.destination, odd.slot.start.destination),
    )
    records = max(sum(each.records for each in side) for side in (odd.source, odd.destination))
    damaged = tuple(dict.fromkeys(side for side, each in walls if each.is_damaged))
    problem = next(each.problem for _, each in walls if each.is_damaged or not damaged) or ""
    if damaged:
        found.differences.append(
            Difference(DifferenceKind.ALTERED, source, destination, records, damaged, detail=problem)
        )
    else:
        found.not_compared.append(NotCompared(source, destination, records, problem))
    odd.source, odd.destination = [], []


def _whole(records: Sequence[LogRecord], place: int) -> OffsetRange:
    if not records:
        return OffsetRange(place, place)
    return OffsetRange(records[0].offset, records[-1].offset + records[-1].records)


# Moved


def _take_moved(odd: Sequence[_Odd], facts: _Facts, found: Findings) -> None:
    """Name records that both sides have, and not in the same order, however far apart."""
    missing: dict[int | None, list[int]] = defaultdict(list)
    for each in odd:
        for record in each.source:
            missing[facts.key(record, Side.SOURCE)].append(record.offset)
    for likes in missing.values():
        likes.reverse()
    taken_there: set[int] = set()
    taken_here: set[int] = set()
    for each in odd:
        for record in each.destination:
            likes = missing.get(facts.key(record, Side.DESTINATION), [])
            if likes:
                here = likes.pop()
                taken_here.add(here)
                taken_there.add(record.offset)
                found.differences.append(
                    Difference(DifferenceKind.REORDERED, _one(here), _one(record.offset), 1)
                )
    if taken_here:
        for each in odd:
            each.drop(taken_here, taken_there)


def _one(offset: int) -> OffsetRange:
    return OffsetRange(offset, offset + 1)


# Elsewhere in the source


def _take_elsewhere(odd: Sequence[_Odd], facts: _Facts, found: Findings) -> None:
    """Name extra records that the source has elsewhere, once more or in aborted transactions."""
    extra = {
        record.offset: facts.key(record, Side.DESTINATION) for each in odd for record in each.destination
    }
    if not extra:
        return
    wanted = set(extra.values())
    around = _around(facts, [record for each in odd for record in each.destination])
    kept = _first_offsets(facts, facts.ours, around, wanted)
    doubled = {offset: kept[key] for offset, key in extra.items() if key in kept}
    of_aborted = _aborted(facts, around, wanted - kept.keys())
    aborted = {offset for offset, key in extra.items() if key in of_aborted}
    for each in odd:
        place = OffsetRange(each.slot.start.source, each.slot.start.source)
        for record in each.destination:
            copy_of = doubled.get(record.offset)
            if copy_of is not None or record.offset in aborted:
                found.differences.append(
                    Difference(
                        DifferenceKind.EXTRA,
                        place,
                        _one(record.offset),
                        1,
                        copy_of=None if copy_of is None else _one(copy_of),
                        detail=None if copy_of is not None else ABORTED,
                    )
                )
        each.drop(set(), doubled)
        each.drop(set(), aborted)


def _around(facts: _Facts, records: Sequence[LogRecord]) -> OffsetRange:
    """Return the source's offsets at which records of the destination can be, by their times."""
    log, times = facts.ours.offsets, [each.timestamp for each in records]
    if not facts.times.are_compared or facts.times.are_of_append or not times or min(times) < 0:
        return log
    start = facts.ours.first_at(min(times), log.start) - _AROUND
    end = facts.ours.first_at(max(times) + 1, log.end) + _AROUND
    start, end = max(log.start, start), min(log.end, end)
    return OffsetRange(start, max(start, end))


def _first_offsets(
    facts: _Facts, log: Log, offsets: OffsetRange, wanted: set[int | None]
) -> dict[int | None, int]:
    """Return the first offset of each wanted key in a part of the source."""
    found: dict[int | None, int] = {}
    with closing(log.records(*offsets)) as records:
        for each in records:
            key = facts.key(each, Side.SOURCE)
            if key in wanted:
                found.setdefault(key, each.offset)
    return found


def _aborted(facts: _Facts, offsets: OffsetRange, wanted: set[int | None]) -> set[int | None]:
    """Return the wanted keys that only aborted transactions of the source have."""
    if not wanted or facts.ours.isolation_level is not IsolationLevel.READ_COMMITTED:
        return set()
    uncommitted = facts.ours.of_level(IsolationLevel.READ_UNCOMMITTED)
    return set(_first_offsets(facts, uncommitted, offsets, wanted))


# Lag


def _take_lag(odd: _Odd, facts: _Facts, found: Findings) -> None:
    """Leave out what the copy does not have yet: as many as it has unlike ones stand in their places."""
    kept = sum(each.offset < facts.mirrored_until for each in odd.source)
    count = max(kept, min(len(odd.destination), len(odd.source)))
    if not kept and odd.slot.gaps.source >= len(odd.destination):
        count = 0  # the source's cleaner may have removed what they stand for
    lag = odd.source[count:]
    if lag:
        del odd.source[count:]
        found.lag = lag[0].offset
        # Offsets at the copy's end that neither its own records nor known missing ones take.
        free = odd.slot.gaps.destination - max(0, count - len(odd.destination))
        found.deleted_until = lag[max(0, free)].offset if free < len(lag) else _END


# Compaction


@dataclass(slots=True)
class _Keys:
    """
    The records of some keys in a log.

    Attributes:
        first: The first offset of each.
        buried: Whether the last record of each is a tombstone.

    """

    first: dict[bytes | None, int] = field(default_factory=dict)
    buried: dict[bytes | None, bool] = field(default_factory=dict)


def _take_removed(odd: Sequence[_Odd], facts: _Facts, found: Findings) -> None:
    """Take out the records that the other side's log cleaner explains: it left a gap there."""
    beside_gaps = [
        each
        for each in odd
        if (each.source and each.slot.gaps.destination) or (each.destination and each.slot.gaps.source)
    ]
    if not beside_gaps:
        return
    records = chain.from_iterable((*each.source, *each.destination) for each in beside_gaps)
    wanted = {_key_of(each)[0] for each in records}
    here = _keys_in(facts.ours, wanted, max(facts.mirrored_until, found.deleted_until))
    there = _keys_in(facts.theirs, wanted, _END)
    for each in beside_gaps:
        slot = each.slot
        if each.source and slot.gaps.destination:
            gone, unknown = _judged(each.source, slot.gaps.destination, here, there, slot.end.destination)
            place = OffsetRange(slot.start.destination, slot.start.destination)
            _remove(each, Side.SOURCE, gone, unknown, place, found)
        if each.destination and slot.gaps.source:
            end = slot.end.source if found.lag is None or not slot.is_last else found.lag
            gone, unknown = _judged(each.destination, slot.gaps.source, there, here, end)
            place = OffsetRange(slot.start.source, slot.start.source)
            _remove(each, Side.DESTINATION, gone, unknown, place, found)


def _key_of(record: LogRecord) -> tuple[bytes | None, bytes | None]:
    return read_key_value_headers(Record(record.offset, record.timestamp, record.body or b""))[:2]


def _keys_in(log: Log, wanted: set[bytes | None], buried_until: int) -> _Keys:
    found = _Keys()
    with closing(log.records(*log.offsets)) as records:
        for each in records:
            if each.body is None:
                continue
            key, value = _key_of(each)
            if key in wanted:
                found.first.setdefault(key, each.offset)
                if each.offset < buried_until:
                    found.buried[key] = value is None
    return found


def _judged(
    records: Sequence[LogRecord], gap: int, own: _Keys, other: _Keys, end: int
) -> tuple[set[int], set[int]]:
    """
    Return which records a gap explains, and of which nothing is known.

    Args:
        records: The records that one side has.
        gap: The number of offsets without a record that the other side has in their place.
        own: The keys of the side that has them.
        other: The keys of the side that lacks them.
        end: The offset of the other side's next record.

    """
    gone, unknown = set[int](), set[int]()
    for each in records:
        key, _ = _key_of(each)
        first = other.first.get(key)
        if key is None:
            # The cleaner drops records without a key, and none shows it.
            if first is None or first >= end:
                unknown.add(each.offset)
        elif first is None:
            if own.buried.get(key):
                gone.add(each.offset)
        elif first >= end:
            gone.add(each.offset)
    if len(gone) + len(unknown) > gap:
        return set(), set()
    return gone, unknown


def _remove(
    odd: _Odd, side: Side, gone: set[int], unknown: set[int], place: OffsetRange, found: Findings
) -> None:
    found.removed += len(gone)
    is_source = side is Side.SOURCE
    lacking = Side.DESTINATION if is_source else Side.SOURCE
    why = (
        f"the {lacking.value} cluster may have removed it by compaction after it was copied, and it has no "
        "key that shows that"
    )
    for offset in sorted(unknown):
        ranges = (_one(offset), place) if is_source else (place, _one(offset))
        found.not_compared.append(NotCompared(*ranges, 1, why))
    taken = gone | unknown
    odd.drop(taken if is_source else set(), set() if is_source else taken)


# The first slot and the rest


def _take_before_copy(odd: _Odd, facts: _Facts) -> None:
    """Excuse a later start of the copy, and records that retention has deleted from the source."""
    del odd.source[len(odd.destination) :]
    if facts.ours.offsets.start > 0:
        del odd.destination[len(odd.source) :]


def _name(odd: _Odd, facts: _Facts, found: Findings) -> None:
    """Name the rest: records that stand in each other's places are altered, others are missing or extra."""
    source, destination = odd.source, odd.destination
    both = min(len(source), len(destination))
    for ours, theirs in zip(source, destination, strict=False):
        detail = _ONLY_TIME if ours.body == theirs.body else None
        found.differences.append(
            Difference(DifferenceKind.ALTERED, _one(ours.offset), _one(theirs.offset), 1, detail=detail)
        )
    here = source[both - 1].offset + 1 if both else odd.slot.start.source
    there = destination[both - 1].offset + 1 if both else odd.slot.start.destination
    found.differences += [
        Difference(DifferenceKind.MISSING, _one(each.offset), OffsetRange(there, there), 1)
        for each in source[both:]
    ]
    found.differences += [
        Difference(DifferenceKind.EXTRA, OffsetRange(here, here), _one(each.offset), 1)
        for each in destination[both:]
    ]
    _name_more(odd.slot, facts, found)


def _name_more(slot: Slot, facts: _Facts, found: Findings) -> None:
    """Name the records that were too many to keep, without an explanation of each."""
    why = f"only the first {MOST_KEPT:,} records of this place were explained one by one"
    ends = Place(
        facts.ours.offsets.end if slot.is_last else slot.end.source,
        facts.theirs.offsets.end if slot.is_last else slot.end.destination,
    )
    here, there = ends
    if slot.more.source:
        source = OffsetRange(slot.source[-1].offset + 1, here)
        kind, size, destination = DifferenceKind.MISSING, slot.more.source, OffsetRange(there, there)
        found.differences.append(Difference(kind, source, destination, size, detail=why))
    if slot.more.destination:
        destination = OffsetRange(slot.destination[-1].offset + 1, there)
        kind, size, source = DifferenceKind.EXTRA, slot.more.destination, OffsetRange(here, here)
        found.differences.append(Difference(kind, source, destination, size, detail=why))


# Before the comparison


def _doubled_before(facts: _Facts) -> list[Difference]:
    """
    Return the records that the destination has before the comparison, and the source behind its beginning.

    A second copy behind the first leaves them. If the source had older records, a record there may be one of
    these. Then only records count that the source has once, many in a row.
    """
    before = OffsetRange(facts.theirs.offsets.start, facts.begin.destination)
    parts = [
        OffsetRange(max(before.start, before.end - _TRIED_OFFSETS), before.end),
        OffsetRange(before.start, min(before.end, before.start + _TRIED_OFFSETS)),
    ]
    if not any(_doubles(facts, each) for each in parts if each.start < each.end):
        return []
    return _doubles(facts, OffsetRange(before.start, min(before.end, before.start + MOST_KEPT)))


def _doubles(facts: _Facts, there: OffsetRange) -> list[Difference]:
    with closing(facts.theirs.records(*there)) as records:
        found = [(each.offset, keys[0]) for each in records if (keys := keys_of(each, Side.DESTINATION))]
    likes: dict[object, list[int]] = {key: [] for _, key in found}
    start, end = facts.ours.offsets
    with closing(facts.ours.records(max(facts.begin.source, start), end)) as records:
        for each in records:
            for key in keys_of(each, Side.SOURCE):
                if key in likes and len(likes[key]) < 2:
                    likes[key].append(each.offset)
    is_whole = facts.begin.source == 0
    place = OffsetRange(facts.begin.source, facts.begin.source)
    doubles = [
        Difference(
            DifferenceKind.EXTRA,
            place,
            _one(offset),
            1,
            copy_of=_one(likes[key][0]),
            detail="before the comparison begins",
        )
        for offset, key in found
        if len(likes[key]) == 1 or (is_whole and likes[key])
    ]
    runs = joined(doubles)
    return runs if is_whole else [each for each in runs if each.records >= _TELLING]


# Ranges


#: Offsets behind which the next record is not at once: markers or gaps lie between. Of both sides.
Skips: TypeAlias = tuple[dict[int, int], dict[int, int]]

_NO_SKIPS: Skips = ({}, {})


def _skips(slots: Iterable[Slot]) -> Skips:
    found: Skips = ({}, {})
    for slot in slots:
        for skips, records in zip(found, (slot.source, slot.destination), strict=True):
            for one, other in pairwise(records):
                if one.offset + one.records != other.offset:
                    skips[one.offset + one.records] = other.offset
    return found


def joined(found: Iterable[R], skips: Skips = _NO_SKIPS) -> list[R]:
    """Return ranges by place; those that follow each other and are of the same sort are joined."""
    ranges: list[R] = []
    for each in sorted(found, key=lambda each: (each.source, each.destination)):
        last = ranges[-1] if ranges else None
        if last is not None and _follow(last, each, skips):
            ranges[-1] = _both(last, each)
        else:
            ranges.append(each)
    return ranges


def _follow(last: R, following: R, skips: Skips) -> bool:
    if _sort(last) != _sort(following) or not (
        _is_next(last.source, following.source, skips[0])
        and _is_next(last.destination, following.destination, skips[1])
    ):
        return False
    if isinstance(last, Difference) and isinstance(following, Difference) and last.copy_of:
        return following.copy_of is not None and last.copy_of.end == following.copy_of.start
    return True


def _is_next(last: OffsetRange, following: OffsetRange, skips: dict[int, int]) -> bool:
    """Whether no record lies between two ranges; empty ones are places, and must be the same."""
    if last.start == last.end or following.start == following.end:
        return last == following
    return last.end == following.start or skips.get(last.end) == following.start


def _sort(each: Difference | NotCompared) -> object:
    if isinstance(each, NotCompared):
        return each.reason
    return each.kind, each.damaged, each.copy_of is None, each.detail


def _both(last: R, following: R) -> R:
    whole = replace(
        last,
        source=OffsetRange(last.source.start, following.source.end),
        destination=OffsetRange(last.destination.start, following.destination.end),
        records=last.records + following.records,
    )
    if isinstance(whole, Difference) and isinstance(following, Difference) and whole.copy_of:
        assert following.copy_of is not None
        return replace(whole, copy_of=OffsetRange(whole.copy_of.start, following.copy_of.end))
    return whole


def records_by_kind(differences: Iterable[Difference]) -> Counter[DifferenceKind]:
    """Return how many records differ, by kind."""
    found = Counter[DifferenceKind]()
    for each in differences:
        found[each.kind] += each.records
    return found
