"""
Say of each record that only one side has what became of it: over all slots, after both sides were compared.

Each rule takes the records out that it explains, so their order matters: a record that was moved is neither
missing nor extra, and a double is not what a log cleaner left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from ..client.config import IsolationLevel
from .findings import ABORTED, NOWHERE, Difference, DifferenceKind, NotCompared, OffsetRange, Place, Side
from .locate import find_keys
from .log import Log
from .ranges import Explanation, Ranges, Skips, at, one
from .records import Key, Odd, key_and_value, keys_of
from .slots import MOST_DIFFERENT, Slot

__all__ = ["MOST_RANGES", "Findings", "explain"]

#: The most ranges that are listed for a partition; the others are counted.
MOST_RANGES = 100

#: How far from the offsets of their times records may lie: times need not ascend.
_AROUND = 1_024

#: The number of doubles in a row that are no accident, if the source may have deleted older likes.
_TELLING = 16

#: A place behind all offsets.
_END = 2**63 - 1

_MISSING = Explanation(DifferenceKind.MISSING)
_EXTRA = Explanation(DifferenceKind.EXTRA)
_ABORTED = Explanation(DifferenceKind.EXTRA, ABORTED)
_DOUBLED_BEFORE = Explanation(DifferenceKind.EXTRA, "before the comparison begins")
_REORDERED = Explanation(DifferenceKind.REORDERED)
_ALTERED = Explanation(DifferenceKind.ALTERED)
_ONLY_TIME = Explanation(DifferenceKind.ALTERED, "only the timestamp is another")


@dataclass(slots=True)
class Findings:
    """
    The explanations of all records in which both sides differ.

    Attributes:
        differences: Ranges that differ, by place.
        not_compared: Ranges that could not be compared, by place.
        removed: The number of records that only one side has, since the other's log cleaner removed them.
        lag: The first source record that the copy does not have yet; None if it has all.

    """

    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    removed: int = 0
    lag: int | None = None


@dataclass(slots=True)
class _Left:
    """
    The records of a slot that are not explained yet.

    Attributes:
        removed: The number of records of each side that lie in gaps of the other.

    """

    source: list[Odd]
    destination: list[Odd]
    slot: Slot
    removed: Place = NOWHERE

    def drop(self, source: Collection[int] = (), destination: Collection[int] = ()) -> None:
        """Take records out by their offsets."""
        self.source = [each for each in self.source if each.offset not in source]
        self.destination = [each for each in self.destination if each.offset not in destination]


def explain(
    slots: Sequence[Slot],
    ours: Log,
    theirs: Log,
    begin: Place,
    *,
    is_by_content: bool,
    mirrored_until: int,
    explains_compaction: bool,
) -> Findings:
    """
    Explain the records of all slots, and those that the destination has before the comparison.

    Args:
        slots: The slots, by place, without the records that both sides have in the same order.
        ours: The source.
        theirs: The destination.
        begin: The place at which the comparison began.
        is_by_content: Whether the records alone show that place.
        mirrored_until: The source offset before which the copy must have everything.
        explains_compaction: Whether to find out which records the log cleaner has removed.

    """
    rules = _Rules(slots, ours, theirs, begin, mirrored_until)
    rules.take_unreadable()
    rules.take_moved()
    rules.take_elsewhere()
    rules.take_lag()
    if explains_compaction:
        rules.take_removed()
    if is_by_content:
        rules.take_before_copy()
    rules.name_the_rest()
    found, ranges = rules.found, rules.ranges
    return replace(found, differences=ranges.differences(), not_compared=ranges.not_compared())


class _Rules:
    """
    The rules, and what they have in common.

    Attributes:
        found: The findings so far, without ranges.
        ranges: The ranges so far.

    """

    def __init__(
        self, slots: Sequence[Slot], ours: Log, theirs: Log, begin: Place, mirrored_until: int
    ) -> None:
        self.found = Findings()
        self.ranges = Ranges(Skips.of(slots))
        self._left = [_Left(each.source, each.destination, each) for each in slots]
        self._ours = ours
        self._theirs = theirs
        self._begin = begin
        self._mirrored_until = mirrored_until
        #: The source offset before which the copy may have had a tombstone, and lost it since.
        self._deleted_until = _END

    # Unreadable

    def take_unreadable(self) -> None:
        """Name batches that cannot be read: all records of their slot stand beside them."""
        for left in self._left:
            both = ((Side.SOURCE, left.source), (Side.DESTINATION, left.destination))
            walls = [(side, each.unreadable) for side, records in both for each in records if each.unreadable]
            if not walls:
                continue
            damaged = tuple(dict.fromkeys(side for side, wall in walls if wall.is_damaged))
            problem = next(wall.problem for _, wall in walls if wall.is_damaged or not damaged)
            self.ranges.add(
                Explanation(DifferenceKind.ALTERED if damaged else None, problem, damaged),
                _whole(left.source, left.slot.start.source),
                _whole(left.destination, left.slot.start.destination),
                max(sum(each.records for each in records) for _, records in both),
            )
            left.source, left.destination = [], []

    # Moved

    def take_moved(self) -> None:
        """Name records that both sides have, and not in the same order, however far apart."""
        missing = [each for left in self._left for each in left.source]
        extra: dict[Key, list[int]] = defaultdict(list)
        for record in reversed(self._extra()) if missing else ():
            for key in keys_of(record, Side.DESTINATION):
                extra[key].append(record.offset)
        here, there = set[int](), set[int]()
        for record in missing if extra else ():
            for key in keys_of(record, Side.SOURCE):
                if likes := extra.get(key):
                    offset = likes.pop()
                    self.ranges.add(_REORDERED, one(record.offset), one(offset))
                    here.add(record.offset)
                    there.add(offset)
                    break
        for left in self._left if here else ():
            left.drop(here, there)

    def _extra(self) -> list[Odd]:
        """Return the records of the destination that are not explained yet."""
        return [each for left in self._left for each in left.destination]

    # Elsewhere in the source

    def take_elsewhere(self) -> None:
        """Name records of the destination that the source has elsewhere, or in aborted transactions."""
        before = self._before()
        records = [*before, *self._extra()]
        if not records:
            return
        wanted = {key for each in records for key in keys_of(each, Side.DESTINATION)}
        around = self._around(records)
        kept = find_keys(self._ours, around, wanted)
        aborted: Collection[Key] = ()
        if wanted - kept.keys() and self._ours.isolation_level is IsolationLevel.READ_COMMITTED:
            uncommitted = replace(self._ours, isolation_level=IsolationLevel.READ_UNCOMMITTED)
            aborted = find_keys(uncommitted, around, wanted - kept.keys())
        for left in self._left:
            place, named = at(left.slot.start.source), set[int]()
            for record in left.destination:
                key = next(iter(keys_of(record, Side.DESTINATION)), None)
                if key in kept:
                    self.ranges.add(_EXTRA, place, one(record.offset), copy_of=one(kept[key][0]))
                elif key in aborted:
                    self.ranges.add(_ABORTED, place, one(record.offset))
                else:
                    continue
                named.add(record.offset)
            left.drop(destination=named)
        self._name_doubled_before(before, kept)

    def _before(self) -> list[Odd]:
        """Return the records that the destination has before the comparison."""
        first = self._theirs.offsets.start
        with closing(
            self._theirs.records(first, min(self._begin.destination, first + MOST_DIFFERENT))
        ) as records:
            return [Odd.of(each) for each in records]

    def _around(self, records: Sequence[Odd]) -> OffsetRange:
        """Return the source's offsets at which records with the times of some can be."""
        log, times = self._ours.offsets, [each.timestamp for each in records]
        if min(times) < 0 or any(each.append_time is not None for each in records):
            return log
        first, last = self._ours.first_at(min(times)), self._ours.first_at(max(times) + 1)
        start = log.start if first is None else max(log.start, first - _AROUND)
        end = log.end if last is None else min(log.end, last + _AROUND)
        return OffsetRange(start, max(start, end))

    def _name_doubled_before(self, before: Sequence[Odd], kept: dict[Key, list[int]]) -> None:
        """
        Name records before the comparison that the source has behind its beginning: a second copy.

        If the source had older records, a record there may be one of these. Then only records that it has
        once count, many in a row.
        """
        is_whole, place, doubles = self._begin.source == 0, at(self._begin.source), Ranges()
        for record in before:
            for key in keys_of(record, Side.DESTINATION):
                found = [offset for offset in kept.get(key, ()) if offset >= self._begin.source]
                if found and (is_whole or len(kept[key]) == 1):
                    doubles.add(_DOUBLED_BEFORE, place, one(record.offset), copy_of=one(found[0]))
        self.ranges.add_all(doubles, 1 if is_whole else _TELLING)

    # Lag

    def take_lag(self) -> None:
        """Leave out what the copy does not have yet: as many as it has unlike ones stand in their places."""
        for left in self._left:
            slot = left.slot
            if not slot.is_last:
                continue
            kept = sum(each.offset < self._mirrored_until for each in left.source)
            count = max(kept, min(len(left.destination), len(left.source)))
            if not kept and slot.gaps.source >= len(left.destination):
                count = 0  # the source's cleaner may have removed what they stand for
            lag = left.source[count:]
            if lag:
                left.source = left.source[:count]
                self.found.lag = lag[0].offset
                # Offsets at the copy's end that neither its own records nor known missing ones take.
                free = max(0, slot.gaps.destination - max(0, count - len(left.destination)))
                self._deleted_until = lag[free].offset if free < len(lag) else _END

    # Compaction

    def take_removed(self) -> None:
        """Take out the records that the other side's log cleaner explains: it left a gap there."""
        beside = [
            left
            for left in self._left
            if (left.source and left.slot.gaps.destination) or (left.destination and left.slot.gaps.source)
        ]
        if not beside:
            return
        wanted = {each.key for left in beside for each in (*left.source, *left.destination)}
        here = _Keys.of(self._ours, wanted, max(self._mirrored_until, self._deleted_until))
        there = _Keys.of(self._theirs, wanted, _END)
        for left in beside:
            slot = left.slot
            end = _first_behind_gap(slot.destination, slot.end.destination)
            copied = {each.offset for each in left.destination}
            gone, unknown = _judged(left.source, slot.gaps.destination, here, there, end, copied)
            for offset in unknown:
                self.ranges.add(_may_be_removed(Side.DESTINATION), one(offset), at(slot.start.destination))
            end = slot.end.source if self.found.lag is None or not slot.is_last else self.found.lag
            end = min(end, _first_behind_gap(slot.source, end))
            mirrored = {each.offset for each in left.source}
            extra, strange = _judged(left.destination, slot.gaps.source, there, here, end, mirrored)
            for offset in strange:
                self.ranges.add(_may_be_removed(Side.SOURCE), at(slot.start.source), one(offset))
            self.found.removed += len(gone) + len(extra)
            left.removed = Place(len(gone) + len(unknown), len(extra) + len(strange))
            left.drop(gone | unknown.keys(), extra | strange.keys())

    # The first slot and the rest

    def take_before_copy(self) -> None:
        """
        Excuse a later start of the copy, and records that retention has deleted from the source.

        A record with too few gaps behind it for the removed records of the other side is no record before
        the other's beginning: the other side had something in its place.
        """
        for left in self._left[:1]:
            slot, removed = left.slot, left.removed
            if slot.start == self._begin:
                certain = _behind_gaps(slot.source, slot.gaps.source, removed.destination)
                kept = max(len(left.destination), sum(each.offset in certain for each in left.source))
                left.source = left.source[len(left.source) - kept :] if kept else []
                if self._ours.offsets.start > 0:
                    certain = _behind_gaps(slot.destination, slot.gaps.destination, removed.source)
                    kept = max(len(left.source), sum(each.offset in certain for each in left.destination))
                    left.destination = left.destination[len(left.destination) - kept :] if kept else []

    def name_the_rest(self) -> None:
        """Name the rest: records that stand in each other's places are altered, others missing or extra."""
        for left in self._left:
            place = left.slot.start
            for ours, theirs in zip(left.source, left.destination, strict=False):
                explanation = _ONLY_TIME if ours.body == theirs.body else _ALTERED
                self.ranges.add(explanation, one(ours.offset), one(theirs.offset))
                place = Place(ours.offset + 1, theirs.offset + 1)
            both = min(len(left.source), len(left.destination))
            for each in left.source[both:]:
                self.ranges.add(_MISSING, one(each.offset), at(place.destination))
            for each in left.destination[both:]:
                self.ranges.add(_EXTRA, at(place.source), one(each.offset))


def _whole(records: Sequence[Odd], place: int) -> OffsetRange:
    return OffsetRange(records[0].offset, records[-1].end) if records else at(place)


@dataclass(frozen=True, slots=True)
class _Keys:
    """
    The records of some keys in a log.

    Attributes:
        first: The first offset of each.
        buried: Those whose last record is a tombstone.

    """

    first: dict[int | None, int]
    buried: set[int | None]

    @classmethod
    def of(cls, log: Log, wanted: Collection[int | None], buried_until: int) -> _Keys:
        found = cls({}, set())
        with closing(log.records(*log.offsets)) as records:
            for each in records:
                key, value = key_and_value(each)
                if each.body is None or key not in wanted:
                    continue
                found.first.setdefault(key, each.offset)
                if each.offset < buried_until:
                    (found.buried.add if value is None else found.buried.discard)(key)
        return found


def _judged(
    records: Sequence[Odd], gap: int, own: _Keys, other: _Keys, end: int, beside: Collection[int]
) -> tuple[set[int], dict[int, None]]:
    """
    Return the offsets of records that a gap explains, and of those of which nothing is known, in order.

    Args:
        records: The records that one side has.
        gap: The number of offsets without a record that the other side has in their place.
        own: The keys of the side that has them.
        other: The keys of the side that lacks them.
        end: The offset of the other side's first record behind a gap in their place.
        beside: The offsets of the other side's records in their place. One of these with the same key is an
            altered record: neither cleaner would have kept the earlier of the two.

    """
    gone, unknown = set[int](), dict[int, None]()
    for each in records if gap else ():
        first = other.first.get(each.key, end if each.key is None else None)
        if first is None and each.key in own.buried:
            gone.add(each.offset)
        elif first is not None and first >= end and (each.key is None or first not in beside):
            # The cleaner drops records without a key, and none shows it.
            if each.key is None:
                unknown[each.offset] = None
            else:
                gone.add(each.offset)
    return (gone, unknown) if len(gone) + len(unknown) <= gap else (set(), {})


def _first_behind_gap(records: Sequence[Odd], end: int) -> int:
    """Return the offset of the first record behind a gap: one of a slot, or the one at its end."""
    return next((each.offset for each in records if each.gap), end)


def _behind_gaps(records: Sequence[Odd], gaps: int, wanted: int) -> set[int]:
    """Return the offsets of the records that have fewer gaps behind them than are wanted."""
    found = set[int]()
    for each in records:
        gaps -= each.gap
        if gaps < wanted:
            found.add(each.offset)
    return found


def _may_be_removed(side: Side) -> Explanation:
    return Explanation(
        None,
        f"the {side.value} cluster may have removed it by compaction after it was copied, and it has no key "
        "that shows that",
    )
