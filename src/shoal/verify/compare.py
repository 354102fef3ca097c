"""
Step through both sides, and collect the slots in which they are not the same.

Equal rows of bytes step over many batches at once. If rows differ, one batch of each side is decoded, and the
records are compared in step. If two records differ, both sides look ahead for the nearest place at which
they are the same again. All that lies before that place is a *slot*. :mod:`.explain` says later
what became of its records, over all slots together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from .errors import DamagedLog
from .findings import OffsetRange, Place
from .locate import find_again
from .log import ROW_BYTES, Log, LogRecord, Run
from .records import Odd, are_same
from .slots import Compared, Slot, common, gaps_of

__all__ = ["MOST_AHEAD", "Cursor", "compare"]

#: The most records of each side, and bytes of them, among which both are searched for the place at which they
#: agree again.
MOST_AHEAD, _MOST_AHEAD_BYTES = 65_536, 16 * 1024 * 1024

#: The first window of this search; each following one is larger by a factor.
_FIRST_WINDOW, _WINDOW_FACTOR = 32, 4

#: The records behind those that the copy's last ones may stand for, which are lag: the first are enough.
_MOST_LAG = 1_024

#: The number of common records that show that both sides are in step again.
_IN_COMMON = 3

#: A place behind all offsets.
_END = 2**63 - 1


class Cursor:
    """
    A place in one side: batches as rows lie behind it, or records of decoded batches.

    Attributes:
        log: The log of the side.
        records: Decoded records; those from :attr:`index` on lie behind the place.
        place: The offset behind the last record that was taken.
        damage: The damage at which the log ends, if it cannot be read to its end.

    """

    def __init__(self, log: Log, offsets: OffsetRange) -> None:
        self.records: list[LogRecord] = []
        self.index = 0
        self.place = offsets.start
        self.damage: DamagedLog | None = None
        self.log = log
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
        size = sum(len(each.body) for each in self.records)
        while len(self.records) < count and size < _MOST_AHEAD_BYTES and self._next_run() is not None:
            more = self._decoded()
            size += sum(len(each.body) for each in more)
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
        found = self.log.decoded(run, gap, self._end)
        run.take(1)
        last = found[-1].offset + found[-1].records if found else begin
        self._gap_behind = max(0, min(end, self._end) - last) + (0 if found else gap)
        return found


def compare(ours: Cursor, theirs: Cursor, found: Compared, mirrored_until: int) -> None:
    """
    Step through both sides, to their ends unless too many records differ, or a log is damaged.

    Args:
        ours: The source, at the first record to compare.
        theirs: The destination, likewise.
        found: Collects the result.
        mirrored_until: The source offset before which the copy must have everything.

    """
    while found.room > 0:
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
            place = _again(ours, theirs)
            if place is None:
                break
            found.add(_slot(ours, theirs, place, found.room))
    if found.room > 0:
        found.add(_slot(ours, theirs, None, found.room, mirrored_until))
    is_whole = theirs.next_offset() == _END and ours.next_offset() >= mirrored_until
    if found.room <= 0 or not is_whole:
        found.cut = Place(ours.place, theirs.place)
    elif ours.damage or theirs.damage:
        # Nothing behind the damage can be found: what the other side has there is no difference.
        found.cut = found.slots.pop().start


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
        all(bodies := [each.body for each in source]) and bodies == [each.body for each in destination]
    )


def _again(ours: Cursor, theirs: Cursor) -> Place | None:
    """
    Return the next place at which both sides are the same again; None without any.

    Both sides look ahead, at few records first. The place is the first of the most records, in order, that
    both have in common. One in common may be an accident, unless a side ends.
    """
    window = _FIRST_WINDOW
    while True:
        source, destination = ours.look(window), theirs.look(window)
        ends = ours.ends_within(window), theirs.ends_within(window)
        if all(ends):
            return None
        found = common(source, destination)
        if len(found) >= (1 if any(ends) else _IN_COMMON):
            here, there = found[0]
            return Place(source[here].offset, destination[there].offset)
        are_large = (len(source) < window and not ends[0]) or (len(destination) < window and not ends[1])
        if window >= MOST_AHEAD or are_large:
            return find_again(ours.log, theirs.log, source, destination, Place(ours.place, theirs.place))
        window = min(_WINDOW_FACTOR * window, MOST_AHEAD)


def _slot(ours: Cursor, theirs: Cursor, until: Place | None, most: int, lag_from: int = _END) -> Slot:
    """Step to a place, or to the ends of both sides, by so many records of each at most."""
    start, to = Place(ours.place, theirs.place), until or Place(_END, _END)
    destination = _taken(theirs, to.destination, most)
    source = _taken(ours, min(to.source, lag_from), most)
    if until is None:
        source += _taken(ours, _END, max(0, len(destination) + _MOST_LAG - len(source)))
    gaps = Place(gaps_of(source) + ours.gap_ahead(), gaps_of(destination) + theirs.gap_ahead())
    end = Place(ours.next_offset(), theirs.next_offset())
    return Slot(source, destination, start, gaps, end, is_last=until is None)


def _taken(cursor: Cursor, until: int, most: int) -> list[Odd]:
    """Take the records before an offset, at most so many."""
    taken: list[Odd] = []
    while cursor.next_offset() < until and len(taken) < most:
        behind = bisect_left(cursor.records, until, cursor.index, key=lambda each: each.offset)
        taken += map(Odd.of, cursor.take(min(behind - cursor.index, most - len(taken))))
    return taken
