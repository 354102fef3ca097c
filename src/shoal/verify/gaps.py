"""
Gaps in the offsets of one side, which may explain records that only the other side has. No I/O.

The log cleaner removes records and leaves their offsets unused. A mirror writes offsets without gaps, so
a gap at the destination shows how many records were removed there. A gap in the source may be older than the
copy, so it shows how many at most.

A gap is only a possibility: :mod:`.cleaned` finds out whether the cleaner removed these records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from ..records import Fingerprint
from .digest import Entry
from .finding import Gap, Part
from .matching import MatchSlot
from .meeting import MeetingPoint

__all__ = ["gap_before_likes", "meeting_behind_gaps", "name_gaps"]

#: Records that are the same, and tried as the place to meet again.
_MOST_CANDIDATES = 16


def meeting_behind_gaps(source: Sequence[Entry], destination: Sequence[Entry]) -> MeetingPoint | None:
    """
    Find the nearest record that both sides have, if gaps explain all records before it.

    In a log that is mostly removed, no long run of records is on both sides.

    Args:
        source: The next records of the source.
        destination: The next records of the destination.

    """
    places: dict[Fingerprint, list[int]] = defaultdict(list)
    for i, each in enumerate(source):
        if each.fingerprint is not None and len(found := places[each.fingerprint]) < _MOST_CANDIDATES:
            found.append(i)
    source_gaps, destination_gaps = (
        list(accumulate(each.gap_before for each in side)) for side in (source, destination)
    )
    best: MeetingPoint | None = None
    for j, other in enumerate(destination):
        if best is not None and j >= best.distance:
            break
        for i in places.get(other.fingerprint, ()) if other.fingerprint is not None else ():
            point = MeetingPoint(i, j)
            is_explained = i <= destination_gaps[j] and j <= source_gaps[i]
            if point.distance and is_explained and (best is None or point.distance < best.distance):
                best = point
    return best


def name_gaps(slots: Sequence[MatchSlot], behind: tuple[Gap, Gap]) -> None:
    """
    Name the gaps that may explain slots, between each two records that are the same.

    Args:
        slots: All records before a place at which both sides agree again.
        behind: The gaps before that place, in the source and at the destination.

    """
    run: list[MatchSlot] = []
    for slot in slots:
        if slot.is_pair:
            _name_in_run(run, (_gap_before(slot.source[0]), _gap_before(slot.destination[0])))
            run = []
        else:
            run.append(slot)
    _name_in_run(run, behind)


def _gap_before(part: Part) -> Gap:
    return Gap(part.base_offset, part.gap_before)


def _name_in_run(run: Sequence[MatchSlot], behind: tuple[Gap, Gap]) -> None:
    in_source = _gap(behind[0], [each for slot in run for each in slot.source])
    in_destination = _gap(behind[1], [each for slot in run for each in slot.destination])
    on_both = [slot for slot in run if slot.source and slot.destination]
    if in_source and in_destination and _fit(run, in_source, in_destination):
        for slot in on_both:
            slot.gaps = in_destination, in_source
    for slot in run:
        if not slot.destination:
            slot.gaps = in_destination, None
        elif not slot.source:
            slot.gaps = None, in_source


def _gap(behind: Gap, own: Sequence[Part]) -> Gap | None:
    """Return all that is missing of one side in a run, in which it may have records of its own."""
    size = behind.size + sum(each.gap_before for each in own)
    return Gap(behind.end, size) if size else None


def _fit(run: Sequence[MatchSlot], in_source: Gap, in_destination: Gap) -> bool:
    missing = sum(each.records for slot in run for each in slot.source)
    extra = sum(each.records for slot in run for each in slot.destination)
    return missing <= in_destination.size and extra <= in_source.size


def gap_before_likes(taken: Sequence[Entry], part: Part) -> Gap | None:
    """
    Return the gap before the last records of one side, if all of these are like one of the other side.

    Of several records that are the same, compaction leaves the last.
    The comparison may have found it in the place of the first.

    Args:
        taken: The last records of a side that were in step.
        part: The other side's next record.

    """
    size = 0
    first: Entry | None = None
    for each in reversed(taken):
        if first is not None:
            size += _gap_between(each, first)
        if each.fingerprint is None or each.fingerprint != part.fingerprint:
            break
        first = each
    else:
        size += first.batch.gap_before + first.base_offset - first.batch.base_offset if first else 0
    return Gap(first.base_offset, size) if first is not None and size else None


def _gap_between(one: Entry, following: Entry) -> int:
    """Return how many offsets have no record between two that follow each other."""
    if one.batch.base_offset == following.batch.base_offset:
        return following.base_offset - one.next_offset
    before = max(0, one.batch.next_offset - one.next_offset)
    return before + following.batch.gap_before + following.base_offset - following.batch.base_offset
