"""
The offsets at which two logs begin to hold the same records. No I/O.

The one that begins later is found in the other: its first records (its *head*)
are searched in the stream of the other, and the other way round, both at the
same pace. Batches play no part, since a copy may be cut and compressed in
another way, and offsets play none.

Only anchors are searched for (:mod:`.log_head`). Anchors that turn up in the order of the head make a
*chain*. A chain may have gaps (compaction, faults), and it is a proof once it has most of the anchors. From
its first anchor the way leads back, record by record, to the beginning of one log.

If both logs have records before their first common one, the cleaner or retention may have removed them from
the other side, on each side. The beginning is then not certain: there are more places to try (:mod:`.gaps`
has the rules for gaps).

A head with too few anchors repeats itself, and so may its log. Then its first records are searched as they
stand, too: no chain could tell one repetition from the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from .log_head import PROVING_ANCHORS, LogHead, SeenRecord, are_alike, are_same

__all__ = ["CommonStart", "FoundStart", "begin_alike", "common_starts"]

#: The most records of a stream that may lie between two anchors of a chain: faults, and records
#: that compaction removed from the head's log.
_MOST_BETWEEN_ANCHORS = 1024

#: The number of a head's first records to look for as they stand, if it has too few anchors.
_PATTERN_RECORDS = 256


class CommonStart(NamedTuple):
    """Offsets from which two logs are to be compared."""

    source: int
    destination: int


class FoundStart(NamedTuple):
    """
    A place that two logs have in common.

    Attributes:
        place: The offsets to begin at.
        is_proven: Whether so many records agree that no other place comes into question, but for those
            beside gaps.
        beside_gaps: Places close by that come into question, too: from there on, gaps may explain all
            records before the first that both logs have.
        is_copy: Whether most of one log's first records are in the other: that proves a copy, though not
            the place.

    """

    place: CommonStart
    is_proven: bool
    beside_gaps: tuple[CommonStart, ...] = ()
    is_copy: bool = False


def begin_alike(source: LogHead, destination: LogHead) -> FoundStart | None:
    """
    Try the beginnings of both logs.

    Returns:
        The beginnings, if the records there are the same: all that both heads have, or enough for a proof.

    """
    if not source.records or not destination.records:
        return None
    common = min(len(source.records), len(destination.records))
    same = next(
        (at for at in range(common) if not are_same(source.records[at], destination.records[at])), common
    )
    is_proven = (
        source.is_telling
        and destination.is_telling
        and min(source.anchors_before(same), destination.anchors_before(same)) >= PROVING_ANCHORS
    )
    if not is_proven and same < common:
        return None
    return FoundStart(CommonStart(source.records[0].offset, destination.records[0].offset), is_proven)


def common_starts(
    heads: tuple[LogHead, LogHead],
    source: Iterable[SeenRecord],
    destination: Iterable[SeenRecord],
    log_start: CommonStart,
    *,
    source_is_whole: bool = False,
) -> list[FoundStart]:
    """
    Find the first places that two logs have in common.

    Args:
        heads: The source's head, and the destination's.
        source: The source's records, to look for the destination's head in.
        destination: The destination's records, to look for the source's head in.
        log_start: The log start of both.
        source_is_whole: Whether nothing was ever deleted from the source's beginning.

    Returns:
        The places to begin to compare, the likeliest first. Records that only the source has before one
        mean a later start of the copy. Records that only the destination has before it are left out too, if
        the source may have deleted them; if not, the destination's beginning is returned. Empty if no anchor
        of either head is on the other side. Both streams are read at the same pace, and no further than
        needed.

    """
    firsts = [head.records[0].offset if head.records else None for head in heads]
    in_source, in_destination = _Search(heads[1], firsts[0]), _Search(heads[0], firsts[1])
    _run({in_source: iter(source), in_destination: iter(destination)})
    found: list[tuple[_Chain, _Search, list[CommonStart]]] = []
    for search, places_of in ((in_source, _places_in_source), (in_destination, _places_in_destination)):
        for chain in search.chains():
            places = places_of(chain, heads, log_start)
            if source_is_whole:
                places = [each._replace(destination=log_start.destination) for each in places]
            found.append((chain, search, places))
    found.sort(key=lambda each: -each[0].length)
    is_copy = in_source.shows_copy or in_destination.shows_copy
    return [
        FoundStart(
            place,
            search.is_sure and chain.length >= PROVING_ANCHORS,
            tuple(others),
            is_copy and chain.length >= PROVING_ANCHORS,
        )
        for chain, search, (place, *others) in found
    ]


def _places_in_source(
    chain: _Chain, heads: tuple[LogHead, LogHead], log_start: CommonStart
) -> list[CommonStart]:
    """Return the offsets to begin at if the destination's head was found in the source."""
    if chain.is_head_behind and chain.in_stream > heads[0].records[0].offset:
        # The source has what was before it, so that these were not deleted there: they are extra.
        places = [CommonStart(chain.behind, log_start.destination)]
        if chain.stream_beside_gaps is not None:
            places.append(CommonStart(chain.stream_beside_gaps, log_start.destination))
        if chain.head_beside_gaps is not None:
            places.append(CommonStart(log_start.source, chain.head_beside_gaps))
        return places
    return [CommonStart(chain.in_stream, chain.in_head)]


def _places_in_destination(
    chain: _Chain, heads: tuple[LogHead, LogHead], log_start: CommonStart
) -> list[CommonStart]:
    """Return the offsets to begin at if the source's head was found at the destination."""
    if chain.is_head_behind and chain.in_stream > heads[1].records[0].offset:
        # The destination reaches further back, and does not have these: they are missing.
        places = [CommonStart(log_start.source, chain.behind)]
        if chain.stream_beside_gaps is not None:
            places.append(CommonStart(log_start.source, chain.stream_beside_gaps))
        if chain.head_beside_gaps is not None:
            places.append(CommonStart(chain.head_beside_gaps, log_start.destination))
        return places
    return [CommonStart(chain.in_head, chain.in_stream)]


def _run(searches: dict[_Search, Iterator[SeenRecord]]) -> None:
    """Search in all streams at the same pace, until one is sure or all are at their ends."""
    searches = {search: records for search, records in searches.items() if search.can_find}
    while searches:
        for search, records in list(searches.items()):
            record = next(records, None)
            if record is None:
                del searches[search]
                continue
            search.see(record)
            if search.is_sure:
                return


class _Chain(NamedTuple):
    """
    Anchors that were found in the order of the head.

    Attributes:
        length: How many.
        seen_at: When the last of them was seen.
        in_stream: The first offset of the stream that belongs to the head.
        behind: The offset behind the stream's record before that: compaction may have left a gap.
        in_head: The first offset of the head that has its like in the stream.
        is_head_behind: Whether the head has records before that, which are not in the stream.
        stream_beside_gaps: The offset of the stream from which on gaps may explain these, and all of the
            stream up to ``in_stream``; None if they explain no such place.
        head_beside_gaps: The offset of the head from which on gaps may explain all of the stream before
            ``in_stream``, and all of the head up to ``in_head``; None if they explain no such place.

    """

    length: int
    seen_at: int
    in_stream: int
    behind: int
    in_head: int
    is_head_behind: bool
    stream_beside_gaps: int | None = None
    head_beside_gaps: int | None = None


class _Search:
    """Looks for a head in a stream of records."""

    def __init__(self, head: LogHead, first_in_log: int | None) -> None:
        """Search for a head; ``first_in_log`` is the first record of the log that the stream is a part of."""
        self._head = head
        self._first_in_log = first_in_log
        # Most of the anchors: a copy may have faults, and a batch that a producer sent twice is no proof.
        self._proof = -(-3 * head.anchors // 4)
        self._best: _Chain | None = None
        self._chains: dict[int, _Chain] = {}
        # As far back as the way from an anchor to the head's first record may lead.
        self._passed: deque[SeenRecord] = deque(maxlen=len(head.records))
        self._count = 0
        self._gaps = 0
        self._is_from_log_start = False
        # If the head repeats itself, so may the log: all of it is read, and other places are kept.
        self._pattern = None if head.is_telling else _Pattern(head.records)

    @property
    def can_find(self) -> bool:
        return bool(self._head.records)

    @property
    def is_sure(self) -> bool:
        return self._pattern is None and self._best is not None and self._best.length >= self._proof

    @property
    def shows_copy(self) -> bool:
        """Whether more than half of the anchors were found."""
        return self._pattern is None and self._best is not None and 2 * self._best.length > self._head.anchors

    def chains(self) -> Iterator[_Chain]:
        """Yield the chains and places found, the likeliest first."""
        if self._best is not None:
            yield self._best
        if self._pattern is not None:
            for offset in (*self._pattern.places(), *self._at_the_end()):
                yield _Chain(0, 0, offset, offset, self._head.records[0].offset, is_head_behind=False)

    def _at_the_end(self) -> Iterator[int]:
        """Yield the offset from which the stream's last records are the head's, but for a few."""
        head = self._head.records
        if len(head) <= len(self._passed):
            last = list(self._passed)[-len(head) :]
            if sum(map(are_same, head, last)) * 2 > len(head):
                yield last[0].offset

    def see(self, record: SeenRecord) -> None:
        """Take the next record of the stream."""
        self._is_from_log_start |= record.offset == self._first_in_log
        self._gaps += record.gap_before
        place = self._head.place_of(record)
        if place is not None:
            self._link(place, record)
        self._passed.append(record)
        self._count += 1
        if self._pattern is not None:
            self._pattern.see(record)

    def _link(self, place: int, record: SeenRecord) -> None:
        least = self._count - _MOST_BETWEEN_ANCHORS
        before = [
            (chain.length, index)
            for index, chain in self._chains.items()
            if index < place and chain.seen_at >= least
        ]
        if before:
            chain = self._chains[max(before)[1]]
            chain = chain._replace(length=chain.length + 1, seen_at=self._count)
        else:
            chain = self._begin(place, record)
        known = self._chains.get(place)
        # If two are equally long, the later one is closer to the records that follow.
        if known is None or chain.length >= known.length or known.seen_at < least:
            self._chains[place] = chain
        if self._best is None or chain.length > self._best.length:
            self._best = chain

    def _begin(self, place: int, record: SeenRecord) -> _Chain:
        """Go back from an anchor to the first records of stream and head that belong together."""
        head, first = self._head.records, record
        behind, gaps = first.offset, self._gaps
        steps = 0
        for before in reversed(self._passed):
            # One that is altered stands in its place.
            if place == 0 or not are_alike(head[place - 1], before):
                behind = before.offset + 1
                break
            place -= 1
            steps += 1
            gaps -= first.gap_before
            first = before
            behind = first.offset
        chain = _Chain(1, self._count, first.offset, behind, head[place].offset, place > 0)
        if not place:
            return chain
        older, count = islice(reversed(self._passed), steps, None), self._count - steps
        chain = chain._replace(
            stream_beside_gaps=_behind_gaps(
                first, older, least=place, most=sum(each.gap_before for each in head[: place + 1])
            )
        )
        if self._is_from_log_start:
            chain = chain._replace(
                head_beside_gaps=_behind_gaps(head[place], reversed(head[:place]), least=count, most=gaps)
            )
        return chain


def _behind_gaps(first: SeenRecord, older: Iterable[SeenRecord], *, least: int, most: int) -> int | None:
    """
    Return the nearest offset from which on gaps before a record may explain all that the other side has.

    Args:
        first: The record.
        older: The records before it, the last one first.
        least: The number of records on the other side, and so the offsets that the gaps must have.
        most: The offsets of the other side's gaps, and so the number of records that these may explain.

    """
    gaps, begin = first.gap_before, first.offset
    for number, each in enumerate(older):
        if gaps >= least:
            return each.offset + 1
        if number >= most:
            return None
        gaps += each.gap_before
        begin = each.offset
    return begin if gaps >= least else None


class _Pattern:
    """Finds the first records of a head, one after the other, in a stream (Knuth, Morris, Pratt)."""

    def __init__(self, records: Sequence[SeenRecord]) -> None:
        self._records = records[:_PATTERN_RECORDS]
        self._borders = [0] * len(self._records)
        border = 0
        for index in range(1, len(self._records)):
            while border and self._records[index].keys != self._records[border].keys:
                border = self._borders[border - 1]
            border += self._records[index].keys == self._records[border].keys
            self._borders[index] = border
        self._matched = 0
        self._offsets: deque[int] = deque(maxlen=len(self._records))
        self._whole: list[int] = []
        self._longest = 0, 0

    def see(self, record: SeenRecord) -> None:
        """Take the next record of the stream."""
        self._offsets.append(record.offset)
        if self._matched == len(self._records):
            self._matched = self._borders[-1]
        while self._matched and not are_same(self._records[self._matched], record):
            self._matched = self._borders[self._matched - 1]
        self._matched += are_same(self._records[self._matched], record)
        if self._matched > self._longest[0]:
            self._longest = self._matched, self._offsets[-self._matched]
        if self._matched == len(self._records):
            # The first such place and the last one.
            self._whole[1:] = [self._offsets[0]]

    def places(self) -> Iterator[int]:
        """Yield the offsets of the stream at which it may be, the likeliest first."""
        yield from self._whole
        if self._matched:
            # The stream ends in the middle of it.
            yield self._offsets[-self._matched]
        if self._longest[0]:
            yield self._longest[1]
