"""
The offsets at which the comparison of a partition begins on both sides.

A mirror's committed position has its *origin*, the offsets at which it began, and its
progress. If both logs still reach back to the origin, that is the place. If not,
or without a position, both sides are aligned by content: by the first record at or
after each log's start, and its neighbours (:mod:`.common_start`). The beginnings
of both logs are tried first. Retention that has moved a log's start, and a
later start of the copy, are no differences.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from copy import copy
from dataclasses import dataclass

from ..client.offsets import list_offsets
from ..mirroring.model.position import MirrorPosition
from .common_start import CommonStart, FoundStart, begin_alike, common_starts
from .errors import NotComparable
from .log_head import LogHead, Neighbourhood, SeenRecord, are_alike, are_same
from .reading import LogReader
from .report import Aligned, Alignment, OffsetRange
from .seen_records import seen_records

__all__ = ["LogPair", "ProposedAlignment", "alignments", "meet_again"]


#: A head of large records ends after so many of them and so many bytes read.
_ENOUGH_RECORDS = 64
_HEAD_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogPair:
    """
    Both logs of one partition: how to read them, and which offsets of them.

    Attributes:
        source: Reads the source.
        destination: Reads the destination.
        source_log: The source's offsets, from the log's start, or from later on, to the end.
        destination_log: The destination's offsets, in the same way.

    """

    source: LogReader
    destination: LogReader
    source_log: OffsetRange
    destination_log: OffsetRange

    def between(self, start: CommonStart, end: CommonStart) -> LogPair:
        """Return the parts of both that lie between two places."""
        return LogPair(
            self.source,
            self.destination,
            OffsetRange(max(self.source_log.start, start.source), min(self.source_log.end, end.source)),
            OffsetRange(
                max(self.destination_log.start, start.destination),
                min(self.destination_log.end, end.destination),
            ),
        )

    @property
    def start(self) -> CommonStart:
        """The first offset of each."""
        return CommonStart(self.source_log.start, self.destination_log.start)

    @property
    def end(self) -> CommonStart:
        """The end of each."""
        return CommonStart(self.source_log.end, self.destination_log.end)


@dataclass(frozen=True, slots=True)
class ProposedAlignment:
    """
    Offsets at which a comparison may begin.

    Attributes:
        is_final: Whether no other place comes into question, even if the comparison finds differences.
        is_proven: Whether it is certain that the two logs belong together.

    """

    alignment: Alignment
    is_final: bool
    is_proven: bool


def alignments(
    logs: LogPair, position: MirrorPosition | None, position_note: str
) -> Iterator[ProposedAlignment]:
    """
    Yield the offsets at which the comparison may begin, the likeliest first.

    Take the next one if the comparison from one finds differences: a topic may repeat its records, so that
    more than one place looks right. No log is read for the next one before that.

    Args:
        logs: Both logs, from where they begin now.
        position: The committed one, if there is one.
        position_note: Describes the position, or the reason that there is none.

    Raises:
        NotComparable: No place shows how the two belong together.

    """
    if position is not None:
        yield from _by_position(logs, position, position_note)
    else:
        yield from _by_content(logs, position_note)


def _by_position(logs: LogPair, position: MirrorPosition, note: str) -> Iterator[ProposedAlignment]:
    origin, progress = (
        CommonStart(*position.origin),
        CommonStart(position.source_offset, position.destination_offset),
    )
    if logs.start.source <= origin.source and logs.start.destination <= origin.destination:
        older = _start_of_older_copy(logs, origin)
        if older is not None:
            yield _final(Aligned.BY_CONTENT, older, f"an older copy ends at the origin of {note}")
        else:
            yield _final(Aligned.BY_ORIGIN, origin, f"the origin of {note}")
        return
    side = "source" if logs.start.source > origin.source else "destination"
    why = f"retention moved the log start of the {side} past the origin of {note}"
    left = logs.between(origin, logs.end)
    heads = _heads(left)
    is_behind = left.start.source >= progress.source and left.end.destination <= progress.destination
    if is_behind or not all(head.records for head in heads):
        place = CommonStart(max(progress.source, left.start.source), left.end.destination)
        yield _final(Aligned.NOTHING, place, f"{why}, and one side has none of the mirrored records left")
    elif _is_all_that_is_left(left, progress):
        yield _final(Aligned.BY_POSITION, progress, f"{why}, so only records behind {note} are left")
    else:
        yield from _by_records(left, heads, why)


def _final(by: Aligned, place: CommonStart, why: str) -> ProposedAlignment:
    return ProposedAlignment(Alignment(by, *place, why), is_final=True, is_proven=True)


def _is_all_that_is_left(logs: LogPair, position: CommonStart) -> bool:
    """Whether a place that both logs reach back to is the beginning of one of them."""
    start = logs.start
    return (start.source == position.source and start.destination <= position.destination) or (
        start.destination == position.destination and start.source <= position.source
    )


def _start_of_older_copy(logs: LogPair, origin: CommonStart) -> CommonStart | None:
    """Find the beginning of the copy that a mirror with a newer group has taken over."""
    before = logs.between(logs.start, origin)
    if before.source_log.start >= origin.source or before.destination_log.start >= origin.destination:
        return None
    ours, theirs = (
        _last_record(before.source, before.source_log),
        _last_record(before.destination, before.destination_log),
    )
    if ours is None or theirs is None or not are_same(ours, theirs):
        return None
    found = meet_again(before)
    return found.place if found else None


#: How far back to look for a log's last record: transaction markers and gaps may be behind it.
_LAST_OFFSETS = 64


def _last_record(reader: LogReader, log: OffsetRange) -> SeenRecord | None:
    near = OffsetRange(max(log.start, log.end - _LAST_OFFSETS), log.end)
    last = None
    for record in seen_records(reader, near):
        last = record if record.offset < log.end else last
    return last


def _by_content(logs: LogPair, note: str) -> Iterator[ProposedAlignment]:
    heads = source_head, destination_head = _heads(logs)
    if not source_head.records and not destination_head.records:
        yield _final(Aligned.NOTHING, logs.end, "there is nothing on either side")
    elif not destination_head.records:
        raise NotComparable(
            f"{note}, and the destination is empty: nothing shows that the topic was mirrored"
        )
    elif source_head.records:
        yield from _by_records(logs, heads, note)
    elif logs.start.source > 0:
        raise NotComparable(f"{note}, and the source is empty: retention has deleted the mirrored records")
    else:
        yield _final(Aligned.BY_CONTENT, logs.start, f"{note}, and the source never held a record")


def _by_records(logs: LogPair, heads: tuple[LogHead, LogHead], why: str) -> Iterator[ProposedAlignment]:
    tried = set[CommonStart]()
    for found in _found_by_records(logs, heads):
        # Compaction is likelier than a fault.
        places = [_from_log_start(logs, heads, each) for each in (*found.beside_gaps, found.place)]
        new = [each for each in dict.fromkeys(places) if each not in tried]
        tried.update(new)
        for place in new:
            is_final = found.is_proven and place == new[-1]
            is_proven = found.is_proven or found.is_copy
            yield ProposedAlignment(Alignment(Aligned.BY_CONTENT, *place, why), is_final, is_proven)
    if not tried:
        raise NotComparable(
            f"{why}, and the first {len(heads[0].records):,} records of the source and the first "
            f"{len(heads[1].records):,} of the destination are not on the other side: this is not a copy of "
            "the topic, or retention has deleted all records that both sides had"
        )


def _from_log_start(logs: LogPair, heads: tuple[LogHead, LogHead], place: CommonStart) -> CommonStart:
    """Begin at the log start instead of the first record: a gap between the two is evidence of compaction."""
    firsts = [head.records[0].offset if head.records else None for head in heads]
    return CommonStart(
        *(
            start if offset == first else offset
            for start, offset, first in zip(logs.start, place, firsts, strict=True)
        )
    )


def _found_by_records(logs: LogPair, heads: tuple[LogHead, LogHead]) -> Iterator[FoundStart]:
    together = begin_alike(*heads)
    if together is not None:
        yield together
    yield from _search(logs, heads)
    source, destination = (head.records for head in heads)
    if logs.start == CommonStart(0, 0) and any(
        are_alike(one, other) for one, other in zip(source, destination, strict=False)
    ):
        # Both whole histories are here.
        yield FoundStart(logs.start, is_proven=False)


def meet_again(logs: LogPair) -> FoundStart | None:
    """
    Find the first place that both logs have in common, however far away in one of them.

    Returns:
        The offsets to begin at, or to go on at; None if no record of either head is on the other side.

    """
    return next(_search(logs, _heads(logs)), None)


def _search(logs: LogPair, heads: tuple[LogHead, LogHead]) -> Iterator[FoundStart]:
    """Search both logs, first from the offsets that the times of the other's head suggest."""
    begins = CommonStart(
        _first_at(logs.source, logs.source_log, heads[1]),
        _first_at(logs.destination, logs.destination_log, heads[0]),
    )
    found = _search_between(logs, heads, begins, logs.end)
    if not (found and found[0].is_proven) and begins != logs.start:
        found += _search_between(logs, heads, logs.start, begins)
    yield from found


def _search_between(
    logs: LogPair, heads: tuple[LogHead, LogHead], begins: CommonStart, ends: CommonStart
) -> list[FoundStart]:
    part = logs.between(begins, ends)
    with ExitStack() as streams:
        source = streams.enter_context(closing(_records(part.source, part.source_log, heads[0])))
        destination = streams.enter_context(
            closing(_records(part.destination, part.destination_log, heads[1]))
        )
        return common_starts(heads, source, destination, logs.start, source_is_whole=logs.start.source == 0)


def _records(reader: LogReader, log: OffsetRange, head: LogHead) -> Generator[SeenRecord]:
    """Yield the records of a part of a log; those of the head are known."""
    neighbours = None
    if head.records and log.start <= head.records[0].offset < log.end:
        known = [record for record in head.records if record.offset < log.end]
        yield from known
        log = OffsetRange(known[-1].offset + 1, log.end)
        neighbours = copy(head.neighbours)
    if log.start < log.end:
        yield from seen_records(reader, log, neighbours)


def _heads(logs: LogPair) -> tuple[LogHead, LogHead]:
    return _head(logs.source, logs.source_log), _head(logs.destination, logs.destination_log)


def _head(reader: LogReader, log: OffsetRange) -> LogHead:
    neighbours = Neighbourhood()
    with closing(_first_records(reader, log, neighbours)) as records:
        return LogHead(records, neighbours)


def _first_records(reader: LogReader, log: OffsetRange, neighbours: Neighbourhood) -> Generator[SeenRecord]:
    """Yield a log's first records, and no more large ones than a few fetches bring."""
    read_before = reader.bytes_read
    with closing(seen_records(reader, log, neighbours)) as records:
        for number, record in enumerate(records, 1):
            yield record
            if number >= _ENOUGH_RECORDS and reader.bytes_read - read_before > _HEAD_BYTES:
                return


def _first_at(reader: LogReader, log: OffsetRange, head: LogHead) -> int:
    """
    Return an offset behind which a head probably is.

    ListOffsets finds the first record of its time or later, and as far before as the head may
    reach back. If the destination writes its own times, they say nothing.
    """
    times = [time for record in head.records for _, time in record.keys[:1] if time is not None]
    if not times or min(times) < 0:
        return log.start
    offset = list_offsets(reader.cluster, {reader.partition: min(times)})[reader.partition]
    if not isinstance(offset, int) or not log.start < offset < log.end:
        return log.start
    return max(log.start, offset - 2 * len(head.records))
