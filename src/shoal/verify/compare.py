"""
Step through both sides, and collect the slots in which they are not the same. No I/O.

Equal rows of bytes step over many batches at once. If rows differ, one batch of each side is decoded, and the
records are compared in step. If two records differ, both sides look ahead for the nearest place at which
they are the same again. All that lies before that place is a *slot*. :mod:`.explain` says later
what became of its records, over all slots together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

from .errors import DamagedLog
from .findings import OffsetRange
from .log import ROW_BYTES, Log, LogRecord, Run
from .records import Odd, are_same
from .slots import MOST_KEPT, Compared, Place, Slot, likes_of, places_of

__all__ = ["MOST_AHEAD", "Cursor", "compare"]

#: The most records of each side, and bytes of them, among which both are searched for the place at which they
#: agree again.
MOST_AHEAD, _MOST_AHEAD_BYTES = 65_536, 16 * 1024 * 1024

#: The first window of this search; each following one is larger by a factor.
_FIRST_WINDOW, _WINDOW_FACTOR = 32, 4

#: In a larger window, a run that one side alone has is searched first: that hashes no record.
_LARGE_WINDOW = 2_048

#: The number of equal records in a row that show that both sides are in step again.
_IN_A_ROW = 3

#: A place behind all offsets.
_END = 2**63 - 1


#: Finds places from which on both sides agree again, from their next records on, however far the first is.
FindFar: TypeAlias = Callable[[Sequence[LogRecord], Sequence[LogRecord], Place], Sequence[Place]]


class Cursor:
    """
    A place in one side: batches as rows lie behind it, or records of decoded batches.

    Attributes:
        records: Decoded records; those from :attr:`index` on lie behind the place.
        place: The offset behind the last record that was taken.
        damage: The damage at which the log ends, if it cannot be read to its end.

    """

    def __init__(self, log: Log, offsets: OffsetRange) -> None:
        self.records: list[LogRecord] = []
        self.index = 0
        self.place = offsets.start
        self.damage: DamagedLog | None = None
        self._log = log
        self._end = offsets.end
        self._runs = log.runs(*offsets)
        self._run: Run | None = None
        self._gap_behind = 0

    def close(self) -> None:
        """Close the connection."""
        self._runs.close()

    @property
    def run(self) -> Run | None:
        """The next batches as rows; None within a decoded batch, and at the end."""
        return None if self.index < len(self.records) else self._next_run()

    def take_rows(self, count: int) -> int:
        """Step over some batches of the run; return how many records they have."""
        run = self._run
        assert run is not None
        records = run.take(count)
        self.place = run.offset
        self._gap_behind = 0
        return records

    def fill(self) -> bool:
        """Make sure that there are decoded records; return whether there are any."""
        while self.index >= len(self.records):
            self.records, self.index = self._decoded(), 0
            if not self.records and self._next_run() is None:
                return False
        return True

    def look(self, count: int) -> list[LogRecord]:
        """Return up to so many of the next records, which stay; fewer if they are large, or at the end."""
        del self.records[: self.index]
        self.index = 0
        size = sum(len(each.body or b"") for each in self.records)
        while len(self.records) < count and size < _MOST_AHEAD_BYTES and self._next_run() is not None:
            more = self._decoded()
            size += sum(len(each.body or b"") for each in more)
            self.records += more
        return self.records[:count]

    def ends_within(self, count: int) -> bool:
        """Whether the side ends within so many records."""
        return len(self.records) - self.index <= count and self._next_run() is None

    def take(self, count: int) -> list[LogRecord]:
        """Step over some decoded records, and return them."""
        taken = self.records[self.index : self.index + count]
        self.index += count
        if taken:
            self.place = taken[-1].offset + taken[-1].records
        return taken

    def gap_ahead(self) -> int:
        """Return the number of offsets without a record before the next record, or the end."""
        return self.records[self.index].gap if self.fill() else max(0, self._end - self.place)

    def next_offset(self) -> int:
        """Return the offset of the next record; one behind all offsets at the end."""
        return self.records[self.index].offset if self.fill() else _END

    def _next_run(self) -> Run | None:
        if self._run is None or self._run.at >= self._run.count:
            try:
                self._run = next(self._runs, None)
            except DamagedLog as error:
                self._run, self.damage = None, error
        return self._run

    def _decoded(self) -> list[LogRecord]:
        run = self._next_run()
        if run is None:
            return []
        gap = self._gap_behind + (run.gap if run.at == 0 else 0)
        begin, end = run.offset, run.next_batch().header.next_offset
        found = self._log.decoded(run, gap, self._end)
        run.take(1)
        last = found[-1].offset + found[-1].records if found else begin
        self._gap_behind = max(0, min(end, self._end) - last) + (0 if found else gap)
        return found


def compare(ours: Cursor, theirs: Cursor, found: Compared, find_far: FindFar, mirrored_until: int) -> None:
    """
    Step through both sides.

    Args:
        ours: The source, at the first record to compare.
        theirs: The destination, likewise.
        found: Collects the result.
        find_far: Finds places if the records that are kept to look ahead show none.
        mirrored_until: The source offset before which the copy must have everything.

    """
    ahead = deque[Place]()
    while True:
        mine, other = ours.run, theirs.run
        if mine is not None and other is not None and (count := _same_rows(mine, other)):
            found.records += ours.take_rows(count)
            theirs.take_rows(count)
            found.batches += count
            continue
        if not ours.fill() or not theirs.fill():
            break
        count = _in_step(ours, theirs)
        found.records += count
        found.decoded += count
        if ours.index < len(ours.records) and theirs.index < len(theirs.records):
            while ahead and not _is_ahead(ahead[0], ours, theirs):
                ahead.popleft()
            if not ahead:
                ahead.extend(_again(ours, theirs, find_far))
            if not ahead:
                break
            found.add(_slot(ours, theirs, ahead.popleft(), _END))
    found.add(_slot(ours, theirs, None, mirrored_until))


def _same_rows(mine: Run, other: Run) -> int:
    """Return how many of the next batches are the same, by their bytes alone."""
    if not mine.rows or not other.rows:
        return 0
    low, high = 0, min(mine.count - mine.at, other.count - other.at)
    here, there = memoryview(mine.rows)[mine.at * ROW_BYTES :], memoryview(other.rows)[other.at * ROW_BYTES :]
    if here[: high * ROW_BYTES] == there[: high * ROW_BYTES]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if here[low * ROW_BYTES : middle * ROW_BYTES] == there[low * ROW_BYTES : middle * ROW_BYTES]:
            low = middle
        else:
            high = middle
    return low


def _in_step(ours: Cursor, theirs: Cursor) -> int:
    """Step over the decoded records that are the same, and return how many."""
    total, most = 0, _FIRST_WINDOW
    while True:
        # Few at first: after a look ahead there are many, and the next few may differ.
        count = min(len(ours.records) - ours.index, len(theirs.records) - theirs.index, most)
        source = ours.records[ours.index : ours.index + count]
        destination = theirs.records[theirs.index : theirs.index + count]
        are_equal = _are_equal(source, destination)
        if not are_equal:
            pairs = zip(source, destination, strict=True)
            same = next((at for at, pair in enumerate(pairs) if not are_same(*pair)), count)
            are_equal, count = same == count, same
        ours.take(count)
        theirs.take(count)
        total += count
        if not count or not are_equal:
            return total
        most *= _WINDOW_FACTOR


def _are_equal(source: Sequence[LogRecord], destination: Sequence[LogRecord]) -> bool:
    """Whether all have the same create times and bodies: most do, and lists are compared fast."""
    return [each.timestamp for each in source] == [each.timestamp for each in destination] and (
        None not in (bodies := [each.body for each in source])
        and bodies == [each.body for each in destination]
    )


def _is_ahead(place: Place, ours: Cursor, theirs: Cursor) -> bool:
    return place.source >= ours.next_offset() and place.destination >= theirs.next_offset()


def _again(ours: Cursor, theirs: Cursor, find_far: FindFar) -> Sequence[Place]:
    """Return the nearest place at which both sides are the same again, or several; none if there is none."""
    window = _FIRST_WINDOW
    while True:
        source, destination = ours.look(window), theirs.look(window)
        ends = ours.ends_within(window), theirs.ends_within(window)
        point = _nearest(source, destination, ends)
        if point is not None:
            return [Place(source[point.source].offset, destination[point.destination].offset)]
        if all(ends):
            return ()
        are_large = (len(source) < window and not ends[0]) or (len(destination) < window and not ends[1])
        if window >= MOST_AHEAD or are_large:
            return find_far(source, destination, Place(ours.place, theirs.place))
        window = min(_WINDOW_FACTOR * window, MOST_AHEAD)


def _nearest(
    source: Sequence[LogRecord], destination: Sequence[LogRecord], ends: tuple[bool, bool]
) -> Place | None:
    """
    Return the indexes with the least sum from which on both sides are the same.

    Three records in a row show that, or the rest of a side that ends. One record is enough if gaps explain
    all that is stepped over.
    """
    gaps = [list(accumulate(each.gap for each in records)) for records in (source, destination)]

    def agree_from(here: int, there: int) -> bool:
        run = 0
        for pair in zip(
            source[here : here + _IN_A_ROW], destination[there : there + _IN_A_ROW], strict=False
        ):
            if not are_same(*pair):
                break
            run += 1
        if not run or run == _IN_A_ROW:
            return bool(run)
        before = gaps[0][here], gaps[1][there]
        return (
            (ends[0] and here + run == len(source))
            or (ends[1] and there + run == len(destination))
            or (any(before) and here <= before[1] and there <= before[0])
        )

    best: Place | None = None
    if source and destination and max(len(source), len(destination)) > _LARGE_WINDOW:
        first, other = source[0].body, destination[0].body
        beside = [Place(here, 0) for here, each in enumerate(source) if each.body == other]
        beside += [Place(0, there) for there, each in enumerate(destination) if each.body == first]
        best = next((place for place in sorted(beside, key=sum) if agree_from(*place)), None)
        if best is not None:
            return best
    places = places_of(destination)
    for here, each in enumerate(source):
        if best is not None and here >= sum(best):
            break
        for there in likes_of(each, places):
            if best is not None and here + there >= sum(best):
                break
            if here + there and agree_from(here, there):
                best = Place(here, there)
    return best


def _slot(ours: Cursor, theirs: Cursor, until: Place | None, mirrored_until: int) -> Slot:
    """Step to a place, however far, or to the ends of both sides; keep the first records."""
    start, is_last = Place(ours.place, theirs.place), until is None
    to = until or Place(_END, _END)
    source, more_here, gaps_here = _taken(ours, to.source, mirrored_until)
    destination, more_there, gaps_there = _taken(theirs, to.destination, _END)
    gaps = Place(gaps_here + ours.gap_ahead(), gaps_there + theirs.gap_ahead())
    end, more = Place(ours.next_offset(), theirs.next_offset()), Place(more_here, more_there)
    return Slot(source, destination, start, gaps, end, is_last, more)


def _taken(cursor: Cursor, until: int, lag_from: int) -> tuple[list[Odd], int, int]:
    """Take the records before an offset; return the first, the number of others, and of gaps before all."""
    kept: list[Odd] = []
    more = gaps = 0
    # Of those that may be lag, the first are enough.
    while cursor.next_offset() < until and (len(kept) < MOST_AHEAD or cursor.next_offset() < lag_from):
        behind = bisect_left(cursor.records, until, cursor.index, key=lambda each: each.offset)
        taken = cursor.take(behind - cursor.index)
        gaps += sum(each.gap for each in taken)
        room = MOST_KEPT - len(kept)
        kept += map(Odd.of, taken[:room])
        more += sum(each.records for each in taken[room:])
    return kept, more, gaps
