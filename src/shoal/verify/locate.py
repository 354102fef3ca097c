"""
Find records of one log in the other, and the place at which both begin to have the same records.

The records that are looked for are *anchors*: each is once among them. Anchors that turn up in the other log
in the same order make a *chain*. A chain may have gaps: faults, and records that compaction removed. A long
chain is a proof. Batches and offsets play no part, since a copy may have other ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple, TypeAlias

from ..mirroring.model.position import MirrorPosition
from .compare import MOST_AHEAD, Place, longest_ascending
from .errors import NotComparable
from .findings import OffsetRange, Side
from .log import Log, LogRecord
from .report import Aligned, Alignment

__all__ = ["Begin", "begin", "find_again", "find_first", "first_records", "keys_of", "place_of"]

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

#: The hash of a record's body, and a time if it counts: the other side knows the record by them.
Key: TypeAlias = tuple[int, int | None]


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
        is_proof: Whether there is no other place.

    """

    first: _Link
    length: int
    is_proof: bool


def first_records(log: Log, start: int, end: int | None = None) -> list[LogRecord]:
    """Return the first records of a part of a log; fewer if they are large."""
    found: list[LogRecord] = []
    size = 0
    with closing(log.records(start, log.offsets.end if end is None else end)) as records:
        for each in islice(records, _HEAD_RECORDS):
            found.append(each)
            size += len(each.body or b"")
            if size > _HEAD_BYTES and len(found) >= _LEAST_RECORDS:
                break
    return found


def keys_of(record: LogRecord, side: Side) -> tuple[Key, ...]:
    """Return the keys of a record: a copy has its create time, its append time, or one of its own."""
    if record.body is None:
        return ()
    body = hash(record.body)
    if side is Side.DESTINATION:
        return ((body, record.timestamp if record.append_time is None else None),)
    if record.append_time is None or record.append_time == record.timestamp:
        return (body, record.timestamp), (body, None)
    return (body, record.timestamp), (body, record.append_time), (body, None)


def begin(ours: Log, theirs: Log, position: MirrorPosition | None, note: str) -> Begin:
    """
    Return the place at which the comparison begins.

    Args:
        ours: The source.
        theirs: The destination.
        position: The committed one, if there is one.
        note: Describes the position, or the reason that there is none.

    Raises:
        NotComparable: No place shows how the two belong together.

    """
    start = Place(ours.offsets.start, theirs.offsets.start)
    if position is not None:
        origin, progress = (
            Place(*position.origin),
            Place(position.source_offset, position.destination_offset),
        )
        if start.source <= origin.source and start.destination <= origin.destination:
            older = _begin_of_older_copy(ours, theirs, origin, note)
            return older or _proven(Aligned.BY_ORIGIN, origin, f"the origin of {note}")
        side = "source" if start.source > origin.source else "destination"
        note = f"retention moved the log start of the {side} past the origin of {note}"
        start = Place(max(start.source, origin.source), max(start.destination, origin.destination))
        if _is_all_that_is_left(start, progress):
            return _proven(Aligned.BY_POSITION, progress, f"{note}, so only records behind it are left")
    source, destination = first_records(ours, start.source), first_records(theirs, start.destination)
    if position is not None:
        is_behind = start.source >= progress.source and theirs.offsets.end <= progress.destination
        if is_behind or not source or not destination:
            place = Place(max(progress.source, start.source), theirs.offsets.end)
            why = f"{note}, and one side has none of the mirrored records left"
            return _proven(Aligned.NOTHING, place, why)
    return _begin_by_content(ours, theirs, start, source, destination, note)


def _proven(by: Aligned, place: Place, why: str) -> Begin:
    return Begin(Alignment(by, *place, why), is_proven=True)


def _begin_of_older_copy(ours: Log, theirs: Log, origin: Place, note: str) -> Begin | None:
    """Return the beginning of the copy that a mirror has taken over, if one ends at its origin."""
    start = Place(ours.offsets.start, theirs.offsets.start)
    if start.source >= origin.source or start.destination >= origin.destination:
        return None
    last, copied = _last_record(ours, origin.source), _last_record(theirs, origin.destination)
    if last is None or copied is None or not _are_alike(last, copied):
        return None
    source = first_records(ours, start.source, origin.source)
    destination = first_records(theirs, start.destination, origin.destination)
    why = f"an older copy ends at the origin of {note}"
    try:
        found = _begin_by_content(ours, theirs, start, source, destination, why)
    except NotComparable:
        return None
    return found if found.is_proven else None


def _last_record(log: Log, end: int) -> LogRecord | None:
    last = None
    with closing(log.records(max(log.offsets.start, end - _LAST_OFFSETS), end)) as records:
        for last in records:  # noqa: B007 - the last one counts
            pass
    return last


def _is_all_that_is_left(start: Place, position: Place) -> bool:
    """Whether a place that both logs reach back to is the beginning of one of them."""
    return (start.source == position.source and start.destination <= position.destination) or (
        start.destination == position.destination and start.source <= position.source
    )


def _begin_by_content(
    ours: Log,
    theirs: Log,
    start: Place,
    source: Sequence[LogRecord],
    destination: Sequence[LogRecord],
    note: str,
) -> Begin:
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
    alike = [_are_alike(*pair) for pair in zip(source, destination, strict=False)]
    same = alike.index(False) if False in alike else len(alike)
    unlike = len({(each.body, each.timestamp) for each in source[:same]})
    if unlike >= _PROOF or same == min(len(source), len(destination)):
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


def _are_alike(ours: LogRecord, theirs: LogRecord) -> bool:
    return not set(keys_of(ours, Side.SOURCE)).isdisjoint(keys_of(theirs, Side.DESTINATION))


def _search(
    ours: Log, theirs: Log, start: Place, source: Sequence[LogRecord], destination: Sequence[LogRecord]
) -> tuple[Place, bool] | None:
    """Search the head of each log in the other, first near its times; return the best place."""
    best: tuple[Place, _Found] | None = None
    for log, head, first, own_first in (
        (ours, destination, start.source, start.destination),
        (theirs, source, start.destination, start.source),
    ):
        near = _near(log, head, first)
        for begin_at, end_at in ((near, min(log.offsets.end, near + MOST_AHEAD)), (first, log.offsets.end)):
            if best is not None and best[1].is_proof:
                break
            found = find_first(head, log, begin_at, end_at)
            if found is None or (best is not None and found.length <= best[1].length):
                continue
            there, own = _stepped_back(
                found.first, head, log, begin_at, own_first, first if begin_at == first else None
            )
            place = Place(there, own) if log is ours else Place(own, there)
            if ours.offsets.start == 0:
                # The source has all that it ever had: the copy's beginning is part of the comparison.
                place = place._replace(destination=theirs.offsets.start)
            best = place, found
    return None if best is None else (best[0], best[1].is_proof)


def _stepped_back(
    link: _Link, head: Sequence[LogRecord], log: Log, searched: int, own_first: int, first: int | None
) -> tuple[int, int]:
    """
    Step back from an anchor, record by record, to the beginning of one of both logs.

    Args:
        link: The anchor.
        head: The records that were looked for.
        log: The log in which they were found.
        searched: Its first offset that was searched.
        own_first: The first offset of the log of the head.
        first: The first offset of the log in which they were found, if nothing before ``searched`` counts.

    """
    wanted = sum(each.records for each in head[: link.at])
    before: deque[int] = deque(maxlen=wanted + 1)
    with closing(log.records(searched, link.offset)) as records:
        before.extend(each.offset for each in records if each.offset < link.offset)
    if len(before) > wanted:
        # Behind the record before these: a gap between the two is evidence of compaction.
        return before[0] + 1, own_first
    there = first if first is not None else min((*before, link.offset))
    missing = wanted - len(before)
    behind = accumulate(each.records for each in head)
    at = next((at for at, records in enumerate(behind, 1) if records >= missing), 0) if missing else 0
    return there, head[at - 1].offset + head[at - 1].records if at else own_first


def _near(log: Log, head: Sequence[LogRecord], start: int) -> int:
    """Return an offset behind which a head probably is, by its times; the start if they say nothing."""
    times = [
        each.timestamp for each in head[:_TIMED_RECORDS] if each.append_time is None and each.body is not None
    ]
    if not times or min(times) < 0:
        return start
    return max(start, log.first_at(min(times), start) - _HEAD_RECORDS)


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
    anchors: dict[Key, int | None] = {}
    for index, each in enumerate(head):
        for key in keys_of(each, own):
            anchors[key] = None if key in anchors else index
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
                    return _Found(chain[0], len(chain), is_proof=True)
                asked += _PROOF
    chain = _chain(links, repeated)
    if not chain:
        return None
    is_most = 2 * count > len(head) and 2 * len(chain) > count
    return _Found(chain[0], len(chain), is_proof=len(chain) >= _PROOF or is_most)


def _links(anchors: dict[Key, int | None], records: Iterator[LogRecord], side: Side) -> Iterator[_Link]:
    for seen, each in enumerate(records):
        for key in keys_of(each, side):
            at = anchors.get(key)
            if at is not None:
                yield _Link(at, each.offset, seen)
                break


def _chain(links: dict[int, _Link], repeated: set[int]) -> list[_Link]:
    """Return the longest chain of anchors that are once in both logs, without a large gap in it."""
    certain = sorted((link for at, link in links.items() if at not in repeated), key=lambda link: link.seen)
    chain = [certain[index] for index in longest_ascending([link.at for link in certain])]
    parts: list[list[_Link]] = [[]]
    for link in chain:
        if parts[-1] and link.seen - parts[-1][-1].seen > _MOST_BETWEEN:
            parts.append([])
        parts[-1].append(link)
    return max(parts, key=len)


def find_again(
    ours: Log, theirs: Log, source: Sequence[LogRecord], destination: Sequence[LogRecord], place: Place
) -> Place | None:
    """
    Find the place from which on both sides agree again, further away than a window.

    Args:
        ours: The source.
        theirs: The destination.
        source: Its next records.
        destination: Likewise.
        place: Where both sides part.

    Returns:
        A place at the next records of one side; None if these are not on the other side.

    """
    found = find_first(destination[:_HEAD_RECORDS], ours, place.source, ours.offsets.end)
    if found is not None and found.is_proof:
        return Place(found.first.offset, destination[found.first.at].offset)
    found = find_first(source[:_HEAD_RECORDS], theirs, place.destination, theirs.offsets.end)
    if found is not None and found.is_proof:
        return Place(source[found.first.at].offset, found.first.offset)
    return None


def place_of(ours: Log, theirs: Log, offset: int, there: OffsetRange) -> tuple[Place | None, bool]:
    """
    Find the place of the first record behind a source offset that is certain at the destination.

    Args:
        ours: The source.
        theirs: The destination.
        offset: The source offset.
        there: The destination's offsets to search.

    Returns:
        The place, None if none is certain; and whether any of the next records is there.

    """
    head = first_records(ours, offset)
    found = find_first(head, theirs, *there)
    if found is None or not found.is_proof:
        return None, found is not None
    return Place(head[found.first.at].offset, found.first.offset), True
