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
from itertools import accumulate

from ..client.config import IsolationLevel
from .findings import ABORTED, Difference, DifferenceKind, NotCompared, OffsetRange, Place, Side
from .locate import find_keys
from .log import Log
from .ranges import Explanation, Ranges, at, one
from .records import Key, Odd, key_and_value, keys_of
from .slots import MOST_DIFFERENT, Slot, gaps_of

__all__ = ["MOST_RANGES", "Findings", "explain"]

#: The most ranges that are listed for a partition; the others are counted.
MOST_RANGES = 100

#: How far from the offsets of their times records may lie besides.
_AROUND = 1_024

#: The number of doubles in order that are no accident, if the source may have deleted older likes; and the
#: most other records between two of them.
_TELLING = 16

#: A place behind all offsets.
_END = 2**63 - 1

_MISSING = Explanation(DifferenceKind.MISSING)
_EXTRA = Explanation(DifferenceKind.EXTRA)
_ABORTED = Explanation(DifferenceKind.EXTRA, ABORTED)
_HELD = Explanation(None, "the source has it in or behind an open transaction")
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


def explain(
    slots: Sequence[Slot],
    ours: Log,
    theirs: Log,
    begin: Place,
    *,
    is_by_content: bool,
    mirrored_until: int,
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

    """
    rules = _Rules(slots, ours, theirs, begin, mirrored_until)
    rules.take_unreadable()
    rules.take_moved()
    rules.take_elsewhere()
    rules.take_lag()
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
        self.ranges = Ranges()
        self._slots = [replace(each) for each in slots]  # after an error they are explained again
        self._ours = ours
        self._theirs = theirs
        self._begin = begin
        self._mirrored_until = mirrored_until
        #: The source offset before which the copy may have had a tombstone, and lost it since.
        self._deleted_until = _END

    # Unreadable

    def take_unreadable(self) -> None:
        """Name batches that cannot be read: all records of their slot stand beside them."""
        for slot in self._slots:
            both = ((Side.SOURCE, slot.source), (Side.DESTINATION, slot.destination))
            walls = [(side, each.unreadable) for side, records in both for each in records if each.unreadable]
            if not walls:
                continue
            damaged = tuple(dict.fromkeys(side for side, wall in walls if wall.is_damaged))
            problem = next(wall.problem for _, wall in walls if wall.is_damaged or not damaged)
            self.ranges.add(
                Explanation(DifferenceKind.ALTERED if damaged else None, problem, damaged),
                _whole(slot.source, slot.start.source),
                _whole(slot.destination, slot.start.destination),
                max(sum(each.records for each in records) for _, records in both),
            )
            slot.source, slot.destination = [], []

    # Moved

    def take_moved(self) -> None:
        """Name records that both sides have, and not in the same order, however far apart."""
        missing = [each for slot in self._slots for each in slot.source]
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
        for slot in self._slots if here else ():
            slot.drop(here, there)

    def _extra(self) -> list[Odd]:
        """Return the records of the destination that are not explained yet."""
        return [each for slot in self._slots for each in slot.destination]

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
        held: Collection[Key] = ()
        if wanted - kept.keys() and self._ours.isolation_level is IsolationLevel.READ_COMMITTED:
            uncommitted = replace(self._ours, isolation_level=IsolationLevel.READ_UNCOMMITTED)
            aborted = find_keys(uncommitted, around, wanted - kept.keys())
            held = find_keys(uncommitted, self._ours.held(), wanted - kept.keys() - aborted.keys())
        for slot in self._slots:
            place, named = at(slot.start.source), set[int]()
            for record in slot.destination:
                key = next(iter(keys_of(record, Side.DESTINATION)), None)
                if key in kept:
                    self.ranges.add(_EXTRA, place, one(record.offset), copy_of=one(kept[key][0]))
                elif key in aborted:
                    self.ranges.add(_ABORTED, place, one(record.offset))
                elif key in held:
                    self.ranges.add(_HELD, place, one(record.offset))
                else:
                    continue
                named.add(record.offset)
            slot.drop(destination=named)
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
        # Times need not ascend: others may be as far out of order as these are.
        back = max(newest - each for newest, each in zip(accumulate(times, max), times, strict=True))
        first = self._ours.first_at(max(0, min(times) - back))
        last = self._ours.first_at(max(times) + back + 1)
        start = log.start if first is None else max(log.start, first - _AROUND)
        end = log.end if last is None else min(log.end, last + _AROUND)
        return OffsetRange(start, max(start, end))

    def _name_doubled_before(self, before: Sequence[Odd], kept: dict[Key, list[int]]) -> None:
        """
        Name records before the comparison that the source has behind its beginning: a second copy.

        If the source had older records, a record there may be one of these. Then only records that it has
        once count, many in the same order, and with few others between them.
        """
        is_whole, runs = self._begin.source == 0, list[list[tuple[int, int]]]()
        last = 0
        for number, record in enumerate(before):
            likes = [each for key in keys_of(record, Side.DESTINATION) for each in kept.get(key, ())]
            behind = [each for each in likes if each >= self._begin.source]
            if behind and (is_whole or len(likes) == 1):
                if not runs or behind[0] <= runs[-1][-1][1] or number - last > _TELLING:
                    runs.append([])
                runs[-1].append((record.offset, behind[0]))
                last = number
        for run in runs:
            for there, here in run if is_whole or len(run) >= _TELLING else ():
                self.ranges.add(_DOUBLED_BEFORE, at(self._begin.source), one(there), copy_of=one(here))

    # Lag

    def take_lag(self) -> None:
        """Leave out what the copy does not have yet: as many as it has unlike ones stand in their places."""
        for slot in self._slots:
            if not slot.is_last:
                continue
            kept = sum(each.offset < self._mirrored_until for each in slot.source)
            count = max(kept, min(len(slot.destination), len(slot.source)))
            if not kept and slot.source and _gaps_up_to(slot, slot.source[0]) >= len(slot.destination):
                count = 0  # the source's cleaner may have removed what they stand for
            lag = slot.source[count:]
            if lag:
                slot.source = slot.source[:count]
                slot.gaps = slot.gaps._replace(source=_gaps_up_to(slot, lag[0]))
                self.found.lag = lag[0].offset
                # Offsets at the copy's end that neither its own records nor known missing ones take.
                free = max(0, slot.gaps.destination - max(0, count - len(slot.destination)))
                self._deleted_until = lag[free].offset if free < len(lag) else _END

    # Compaction

    def take_removed(self) -> None:
        """Take out the records that the other side's log cleaner explains: it left a gap there."""
        beside = [
            slot
            for slot in self._slots
            if (slot.source and slot.gaps.destination) or (slot.destination and slot.gaps.source)
        ]
        if not beside:
            return
        wanted = {each.key for slot in beside for each in (*slot.source, *slot.destination)}
        here = _Keys.of(self._ours, wanted, max(self._mirrored_until, self._deleted_until))
        there = _Keys.of(self._theirs, wanted, _END)
        for slot in beside:
            ends = Place(*map(_first_behind_gap, slot.all, slot.end))
            copied = {each.offset for each in slot.destination}
            gone = _judged(slot.source, slot.gaps.destination, here, there, ends.destination, copied)
            end = ends.source
            if slot.is_last and self.found.lag is not None:
                end = min(end, self.found.lag)
            mirrored = {each.offset for each in slot.source}
            extra = _judged(slot.destination, slot.gaps.source, there, here, end, mirrored)
            for offset in (each for each, is_certain in gone.items() if not is_certain):
                self.ranges.add(there.doubt, one(offset), at(slot.start.destination))
            for offset in (each for each, is_certain in extra.items() if not is_certain):
                self.ranges.add(here.doubt, at(slot.start.source), one(offset))
            self.found.removed += sum(gone.values()) + sum(extra.values())
            slot.removed = Place(len(gone), len(extra))
            slot.drop(gone, extra)

    # The first slot and the rest

    def take_before_copy(self) -> None:
        """
        Excuse a later start of the copy, and records that retention has deleted from the source.

        A record with too few gaps behind it for the removed records of the other side is no record before
        the other's beginning: the other side had something in its place.
        """
        for slot in self._slots[:1]:
            if slot.start == self._begin:
                least, removed = len(slot.destination), slot.removed.destination
                slot.source = _certain(slot.source, slot.all[0], slot.gaps.source, removed, least)
                if self._ours.offsets.start > 0:
                    least, removed = len(slot.source), slot.removed.source
                    slot.destination = _certain(
                        slot.destination, slot.all[1], slot.gaps.destination, removed, least
                    )

    def name_the_rest(self) -> None:
        """Name the rest: records that stand in each other's places are altered, others missing or extra."""
        for slot in self._slots:
            place = slot.start
            for ours, theirs in zip(slot.source, slot.destination, strict=False):
                explanation = _ONLY_TIME if ours.body == theirs.body else _ALTERED
                self.ranges.add(explanation, one(ours.offset), one(theirs.offset))
                place = Place(ours.offset + 1, theirs.offset + 1)
            both = min(len(slot.source), len(slot.destination))
            for each in slot.source[both:]:
                self.ranges.add(_MISSING, one(each.offset), at(place.destination))
            for each in slot.destination[both:]:
                self.ranges.add(_EXTRA, at(place.source), one(each.offset))


def _gaps_up_to(slot: Slot, record: Odd) -> int:
    """Return the number of gaps before a source record of a slot: what is behind it was not copied."""
    return gaps_of([each for each in slot.all[0] if each.offset <= record.offset])


def _whole(records: Sequence[Odd], place: int) -> OffsetRange:
    return OffsetRange(records[0].offset, records[-1].end) if records else at(place)


@dataclass(frozen=True, slots=True)
class _Keys:
    """
    The records of some keys in a log.

    Attributes:
        first: The first offset of each.
        buried: Those whose last record is a tombstone.
        side: The side of the log.
        is_compacted: Whether its cleaner may remove records now.

    """

    first: dict[int | None, int]
    buried: set[int | None]
    side: Side
    is_compacted: bool

    @property
    def doubt(self) -> Explanation:
        """The reason that a record which this log lacks is not compared."""
        why = "and it has no key that shows that"
        if not self.is_compacted:
            why = "but the topic there is not compacted now (cleanup.policy)"
        return Explanation(
            None,
            f"the {self.side.value} cluster may have removed it by compaction after it was copied, {why}",
        )

    @classmethod
    def of(cls, log: Log, wanted: Collection[int | None], buried_until: int) -> _Keys:
        found = cls({}, set(), log.side, log.may_be_compacted())
        with closing(log.records(*log.offsets)) as records:
            for each in records:
                key, value = key_and_value(each)
                if not each.body or key not in wanted:
                    continue
                found.first.setdefault(key, each.offset)
                if each.offset < buried_until:
                    (found.buried.add if value is None else found.buried.discard)(key)
        return found


def _judged(
    records: Sequence[Odd], gap: int, own: _Keys, other: _Keys, end: int, beside: Collection[int]
) -> dict[int, bool]:
    """
    Return the offsets of records that a gap explains, in order, and whether it is certain.

    Args:
        records: The records that one side has.
        gap: The number of offsets without a record that the other side has in their place.
        own: The keys of the side that has them.
        other: The keys of the side that lacks them.
        end: The offset of the other side's first record behind a gap in their place.
        beside: The offsets of the other side's records in their place. One of these with the same key is an
            altered record: neither cleaner would have kept the earlier of the two.

    """
    gone = dict[int, bool]()
    for each in records if gap else ():
        first = other.first.get(each.key, end if each.key is None else None)
        if first is None:
            is_gone = each.key in own.buried
        else:
            is_gone = first >= end and (each.key is None or first not in beside)
        if is_gone:
            # The cleaner drops records without a key, and none shows it.
            gone[each.offset] = other.is_compacted and each.key is not None
    return gone if len(gone) <= gap else {}


def _first_behind_gap(records: Sequence[Odd], end: int) -> int:
    """Return the offset of the first record behind a gap: one of a slot, or the one at its end."""
    return next((each.offset for each in records if each.gap), end)


def _certain(records: list[Odd], beside: Sequence[Odd], gaps: int, removed: int, least: int) -> list[Odd]:
    """
    Return the last records of a slot, without those that may be older than the other side.

    Args:
        records: The records that are not explained.
        beside: All records of this side in the slot.
        gaps: The number of offsets without a record among them.
        removed: The number of the other side's records that need a gap behind such a record.
        least: The fewest records to return, if there are as many.

    """
    certain = set[int]()
    for each in beside:
        gaps -= each.gap
        if gaps < removed:
            certain.add(each.offset)
    kept = max(least, sum(each.offset in certain for each in records))
    return records[max(0, len(records) - kept) :]
