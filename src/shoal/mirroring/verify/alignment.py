"""
Where the comparison of a partition begins on both sides.

A mirror's committed pair says where it began (its *origin*) and how far it has
come. Where both logs still reach back to the origin, that is the place. Else,
and where there is no pair, both sides are aligned by content: retention that
has moved a log's start, and a later start of the mirror, are no differences.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import islice

from ...client.offsets import list_offsets
from ...records import Record
from ..pair import Pair
from .common_start import HEAD_BATCHES, CommonStart, common_start
from .digest import Digest, likeness
from .errors import DamagedLog, NotComparable, NotDecodable
from .reading import LogReader
from .report import Aligned, Alignment, OffsetRange

__all__ = ["LogPair", "align", "meet_again"]


#: So many records are decoded, at most, to find out where a cropped or rebuilt batch began.
_MOST_DECODED_TO_ALIGN = 100_000


@dataclass(frozen=True, slots=True)
class LogPair:
    """
    Both logs of one partition: how to read them, and which offsets of them.

    Attributes:
        source: Reads the source.
        destination: Reads the destination.
        source_log: From the log's start, or from later on, to the end.
        destination_log: Likewise.

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
        return CommonStart(self.source_log.start, self.destination_log.start)

    @property
    def end(self) -> CommonStart:
        return CommonStart(self.source_log.end, self.destination_log.end)


def align(logs: LogPair, pair: Pair | None, pair_note: str) -> Alignment:
    """
    Find out where the comparison begins.

    Args:
        logs: Both logs, from where they begin now.
        pair: The committed one, if there is one.
        pair_note: What it is, or why there is none.

    Raises:
        NotComparable: Nothing says where the two belong together.

    """
    return _align_by_pair(logs, pair, pair_note) if pair else _align_by_content(logs, pair_note)


def _align_by_pair(logs: LogPair, pair: Pair, note: str) -> Alignment:
    origin, position = CommonStart(*pair.origin), CommonStart(pair.source_offset, pair.destination_offset)
    if logs.start.source <= origin.source and logs.start.destination <= origin.destination:
        older = _start_of_older_mirror(logs, origin)
        if older is not None:
            return Alignment(Aligned.BY_CONTENT, *older, f"an older mirror came up to the origin of {note}")
        return Alignment(Aligned.BY_ORIGIN, *origin, f"the origin of {note}")
    side = "source" if logs.start.source > origin.source else "destination"
    why = f"retention moved the log start of the {side} past the origin of {note}"
    left = logs.between(origin, logs.end)
    is_behind = left.start.source >= position.source and left.end.destination <= position.destination
    if is_behind or not all(_heads(left)):
        place = CommonStart(max(position.source, left.start.source), left.end.destination)
        return Alignment(
            Aligned.NOTHING, *place, f"{why}, and nothing of what was mirrored is left on a side"
        )
    if _is_all_that_is_left(left, position):
        return Alignment(Aligned.BY_PAIR, *position, f"{why}; only what lies behind {note} is left")
    found = meet_again(left)
    if found is None:
        raise NotComparable(f"{why}, and {_NOT_FOUND}")
    return Alignment(Aligned.BY_CONTENT, *found, why)


def _is_all_that_is_left(logs: LogPair, position: CommonStart) -> bool:
    """Whether a place that both logs reach back to is the beginning of one of them."""
    start = logs.start
    return (start.source == position.source and start.destination <= position.destination) or (
        start.destination == position.destination and start.source <= position.source
    )


_NOT_FOUND = (
    f"none of the first {HEAD_BATCHES} batches of either side is on the other: it was not mirrored by whole "
    "batches (then the records would have to be decoded to be compared), or not from there"
)


def _start_of_older_mirror(logs: LogPair, origin: CommonStart) -> CommonStart | None:
    """Find where the mirror began that a newer one went on from, with a group of its own."""
    before = logs.between(logs.start, origin)
    if before.source_log.start >= origin.source or before.destination_log.start >= origin.destination:
        return None
    last = [
        list(reader.digests(offset - 1, offset))[-1:]
        for reader, offset in ((logs.source, origin.source), (logs.destination, origin.destination))
    ]
    if not last[0] or not last[1] or last[0][0].fingerprint != last[1][0].fingerprint:
        return None
    return meet_again(before)


def _align_by_content(logs: LogPair, note: str) -> Alignment:
    source_head, destination_head = _heads(logs)
    if not source_head and not destination_head:
        return Alignment(Aligned.NOTHING, *logs.end, "there is nothing on either side")
    if not destination_head:
        raise NotComparable(f"{note}, and the destination is empty: nothing says that it was mirrored at all")
    if not source_head:
        if logs.start.source > 0:
            raise NotComparable(f"{note}, and the source is empty: retention has deleted what was mirrored")
        return Alignment(Aligned.BY_CONTENT, *logs.start, f"{note}; the source never held a record")
    found = meet_again(logs)
    if found is not None:
        return Alignment(Aligned.BY_CONTENT, *_back_to_decoded(logs, found), note)
    if logs.start == CommonStart(0, 0) and _are_alike_somewhere(source_head, destination_head):
        # Both whole histories are here, and at least the sizes and times are those of a mirror.
        return Alignment(Aligned.BY_CONTENT, *logs.start, f"{note}; both logs begin at offset 0")
    if _begin_with_the_same_record(logs, source_head[0], destination_head[0]):
        return Alignment(Aligned.BY_CONTENT, *logs.start, f"{note}; both logs begin with the same record")
    raise NotComparable(f"{note}, and {_NOT_FOUND}")


#: A record, and the append time of its batch if there is one.
_Timed = tuple[Record, int | None]


def _back_to_decoded(logs: LogPair, found: CommonStart) -> CommonStart:
    """
    Go back from the first batch in common to where the records begin to be the same.

    What the destination has before it was cropped or rebuilt, perhaps: then
    as many records are just before it in the source. If they are not the
    same, or too many to look at, that is for the comparison to tell.
    """
    try:
        there = _before_the_first_in_common(logs, found.source)
        here = _last_records(logs, found.source, len(there))
    except (DamagedLog, NotDecodable):
        return found
    if not there or len(here) != len(there):
        return found
    for (ours, append_time), (theirs, own_time) in zip(here, there, strict=True):
        is_timed = own_time is None and theirs.timestamp not in (ours.timestamp, append_time)
        if ours.body != theirs.body or is_timed:
            return found
    return CommonStart(here[0][0].offset, there[0][0].offset)


def _before_the_first_in_common(logs: LogPair, source_offset: int) -> list[_Timed]:
    """Return the destination's records before a source batch; none where it is not near."""
    # Its first records may be deleted already.
    begin = max(source_offset, logs.source_log.start)
    with closing(logs.source.digests(begin, logs.source_log.end)) as batches:
        first = next(batches, None)
    records: list[_Timed] = []
    if first is None:
        return records
    with closing(logs.destination.digests(*logs.destination_log)) as batches:
        for batch in islice(batches, HEAD_BATCHES):
            if batch.fingerprint == first.fingerprint:
                return records
            records += _timed(logs.destination, batch)
            if len(records) > _MOST_DECODED_TO_ALIGN:
                break
    return []


def _last_records(logs: LogPair, source_offset: int, count: int) -> list[_Timed]:
    """Return up to ``count`` of the source's records before an offset."""
    reach = count
    while count:
        # Further back each time: there may be holes and markers among them.
        start = max(logs.source_log.start, source_offset - reach)
        records: list[_Timed] = []
        with closing(logs.source.digests(start, source_offset, crop_at=start)) as batches:
            for batch in batches:
                records += _timed(logs.source, batch)
        if len(records) >= count or start == logs.source_log.start or reach > _MOST_DECODED_TO_ALIGN:
            return records[-count:]
        reach *= 4
    return []


def _timed(reader: LogReader, batch: Digest) -> list[_Timed]:
    if batch.damage:
        raise NotDecodable(batch.damage)
    decoded = reader.decode(batch)
    return [(record, decoded.append_time) for record in decoded.records]


def _begin_with_the_same_record(logs: LogPair, source: Digest, destination: Digest) -> bool:
    if source.damage or destination.damage:
        return False
    try:
        ours, theirs = logs.source.decode(source), logs.destination.decode(destination)
    except NotDecodable:
        return False
    return bool(ours.records and theirs.records) and ours.records[0].body == theirs.records[0].body


def _are_alike_somewhere(source: list[Digest], destination: list[Digest]) -> bool:
    return any(
        likeness(ours) == likeness(theirs) is not None
        for ours, theirs in zip(source, destination, strict=False)
    )


def meet_again(logs: LogPair) -> CommonStart | None:
    """
    Find the first place that both logs have in common, however far away in one of them.

    Reads both at the same pace, from where the times of their first batches
    say that they may be found; and all, if they are not there.

    Returns:
        Where to go on comparing; None where they have nothing in common.

    """
    source_head, destination_head = _heads(logs)
    begins = CommonStart(
        _first_at(logs.source, logs.source_log, destination_head),
        _first_at(logs.destination, logs.destination_log, source_head),
    )
    for start in dict.fromkeys([begins, logs.start]):
        part = logs.between(start, logs.end)
        with ExitStack() as open_logs:
            source = open_logs.enter_context(closing(_sound(logs.source, part.source_log)))
            destination = open_logs.enter_context(closing(_sound(logs.destination, part.destination_log)))
            found = common_start(
                source_head,
                destination_head,
                source,
                destination,
                from_the_start=start == logs.start,
                source_is_whole=logs.start.source == 0,
            )
        if found is not None:
            return found
    return None


def _heads(logs: LogPair) -> tuple[list[Digest], list[Digest]]:
    return _head(logs.source, logs.source_log), _head(logs.destination, logs.destination_log)


def _head(reader: LogReader, log: OffsetRange) -> list[Digest]:
    with closing(_sound(reader, log)) as batches:
        return list(islice(batches, HEAD_BATCHES))


def _sound(reader: LogReader, log: OffsetRange) -> Generator[Digest]:
    """Yield batches up to where a log cannot be read any further, of which the comparison will tell."""
    with suppress(DamagedLog):
        yield from reader.digests(*log)


def _first_at(reader: LogReader, log: OffsetRange, head: list[Digest]) -> int:
    """
    Return an offset before which a head's first batch cannot be.

    That is where ListOffsets finds the first record of its time or later. On
    a LogAppendTime topic times are those of arrival, which is later.
    """
    if not head or head[0].first_timestamp is None or head[0].first_timestamp < 0:
        return log.start
    asked = {reader.partition: head[0].first_timestamp}
    offset = list_offsets(reader.cluster, asked)[reader.partition]
    return max(log.start, offset) if isinstance(offset, int) and offset < log.end else log.start
