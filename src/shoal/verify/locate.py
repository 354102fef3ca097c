"""
Find records of one log in the other, and the place at which both begin to have the same records.

The records that are looked for are *anchors*: each is once among them. Anchors that turn up in the other log
in the same order make a *chain*. A chain may have gaps: faults, and records that compaction removed. A long
chain is a proof. Batches and offsets play no part, since a copy may have other ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import NamedTuple

from .compare import MOST_AHEAD
from .errors import NotComparable
from .findings import OffsetRange, Side
from .log import Log, LogRecord
from .plan import Copied
from .records import Key, are_same, keys_of
from .report import Aligned, Alignment
from .slots import Place, longest_ascending

__all__ = ["Begin", "begin", "earliest_time", "find_again", "find_first", "find_keys", "first_records"]

#: The number of unlike records that prove that two places belong together.
_PROOF = 16

#: The records of a log's beginning to look for; of large ones, fewer.
_HEAD_RECORDS, _LEAST_RECORDS, _HEAD_BYTES = 1_024, 64, 4 * 1024 * 1024

#: The most records between two links of a chain.
_MOST_BETWEEN = 1_024

#: How far back to look for a log's last record: transaction markers and gaps may be behind it.
_LAST_OFFSETS = 64

#: The number of first records whose times say where the other log has them.
_TIMED_RECORDS = 256


@dataclass(frozen=True, slots=True)
class Begin:
    """
    The place at which a comparison begins.

    Attributes:
        alignment: The place, and the evidence.
        is_proven: Whether it is certain: differences behind a place that is not are no differences.

    """

    alignment: Alignment
    is_proven: bool

    @property
    def place(self) -> Place:
        """The offsets."""
        return Place(self.alignment.source_offset, self.alignment.destination_offset)


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
class _Found:
    """
    The longest chain.

    Attributes:
        first: Its first anchor that is once in both logs.
        length: The number of such anchors.
        searched: The first offset that was searched.
        is_proof: Whether there is no other place.

    """

    first: _Link
    length: int
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


def first_records(log: Log, start: int) -> list[LogRecord]:
    """Return the first records of a log from an offset on; fewer if they are large."""
    found: list[LogRecord] = []
    size = 0
    with closing(log.records(start, log.offsets.end)) as records:
        for each in islice(records, _HEAD_RECORDS):
            found.append(each)
            size += len(each.body or b"")
            if size > _HEAD_BYTES and len(found) >= _LEAST_RECORDS:
                break
    return found


def earliest_time(head: Sequence[LogRecord]) -> int | None:
    """Return the earliest create time of a head's first records; None if their times say nothing."""
    first = [each for each in head[:_TIMED_RECORDS] if each.body is not None]
    times = [each.timestamp for each in first if each.append_time is None]
    return min(times) if times and min(times) >= 0 else None


def begin(ours: Log, theirs: Log, copied: Copied | None, note: str) -> Begin:
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
        origin, progress = copied
        if start.source <= origin.source and start.destination <= origin.destination:
            older = _begin_of_older_copy(ours, theirs, origin, f"an older copy ends at the origin of {note}")
            return older or _proven(Aligned.BY_ORIGIN, origin, f"the origin of {note}")
        side = "source" if start.source > origin.source else "destination"
        note = f"retention moved the log start of the {side} past the origin of {note}"
        start = Place(max(start.source, origin.source), max(start.destination, origin.destination))
        is_at = start.source == progress.source, start.destination == progress.destination
        if any(is_at) and start.source <= progress.source and start.destination <= progress.destination:
            return _proven(Aligned.BY_POSITION, progress, f"{note}, so only records behind it are left")
    source, destination = first_records(ours, start.source), first_records(theirs, start.destination)
    if copied is not None:
        is_behind = start.source >= progress.source and theirs.offsets.end <= progress.destination
        if is_behind or not source or not destination:
            place = Place(max(progress.source, start.source), theirs.offsets.end)
            why = f"{note}, and one side has none of the mirrored records left"
            return _proven(Aligned.NOTHING, place, why)
    if not source and not destination:
        end = Place(ours.offsets.end, theirs.offsets.end)
        return _proven(Aligned.NOTHING, end, "there is nothing on either side")
    if not destination:
        raise NotComparable(
            f"{note}, and the destination is empty: nothing shows that the topic was mirrored"
        )
    if not source and ours.offsets.start > 0:
        raise NotComparable(f"{note}, and the source is empty: retention has deleted the mirrored records")
    if not source:
        return _proven(Aligned.BY_CONTENT, start, f"{note}, and the source never held a record")
    return _begin_by_content(ours, theirs, start, source, destination, note)


def _proven(by: Aligned, place: Place, why: str) -> Begin:
    return Begin(Alignment(by, *place, why), is_proven=True)


def _begin_of_older_copy(ours: Log, theirs: Log, origin: Place, note: str) -> Begin | None:
    """Return the beginning of the copy that a mirror has taken over, if one ends at its origin."""
    if ours.offsets.start >= origin.source or theirs.offsets.start >= origin.destination:
        return None
    here = replace(ours, offsets=OffsetRange(ours.offsets.start, origin.source))
    there = replace(theirs, offsets=OffsetRange(theirs.offsets.start, origin.destination))
    last, copied = _last_record(here), _last_record(there)
    if last is None or copied is None or not are_same(last, copied):
        return None
    with suppress(NotComparable):
        found = begin(here, there, None, note)
        return found if found.is_proven else None
    return None


def _last_record(log: Log) -> LogRecord | None:
    start, end = log.offsets
    return next(reversed([*log.records(max(start, end - _LAST_OFFSETS), end)]), None)


def _begin_by_content(
    ours: Log,
    theirs: Log,
    start: Place,
    source: Sequence[LogRecord],
    destination: Sequence[LogRecord],
    note: str,
) -> Begin:
    alike = [are_same(*pair) for pair in zip(source, destination, strict=False)]
    same = alike.index(False) if False in alike else len(alike)
    unlike = len({(each.body, each.timestamp) for each in source[:same]})
    if unlike >= _PROOF or same == len(alike):
        is_proven = unlike >= _PROOF or (2 * unlike > same and (start == (0, 0) or unlike >= 4))
        return Begin(Alignment(Aligned.BY_CONTENT, *start, note), is_proven)
    found = _search(ours, theirs, start, source, destination)
    if found is not None:
        return Begin(Alignment(Aligned.BY_CONTENT, *found[0], note), found[1])
    if ours.offsets.start == theirs.offsets.start == 0 and any(alike):
        return Begin(Alignment(Aligned.BY_CONTENT, 0, 0, note), is_proven=False)
    raise NotComparable(
        f"{note}, and the first {len(source):,} records of the source and the first {len(destination):,} of "
        "the destination are not on the other side: this is not a copy of the topic, or retention has "
        "deleted all records that both sides had"
    )


def _search(
    ours: Log, theirs: Log, start: Place, source: Sequence[LogRecord], destination: Sequence[LogRecord]
) -> tuple[Place, bool] | None:
    """Search the head of each log in the other; return the best place, and whether it is certain."""
    best: tuple[Place, _Found] | None = None
    for log, head, first, own_first in (
        (ours, destination, start.source, start.destination),
        (theirs, source, start.destination, start.source),
    ):
        found = _find(head, log, first)
        if found is None or (best is not None and found.length <= best[1].length):
            continue
        there, own = _stepped_back(found, head, log, first, own_first)
        place = Place(there, own) if log is ours else Place(own, there)
        if ours.offsets.start == 0:
            # The source has all that it ever had: the copy's beginning is part of the comparison.
            place = place._replace(destination=theirs.offsets.start)
        best = place, found
        if found.is_proof:
            break
    return None if best is None else (best[0], best[1].is_proof)


def _stepped_back(
    found: _Found, head: Sequence[LogRecord], log: Log, first: int, own_first: int
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


def _find(head: Sequence[LogRecord], log: Log, start: int) -> _Found | None:
    """Find records of one log in the other from an offset on: near their times, and else in all of it."""
    time = earliest_time(head)
    first = None if time is None else log.first_at(time)
    near = start if first is None else max(start, first - _HEAD_RECORDS)
    found = find_first(head, log, near, min(log.offsets.end, near + MOST_AHEAD))
    if found is not None and found.is_proof:
        return found
    anywhere = find_first(head, log, start, log.offsets.end)
    return found if found and not (anywhere and anywhere.length > found.length) else anywhere


def find_first(head: Sequence[LogRecord], log: Log, start: int, end: int) -> _Found | None:
    """
    Find records of one log in the other: the longest chain of anchors.

    Args:
        head: Records that follow each other.
        log: The other log.
        start: Its first offset to search.
        end: The first offset that is not searched.

    """
    own = Side.DESTINATION if log.side is Side.SOURCE else Side.SOURCE
    anchors = _anchors(head, own)
    count = len({index for index in anchors.values() if index is not None})
    enough = max(_PROOF, min(3 * _HEAD_RECORDS // 4, -(-3 * count // 4)))
    links: dict[int, _Link] = {}
    repeated: set[int] = set()
    asked = enough
    with closing(log.records(start, end)) as records:
        for link in _links(anchors, records, log.side):
            if link.at in links:
                repeated.add(link.at)
            links.setdefault(link.at, link)
            if len(links) - len(repeated) >= asked:
                chain = _chain(links, repeated)
                if len(chain) >= enough:
                    return _Found(chain[0], len(chain), start, is_proof=True)
                asked += _PROOF
    chain = _chain(links, repeated)
    if not chain:
        return None
    is_most = 2 * count > len(head) and 2 * len(chain) > count
    return _Found(chain[0], len(chain), start, is_proof=len(chain) >= _PROOF or is_most)


def _anchors(head: Sequence[LogRecord], side: Side) -> dict[Key, int | None]:
    """Return the index of each key; None if several records have it."""
    anchors: dict[Key, int | None] = {}
    for index, each in enumerate(head):
        for key in keys_of(each, side):
            anchors[key] = None if key in anchors else index
    return anchors


def _links(anchors: dict[Key, int | None], records: Iterable[LogRecord], side: Side) -> Iterator[_Link]:
    """Yield the records that are anchors, too."""
    for seen, each in enumerate(records):
        at = next((anchors[key] for key in keys_of(each, side) if anchors.get(key) is not None), None)
        if at is not None:
            yield _Link(at, each.offset, seen)


def _chain(links: dict[int, _Link], repeated: set[int]) -> list[_Link]:
    """Return the longest chain of anchors that are once in both logs, without a large gap in it."""
    certain = sorted((link for at, link in links.items() if at not in repeated), key=lambda link: link.seen)
    parts: list[list[_Link]] = [[]]
    for index in longest_ascending([link.at for link in certain]):
        link = certain[index]
        if parts[-1] and link.seen - parts[-1][-1].seen > _MOST_BETWEEN:
            parts.append([])
        parts[-1].append(link)
    return max(parts, key=len)


def find_again(
    ours: Log, theirs: Log, source: Sequence[LogRecord], destination: Sequence[LogRecord], place: Place
) -> Sequence[Place]:
    """
    Find the places from which on both sides agree again, if three records in a row do not show one.

    Args:
        ours: The source.
        theirs: The destination.
        source: Its next records.
        destination: Likewise.
        place: Where both sides part.

    Returns:
        A place at the next records of one side, and those behind it that are certain; none if these records
        are not on the other side.

    """
    found = _find(destination[:_HEAD_RECORDS], ours, place.source)
    if found is not None and found.is_proof:
        first = Place(found.first.offset, destination[found.first.at].offset)
        return [first, *_places_behind(first, source, destination)]
    found = _find(source[:_HEAD_RECORDS], theirs, place.destination)
    if found is not None and found.is_proof:
        first = Place(source[found.first.at].offset, found.first.offset)
        return [first, *_places_behind(first, source, destination)]
    return ()


def _places_behind(
    first: Place, source: Sequence[LogRecord], destination: Sequence[LogRecord]
) -> Sequence[Place]:
    """
    Return the places behind a first one at which both sides have the same record, without a large gap.

    If equal records stand alone among others all over a log, one search must find many of these places.
    """
    ours, theirs = (
        records[bisect_left(records, offset + 1, key=lambda each: each.offset) :]
        for records, offset in ((source, first.source), (destination, first.destination))
    )
    links = [*_links(_anchors(ours, Side.SOURCE), theirs, Side.DESTINATION)]
    count = Counter(link.at for link in links)
    certain = [link for link in links if count[link.at] == 1]
    places: list[Place] = []
    before = Place(0, 0)
    for index in longest_ascending([link.at for link in certain]):
        link = certain[index]
        if max(link.at - before.source, link.seen - before.destination) > _MOST_BETWEEN:
            break
        before = Place(link.at, link.seen)
        places.append(Place(ours[link.at].offset, link.offset))
    # As many links as prove a place must follow each.
    return places[:-_PROOF]
