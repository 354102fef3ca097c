"""
What the destination holds before the comparison begins, and the source holds as well: it is there twice.

So it is after a second copy behind the first, by another group or another
tool. Windows of the destination are held against the part of the source that
has the same timestamps, the window nearest to the comparison first, and no
further back than they have doubles.

A record there may also be an older one that the source has deleted, or that a
later start passed over, and look like one that the source still has. Where
the source had older records, only those that it has once count, and only if
they are many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from ...client.offsets import list_offsets
from .alignment import LogPair
from .common_start import CommonStart, RecordKey, SeenRecord
from .reading import LogReader
from .report import Difference, DifferenceKind, OffsetRange
from .seen_records import seen_records

__all__ = ["doubled_before"]

#: So many offsets are looked at together: some 30 MB.
_WINDOW_OFFSETS = 131_072

#: So many doubles are no accident.
_TELLING = 16


def doubled_before(logs: LogPair, place: CommonStart) -> Iterator[Difference]:
    """
    Yield what the destination holds before the place where a comparison begins, and the source behind it.

    Args:
        logs: Both logs, from where they begin now.
        place: Where the comparison begins.

    """
    end = place.destination
    while end > logs.start.destination:
        window = OffsetRange(max(logs.start.destination, end - _WINDOW_OFFSETS), end)
        found = _doubled(logs, place, window)
        yield from (each.difference(place) for each in reversed(found))
        if not found:
            return
        end = window.start


@dataclass(slots=True)
class _Run:
    """Records that follow each other at the destination, and their likes in the source."""

    destination: OffsetRange
    source: OffsetRange
    records: int = 1

    def takes(self, there: int, likes: Sequence[int]) -> bool:
        """Take one record more, unless something lies before it or all its likes are further back."""
        here = next((like for like in likes if like >= self.source.end), None)
        if there != self.destination.end or here is None:
            return False
        self.destination = OffsetRange(self.destination.start, there + 1)
        self.source = OffsetRange(self.source.start, here + 1)
        self.records += 1
        return True

    def difference(self, place: CommonStart) -> Difference:
        return Difference(
            DifferenceKind.EXTRA,
            OffsetRange(place.source, place.source),
            self.destination,
            0,
            self.records,
            copy_of=self.source,
            detail="before the comparison begins",
        )


def _doubled(logs: LogPair, place: CommonStart, window: OffsetRange) -> list[_Run]:
    there = [record for record in _between(logs.destination, window) if record.keys]
    if not there:
        return []
    here = _likes(logs, place, there)
    may_be_older = place.source > 0
    found = [
        (record.offset, here[record.keys[0]])
        for record in there
        if record.keys[0] in here and (not may_be_older or len(here[record.keys[0]]) == 1)
    ]
    if may_be_older and len(found) < _TELLING:
        return []
    runs: list[_Run] = []
    for offset, likes in found:
        if not runs or not runs[-1].takes(offset, likes):
            runs.append(_Run(OffsetRange(offset, offset + 1), OffsetRange(likes[0], likes[0] + 1)))
    return runs


def _likes(logs: LogPair, place: CommonStart, there: Sequence[SeenRecord]) -> dict[RecordKey, list[int]]:
    """Return up to two source offsets of each record that is the same as one at the destination."""
    wanted = Counter(record.keys[0] for record in there)
    found: dict[RecordKey, list[int]] = {}
    for record in _between(logs.source, _in_their_time(logs, place, there)):
        for key in record.keys:
            if key in wanted and len(likes := found.setdefault(key, [])) < 2:
                likes.append(record.offset)
    return found


def _between(reader: LogReader, log: OffsetRange) -> Iterator[SeenRecord]:
    with closing(seen_records(reader, log)) as records:
        for record in records:
            if record.offset >= log.end:
                return
            yield record


def _in_their_time(logs: LogPair, place: CommonStart, there: Sequence[SeenRecord]) -> OffsetRange:
    """Return the part of the source in which records of some times are; all of it if they do not ascend."""
    rest = OffsetRange(max(place.source, logs.start.source), logs.end.source)
    times = [time for record in there if (time := record.keys[0][1]) is not None]
    if len(times) < len(there) or min(times) < 0 or any(after < before for before, after in pairwise(times)):
        return rest
    begin = _first_at(logs.source, times[0], rest.start)
    return OffsetRange(max(rest.start, begin), min(rest.end, _first_at(logs.source, times[-1] + 1, rest.end)))


def _first_at(reader: LogReader, time: int, default: int) -> int:
    offset = list_offsets(reader.cluster, {reader.partition: time})[reader.partition]
    return offset if isinstance(offset, int) and offset >= 0 else default
