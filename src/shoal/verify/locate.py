"""
Find records of one log in the other, and the place at which both begin to have the same records.

The records that are looked for are *anchors*: each is once among them. Anchors that turn up in the other log
in the same order make a *chain*. A chain may have gaps: faults, and records that compaction removed. A long
chain is a proof. Batches and offsets play no part, since a copy may have other ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple

from .errors import NotComparable
from .findings import OffsetRange, Place, Side
from .log import Log, LogRecord
from .plan import Copied
from .records import Key, are_same, keys_of
from .report import Aligned, Alignment
from .slots import longest_ascending

__all__ = ["Found", "begin", "earliest_time", "find_again", "find_first", "find_keys", "first_records"]

#: The number of unlike records that prove that two places belong together.
_PROOF = 16

#: The records of a log's beginning to look for; of large ones, fewer.
_HEAD_RECORDS, _LEAST_RECORDS, _HEAD_BYTES = 1_024, 64, 4 * 1024 * 1024

#: The most records between two links of a chain, and behind one of a sufficient chain.
_MOST_BETWEEN, _MOST_UNLIKE = 1_024, 65_536

#: The number of first records whose times say where the other log has them.
_TIMED_RECORDS = 256


class _Link(NamedTuple):
    """
    A record that both logs have.

    Attributes:
        at: Its index among the records that are looked for.
        offset: Its offset in the other log.
        seen: The number of records of the other log before it.

    """

    at: int
    offset: int
    seen: int


@dataclass(frozen=True, slots=True)
class Found:
    """
    The longest chain.

    Attributes:
        first: Its first anchor that is once in both logs.
        last: Its last one.
        searched: The first offset that was searched.
        is_proof: Whether there is no other place.

    """

    first: _Link
    last: _Link
    searched: int
    is_proof: bool


def find_keys(log: Log, offsets: OffsetRange, wanted: Container[Key]) -> dict[Key, list[int]]:
    """Return the first two offsets of each wanted key in a part of a log."""
    found: dict[Key, list[int]] = {}
    with closing(log.records(*offsets)) as records:
        for each in records:
            for key in keys_of(each, log.side):
                if key in wanted and len(places := found.setdefault(key, [])) < 2:
                    places.append(each.offset)
    return found


def first_records(log: Log, start: int, end: int) -> list[LogRecord]:
    """Return the first records of a part of a log; fewer if they are large."""
    found: list[LogRecord] = []
    size = 0
    with closing(log.records(start, end)) as records:
        for each in islice(records, _HEAD_RECORDS):
            found.append(each)
            size += len(each.body)
            if size > _HEAD_BYTES and len(found) >= _LEAST_RECORDS:
                break
    return found


def earliest_time(head: Sequence[LogRecord]) -> int | None:
    """Return the earliest create time of a head's first records; None if their times say nothing."""
    first = [each for each in head[:_TIMED_RECORDS] if each.body]
    times = [each.timestamp for each in first if each.append_time is None]
    return min(times) if times and min(times) >= 0 else None


def begin(ours: Log, theirs: Log, copied: Copied | None, note: str) -> Alignment:
    """
    Return the place at which the comparison begins.

    Args:
        ours: The source.
        theirs: The destination.
        copied: The part that a mirror has copied, if it is known.
        note: Describes the mirror's position, or the reason that there is none.

    Raises:
        NotComparable: No place shows how the two belong together.

    """
    start = Place(ours.offsets.start, theirs.offsets.start)
    if copied is not None:
        origin, progress = copied.origin, copied.progress
        if start.precedes(origin):
            return Alignment(Aligned.BY_ORIGIN, *origin, f"the origin of {note}")
        side = "source" if start.source > origin.source else "destination"
        note = f"retention moved the log start of the {side} past the origin of {note}"
        start = Place(max(start.source, origin.source), max(start.destination, origin.destination))
        is_at = start.source == progress.source, start.destination == progress.destination
        if any(is_at) and start.precedes(progress):
            return Alignment(Aligned.BY_POSITION, *progress, f"{note}, so only records behind it are left")
    source, destination = (
        first_records(log, place, log.offsets.end) for log, place in zip((ours, theirs), start, strict=True)
    )
    if any(not head and log.damage for log, head in ((ours, source), (theirs, destination))):
        return Alignment(Aligned.BY_CONTENT, *start, f"{note}, and a log is damaged there", is_proven=False)
    if copied is not None:
        is_behind = start.source >= progress.source and theirs.offsets.end <= progress.destination
        if is_behind or not source or not destination:
            place = Place(max(progress.source, start.source), theirs.offsets.end)
            why = f"{note}, and one side has none of the mirrored records left"
            return Alignment(Aligned.BY_POSITION, *place, why)
    if not source and not destination:
        end = Place(ours.offsets.end, theirs.offsets.end)
        return Alignment(Aligned.NOTHING, *end, "there is nothing on either side")
    if not destination:
        raise NotComparable(
            f"{note}, and the destination is empty: nothing shows that the topic was mirrored"
        )
    if not source and ours.offsets.start > 0:
        raise NotComparable(f"{note}, and the source is empty: retention has deleted the mirrored records")
    if not source:
        return Alignment(Aligned.BY_CONTENT, *start, f"{note}, and the source never held a record")
    found = _begin_by_content(ours, theirs, start, source, destination, note)
    known = copied.place_from(start) if copied is not None else None
    if known is not None and (found is None or not found.is_proven):
        return Alignment(Aligned.BY_POSITION, *known, f"{note}, whose offset map has a later place")
    if found is None:
        raise NotComparable(
            f"{note}, and the first {len(source):,} records of the source and the first "
            f"{len(destination):,} of the destination are not on the other side: this is not a copy of the "
            "topic, or retention has deleted all records that both sides had"
        )
    return found


def _begin_by_content(
    ours: Log,
    theirs: Log,
    start: Place,
    source: Sequence[LogRecord],
    destination: Sequence[LogRecord],
    note: str,
) -> Alignment | None:
    alike = [are_same(*pair) for pair in zip(source, destination, strict=False)]
    same = alike.index(False) if False in alike else len(alike)
    unlike = len({(each.body, each.timestamp) for each in source[:same]})
    if unlike >= _PROOF or same == len(alike):
        is_proven = unlike >= _PROOF or (2 * unlike > same and (start == (0, 0) or unlike >= 4))
        return Alignment(Aligned.BY_CONTENT, *start, note, is_proven)
    return _search(ours, theirs, start, source, destination, note)


def _search(
    ours: Log,
    theirs: Log,
    start: Place,
    source: Sequence[LogRecord],
    destination: Sequence[LogRecord],
    note: str,
) -> Alignment | None:
    """Search the head of each log in the other; return the beginning of one, if possible a certain one."""
    best: Alignment | None = None
    for log, head, first, own_first in (
        (ours, destination, start.source, start.destination),
        (theirs, source, start.destination, start.source),
    ):
        found = _find(head, log, first)
        if found is not None and (best is None or found.is_proof):
            there, own = _stepped_back(found, head, log, first, own_first)
            place = Place(there, own) if log is ours else Place(own, there)
            if not ours.offsets.start:
                # The source has all that it ever had: the copy's beginning is part of the comparison.
                place = place._replace(destination=theirs.offsets.start)
            best = Alignment(Aligned.BY_CONTENT, *place, note, found.is_proof)
            if found.is_proof:
                break
    return best


def _stepped_back(
    found: Found, head: Sequence[LogRecord], log: Log, first: int, own_first: int
) -> tuple[int, int]:
    """
    Step back from an anchor, record by record, to the beginning of one of both logs.

    Args:
        found: The chain that begins with the anchor.
        head: The records that were looked for.
        log: The log in which they were found.
        first: Its first offset that counts.
        own_first: The first offset of the log of the head.

    """
    link, searched = found.first, found.searched
    wanted = sum(each.records for each in head[: link.at])
    with closing(log.records(searched, link.offset)) as records:
        before = deque((each.offset for each in records if each.offset < link.offset), maxlen=wanted + 1)
    if len(before) > wanted:
        # Behind the record before these: a gap between the two is evidence of compaction.
        return before[0] + 1, own_first
    missing = wanted - len(before)
    behind = accumulate(each.records for each in head)
    at = next((at for at, records in enumerate(behind, 1) if records >= missing), 0) if missing else 0
    there = first if searched == first else min((*before, link.offset))
    return there, head[at - 1].offset + head[at - 1].records if at else own_first


def _find(head: Sequence[LogRecord], log: Log, start: int) -> Found | None:
    """Find records of one log in the other, from an offset and not long before their times on."""
    time = earliest_time(head)
    first = None if time is None else log.first_at(time)
    near = start if first is None else max(start, first - _HEAD_RECORDS)
    return find_first(head, log, near, log.offsets.end)


def find_first(head: Sequence[LogRecord], log: Log, start: int, end: int) -> Found | None:
    """
    Find records of one log in the other: the longest chain of anchors.

    Args:
        head: Records that follow each other.
        log: The other log.
        start: Its first offset to search.
        end: The first offset that is not searched.

    """
    anchors = _anchors(head, Side.DESTINATION if log.side is Side.SOURCE else Side.SOURCE)
    count = len({index for index in anchors.values() if index is not None})
    links: dict[int, _Link] = {}
    repeated: set[int] = set()
    newest = 0
    with closing(log.records(start, end)) as records:
        for seen, each in enumerate(records):
            at = next((anchors[key] for key in keys_of(each, log.side) if anchors.get(key) is not None), None)
            if at is not None:
                newest = seen
                if at in links:
                    repeated.add(at)
                    continue
                links[at] = _Link(at, each.offset, seen)
                if len(links) == count and len(_chain(links, repeated)) >= _PROOF:
                    break
            elif seen - newest == _MOST_UNLIKE and len(_chain(links, repeated)) >= _PROOF:
                break
    chain = _chain(links, repeated)
    is_most = 2 * count > len(head) and 2 * len(chain) > count
    return Found(chain[0], chain[-1], start, len(chain) >= _PROOF or is_most) if chain else None


def _anchors(head: Sequence[LogRecord], side: Side) -> dict[Key, int | None]:
    """Return the index of each key; None if several records have it."""
    anchors: dict[Key, int | None] = {}
    for index, each in enumerate(head):
        for key in keys_of(each, side):
            anchors[key] = None if key in anchors else index
    return anchors


def _chain(links: Mapping[int, _Link], repeated: Container[int]) -> list[_Link]:
    """Return the longest chain of anchors that are once in both logs, without a large gap in it."""
    certain = [link for at, link in links.items() if at not in repeated]
    parts: list[list[_Link]] = [[]]
    for index in longest_ascending([link.at for link in certain]):
        link = certain[index]
        if parts[-1] and link.seen - parts[-1][-1].seen > _MOST_BETWEEN:
            parts.append([])
        parts[-1].append(link)
    return max(parts, key=len)


def find_again(
    ours: Log, theirs: Log, source: Sequence[LogRecord], destination: Sequence[LogRecord], place: Place
) -> Place | None:
    """
    Find the next records of one side far behind a place of the other.

    Args:
        ours: The source.
        theirs: The destination.
        source: Its next records.
        destination: Likewise.
        place: Where both sides part.

    Returns:
        The offsets from which on both agree again; None if the next records of neither side are on the other.

    """
    for log, head, start in ((ours, destination, place.source), (theirs, source, place.destination)):
        found = _find(head[:_HEAD_RECORDS], log, start)
        if found is not None and found.is_proof:
            own, there = head[found.first.at].offset, found.first.offset
            return Place(there, own) if log is ours else Place(own, there)
    return None
