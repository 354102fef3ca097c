"""
Records that the destination holds before the comparison begins, and once more behind that.

A second copy behind the first, by another group or another tool, leaves them.
The destination's records are compared with the part of the source that has the
same timestamps.

A record there may also be older: the source has deleted it, or a later start
passed it over, and it looks like one that the source still has. If the
source had older records, only those that it has once count, and only many of
them in a row. Then the first and the last records are tried, and the others
only if there are doubles among these: a copy may reach back years further than
its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from ..client.offsets import list_offsets
from .alignment import LogPair
from .common_start import CommonStart
from .log_head import RecordKey, SeenRecord
from .reading import LogReader
from .report import Difference, DifferenceKind, OffsetRange
from .seen_records import seen_records

__all__ = ["doubled_before"]

#: The number of offsets to look at together: some 30 MB.
_WINDOW_OFFSETS = 131_072

#: The number of first offsets, and of last ones, to try.
_TRIED_OFFSETS = 4096

#: The number of doubles in a row that are no accident.
_TELLING = 16


def doubled_before(logs: LogPair, place: CommonStart) -> Iterator[Difference]:
    """
    Yield the records that the destination holds before a comparison, and the source behind its beginning.

    Args:
        logs: Both logs, from their present starts.
        place: The offsets at which the comparison begins.

    """
    before = OffsetRange(logs.start.destination, place.destination)
    if place.source > 0 and not any(_doubled(logs, place, part) for part in _ends(before)):
        return
    for start in range(before.start, before.end, _WINDOW_OFFSETS):
        window = OffsetRange(start, min(start + _WINDOW_OFFSETS, before.end))
        yield from (run.difference(place) for run in _doubled(logs, place, window))


def _ends(offsets: OffsetRange) -> Iterator[OffsetRange]:
    """Yield the last part of some offsets and the first."""
    yield OffsetRange(max(offsets.start, offsets.end - _TRIED_OFFSETS), offsets.end)
    yield OffsetRange(offsets.start, min(offsets.end, offsets.start + _TRIED_OFFSETS))


@dataclass(slots=True)
class _DoubledRun:
    """Records that follow each other at the destination, and their likes in the source."""

    destination: OffsetRange
    source: OffsetRange
    records: int = 1

    def takes(self, there: int, likes: Sequence[int]) -> bool:
        """Take the next record of the destination, unless all its likes are further back."""
        here = next((like for like in likes if like >= self.source.end), None)
        if here is None:
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


def _doubled(logs: LogPair, place: CommonStart, window: OffsetRange) -> list[_DoubledRun]:
    there = [record for record in _between(logs.destination, window) if record.keys]
    if not there:
        return []
    here = _likes(logs, place, there)
    if place.source == 0:
        return _runs(there, here)
    once = {key: likes for key, likes in here.items() if len(likes) == 1}
    return [run for run in _runs(there, once) if run.records >= _TELLING]


def _runs(there: Sequence[SeenRecord], here: Mapping[RecordKey, Sequence[int]]) -> list[_DoubledRun]:
    """Return the destination's records that follow each other, and whose likes do."""
    runs: list[_DoubledRun] = []
    open_run: _DoubledRun | None = None
    for record in there:
        likes = here.get(record.keys[0], ())
        if open_run is not None and open_run.takes(record.offset, likes):
            continue
        open_run = None
        if likes:
            begin = OffsetRange(record.offset, record.offset + 1)
            open_run = _DoubledRun(begin, OffsetRange(likes[0], likes[0] + 1))
            runs.append(open_run)
    return runs


def _likes(logs: LogPair, place: CommonStart, there: Sequence[SeenRecord]) -> dict[RecordKey, list[int]]:
    """Return up to two source offsets of each record that is the same as one at the destination."""
    wanted = {record.keys[0] for record in there}
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
