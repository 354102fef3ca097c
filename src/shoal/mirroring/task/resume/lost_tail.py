"""The position to mirror again from, if the destination lost records that it had acknowledged."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...model.position import SEQUENCES, MirrorPosition
from .follow import count_records
from .places import Places, Undecided
from .search import SearchResult, SourcePlace, find, find_by_records
from .tail import Tail, is_ours, last_batch

__all__ = ["Again", "again_behind", "again_from_the_origin"]


class Again(NamedTuple):
    """
    The position after a loss.

    Attributes:
        lost: The number of records that are not mirrored again; None if unknown.
        is_before_origin: Whether that lies before the first record of the position's writer.

    """

    place: SourcePlace
    lost: int | None
    is_before_origin: bool = False


def again_behind(places: Places, before: MirrorPosition, ours: Tail) -> Again:
    """Go on behind the last batch that the destination still has of the position's writer."""
    gone = _records_behind(before, ours)
    found = find(places.logs, ours)
    place = _place_behind(places, before, ours, found, gone)
    if place is None and _is_deleted(places, found, ours) and places.source.start <= before.source_offset:
        # All that the source still has came after it.
        place = SourcePlace(places.source.start)
    if place is None:
        return Again(SourcePlace(before.source_offset, before.source_leader_epoch), max(0, gone))
    if place.source_offset > before.source_offset:
        # The batch came after the lost records, which cannot be put in front of it any more.
        return Again(place, max(0, before.destination_offset - ours.header.base_offset))
    if place.source_offset < places.source.start:
        # The records that retention deleted up to the position count as lost here.
        place = SourcePlace(min(places.source.start, before.source_offset))
    again = _count_between(places, place, before.source_offset)
    return Again(place, max(0, gone - again))


def _records_behind(before: MirrorPosition, ours: Tail) -> int:
    """Return how many records the position's writer wrote behind a batch of its own; below 0: it is ahead."""
    expected = before.identity.sequence(before.destination_offset)
    behind = (expected - ours.header.base_sequence - ours.header.last_offset_delta - 1) % SEQUENCES
    return behind if behind < SEQUENCES // 2 else behind - SEQUENCES


def again_from_the_origin(places: Places, before: MirrorPosition, *, is_another_topic: bool) -> Again:
    """
    Resume at the first record of the position's writer, if the destination has nothing left of it.

    An earlier writer, whose position expired or was reset, mirrored the records before that. If the
    destination lost these, too, the mirror resumes behind the rest of them.
    """
    source_origin, destination_origin = before.origin
    left = 0 if is_another_topic else min(places.logs.log.end, destination_origin)
    gone_before = destination_origin - left
    if gone_before and places.logs.log.end == left:
        again = _again_before(places, source_origin, gone_before)
        if again:
            return again
    if places.logs.log.start > 0:
        # Retention took the first ones: nothing shows whether the writer's records were among them.
        return Again(SourcePlace(before.source_offset, before.source_leader_epoch), None)
    return Again(SourcePlace(source_origin), gone_before)


def _again_before(places: Places, source_offset: int, gone: int) -> Again | None:
    """Go on behind the destination's end, so many records before an offset; None if nothing shows where."""
    if places.logs.log.end > 0:
        place = _only_place_of_the_tail(places)
        if place and _count_between(places, place, source_offset) == gone:
            return Again(place, 0, is_before_origin=True)
        return None
    beginning = SourcePlace(places.source.start)
    there = _count_between(places, beginning, source_offset)
    if there == gone:
        return Again(beginning, 0, is_before_origin=True)
    only_deletes = places.source_only_deletes()
    if there < gone and (places.source.start > 0 or not only_deletes):
        # Nothing is left that could be there twice, and the source deleted some of what was mirrored.
        return Again(beginning, gone - there if only_deletes else None, is_before_origin=True)
    return None


def _only_place_of_the_tail(places: Places) -> SourcePlace | None:
    """Return the place behind the destination's last batch, if the source has that batch once."""
    tail = last_batch(places.logs)
    if tail is None or tail.header.next_offset != places.logs.log.end:
        return None
    found = find(places.logs, tail).places
    # Another program cut its batches in another way: its copy was adopted.
    found = found or find_by_records(places.logs, tail).places
    return found[0] if len(found) == 1 else None


def _place_behind(
    places: Places, before: MirrorPosition, ours: Tail, found: SearchResult, gone: int
) -> SourcePlace | None:
    """Return the place in the source behind a batch of our writer; None if nothing shows it."""
    if len(found.places) == 1:
        (place,) = found.places
        # A later copy of the same update has fewer records behind it than were lost.
        if gone < 0 or _count_between(places, place, before.source_offset) == gone:
            return place
    # Count, or compare, from where the writer began.
    source_origin, destination_origin = before.origin
    if ours.header.next_offset <= destination_origin or not is_ours(ours.header, before.identity):
        return None
    origin = replace(before, source_offset=source_origin, destination_offset=destination_origin)
    try:
        return places.behind(origin, places.run_behind(origin, ours, ours.header.next_offset))
    except Undecided:
        return None


def _count_between(places: Places, place: SourcePlace, end_offset: int) -> int:
    """Return how many records the source has from a place to before an offset."""
    start = max(place.source_offset, places.source.start)
    if start >= end_offset:
        return 0
    return count_records(places.logs, start, end_offset)


def _is_deleted(places: Places, found: SearchResult, tail: Tail) -> bool:
    """Whether the source deleted the records that were not found there, rather than changed them."""
    is_changed = found.compacted or tail.header.has_holes
    return not found.places and not is_changed and places.source_only_deletes()
