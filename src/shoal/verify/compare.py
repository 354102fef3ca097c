"""
Step through both sides, and yield the slots in which they are not the same. No I/O.

Equal rows of bytes step over many batches at once. If rows differ, one batch of each side is decoded, and the
records are compared in step. If two records differ, both sides look ahead for the nearest place at which
they are the same again. All that lies before that place is a *slot*. :mod:`.explain` says later
what became of its records, over all slots together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from .errors import DamagedLog
from .findings import OffsetRange, Side
from .log import ROW_BYTES, Log, LogRecord, Run

__all__ = [
    "MOST_AHEAD",
    "MOST_KEPT",
    "Cursor",
    "Place",
    "Same",
    "Slot",
    "Times",
    "compare",
    "longest_ascending",
    "split",
]

#: The most records of each side among which both are searched for the place at which they agree again.
MOST_AHEAD = 65_536

#: The first window of this search; each following one is larger by a factor.
_FIRST_WINDOW, _WINDOW_FACTOR = 32, 4

#: The number of equal records in a row that show that both sides are in step again.
_IN_A_ROW = 3

#: The most likes of one record among which a place is searched.
_MOST_LIKES = 16

#: The most records of each side that a slot keeps; the others are counted.
MOST_KEPT = 262_144

#: A place behind all offsets.
_END = 2**63 - 1


class Place(NamedTuple):
    """Offsets of both sides that belong together."""

    source: int
    destination: int


_NO_RECORDS = Place(0, 0)

#: Finds a place at which both sides agree again, from their next records on, however far it is.
FindFar: TypeAlias = Callable[[Sequence[LogRecord], Sequence[LogRecord], Place], Place | None]


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
        """Return up to so many of the next records, which stay."""
        del self.records[: self.index]
        self.index = 0
        while len(self.records) < count and self._next_run() is not None:
            self.records += self._decoded()
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


class Times:
    """
    The timestamps that count: a destination may write its own, and a copy may have append times.

    Attributes:
        are_compared: Whether any counts.
        are_of_append: Whether the copy has the append times of the source's batches.

    """

    def __init__(self) -> None:
        self.are_compared = True
        self.are_of_append = False

    def see(self, source: Sequence[LogRecord], destination: Sequence[LogRecord]) -> None:
        """Learn from records in which both sides differ."""
        if any(each.append_time is not None for each in destination[:1]):
            self.are_compared = False
        if not self.are_of_append:
            appended = {
                (each.body, each.append_time)
                for each in source
                if each.append_time is not None and each.append_time != each.timestamp
            }
            self.are_of_append = any((each.body, each.timestamp) in appended for each in destination)

    def same(self, ours: LogRecord, theirs: LogRecord) -> bool:
        """Whether a record of the source and one of the destination are the same."""
        return (
            ours.body == theirs.body
            and ours.body is not None
            and (
                ours.timestamp == theirs.timestamp
                or not self.are_compared
                or theirs.append_time is not None
                or (ours.append_time is not None and ours.append_time == theirs.timestamp)
            )
        )

    def key(self, record: LogRecord, side: Side) -> int | None:
        """Return a number that records have in common if they are the same; None if it cannot be read."""
        if record.body is None:
            return None
        if not self.are_compared:
            return hash(record.body)
        is_appended = side is Side.SOURCE and self.are_of_append and record.append_time is not None
        return hash((record.body, record.append_time if is_appended else record.timestamp))


class Slot(NamedTuple):
    """
    The records that each side has between two records that both have.

    Attributes:
        source: The source's records.
        destination: The destination's records.
        start: The offsets behind the record before it.
        gaps: The number of offsets of the source and of the destination that have no record.
        end: The offsets of the record behind it.
        is_last: Whether it is at the ends of both sides.
        more: The number of further records of each side, which were too many to keep.

    """

    source: list[LogRecord]
    destination: list[LogRecord]
    start: Place
    gaps: Place
    end: Place
    is_last: bool = False
    more: Place = _NO_RECORDS


@dataclass(slots=True)
class Same:
    """
    The records that are the same on both sides.

    Attributes:
        records: Their number.
        batches: The number of batches whose rows are the same.
        decoded: The number of records that were compared one by one.

    """

    records: int = 0
    batches: int = 0
    decoded: int = 0


def compare(
    ours: Cursor, theirs: Cursor, times: Times, same: Same, find_far: FindFar, mirrored_until: int
) -> Iterator[Slot]:
    """
    Step through both sides.

    Args:
        ours: The source, at the first record to compare.
        theirs: The destination, likewise.
        times: Learns which timestamps count.
        same: Counts the records that are the same.
        find_far: Finds a place further away than the records that are kept to look ahead.
        mirrored_until: The source offset before which the copy must have everything.

    Yields:
        Each slot; the last one is at the ends of both sides.

    """
    while True:
        mine, other = ours.run, theirs.run
        if mine is not None and other is not None and (count := _same_rows(mine, other)):
            same.records += ours.take_rows(count)
            theirs.take_rows(count)
            same.batches += count
            continue
        if not ours.fill() or not theirs.fill():
            break
        count = _in_step(ours, theirs, times)
        ours.take(count)
        theirs.take(count)
        same.records += count
        same.decoded += count
        if ours.index < len(ours.records) and theirs.index < len(theirs.records):
            slot = _apart(ours, theirs, times, find_far, mirrored_until)
            yield slot
            if slot.is_last:
                return
    yield _slot_up_to(ours, theirs, None, mirrored_until)


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


def _in_step(ours: Cursor, theirs: Cursor, times: Times) -> int:
    """Return how many of the next decoded records are the same."""
    here, there, same = ours.index, theirs.index, times.same
    count = min(len(ours.records) - here, len(theirs.records) - there)
    for number in range(count):
        if not same(ours.records[here + number], theirs.records[there + number]):
            return number
    return count


def _apart(ours: Cursor, theirs: Cursor, times: Times, find_far: FindFar, mirrored_until: int) -> Slot:
    """Step to the nearest place at which both sides are the same again."""
    window, start = _FIRST_WINDOW, Place(ours.place, theirs.place)
    while True:
        source, destination = ours.look(window), theirs.look(window)
        times.see(source, destination)
        ends = ours.ends_within(window), theirs.ends_within(window)
        point = _nearest(source, destination, ends, times)
        if point is not None:
            return _slot(ours, theirs, ours.take(point[0]), theirs.take(point[1]), start)
        if window >= MOST_AHEAD and not all(ends):
            far = find_far(source, destination, start)
            if far is not None:
                return _slot_up_to(ours, theirs, far, mirrored_until)
        if window >= MOST_AHEAD or all(ends):
            return _slot_up_to(ours, theirs, None, mirrored_until)
        window = min(_WINDOW_FACTOR * window, MOST_AHEAD)


def _nearest(
    source: Sequence[LogRecord], destination: Sequence[LogRecord], ends: tuple[bool, bool], times: Times
) -> tuple[int, int] | None:
    """
    Return the indexes with the least sum from which on both sides are the same.

    Three records in a row show that, or the rest of a side that ends. One record is enough if gaps explain
    all that is stepped over.
    """
    places: dict[int | None, list[int]] = defaultdict(list)
    for there, each in enumerate(destination):
        if (key := times.key(each, Side.DESTINATION)) is not None and len(places[key]) < _MOST_LIKES:
            places[key].append(there)
    gaps = (
        list(accumulate(each.gap for each in source)),
        list(accumulate(each.gap for each in destination)),
    )
    best: tuple[int, int] | None = None
    for here, each in enumerate(source):
        if best is not None and here >= sum(best):
            break
        for there in places.get(times.key(each, Side.SOURCE), ()):
            if best is not None and here + there >= sum(best):
                break
            if here + there and _agree_from(source, destination, (here, there), ends, gaps, times):
                best = here, there
    return best


def _agree_from(
    source: Sequence[LogRecord],
    destination: Sequence[LogRecord],
    point: tuple[int, int],
    ends: tuple[bool, bool],
    gaps: tuple[list[int], list[int]],
    times: Times,
) -> bool:
    here, there = point
    run = 0
    while (
        run < _IN_A_ROW
        and here + run < len(source)
        and there + run < len(destination)
        and times.same(source[here + run], destination[there + run])
    ):
        run += 1
    if not run or run == _IN_A_ROW:
        return bool(run)
    is_at_end = (ends[0] and here + run == len(source)) or (ends[1] and there + run == len(destination))
    before = gaps[0][here], gaps[1][there]
    return is_at_end or (any(before) and here <= before[1] and there <= before[0])


def _slot(
    ours: Cursor,
    theirs: Cursor,
    source: list[LogRecord],
    destination: list[LogRecord],
    start: Place,
    *,
    is_last: bool = False,
    more: Place = _NO_RECORDS,
) -> Slot:
    """Return the slot of records that were taken from a place on."""
    gaps = Place(
        sum(each.gap for each in source) + ours.gap_ahead(),
        sum(each.gap for each in destination) + theirs.gap_ahead(),
    )
    return Slot(
        source, destination, start, gaps, Place(ours.next_offset(), theirs.next_offset()), is_last, more
    )


def _slot_up_to(ours: Cursor, theirs: Cursor, until: Place | None, mirrored_until: int) -> Slot:
    """Step to a place, however far, or to the ends of both sides; keep the first records."""
    start, is_last = Place(ours.place, theirs.place), until is None
    until = until or Place(_END, _END)
    source, more_of_source = _taken_up_to(ours, until.source, mirrored_until if is_last else _END)
    destination, more_of_destination = _taken_up_to(theirs, until.destination, _END)
    more = Place(more_of_source, more_of_destination)
    return _slot(ours, theirs, source, destination, start, is_last=is_last, more=more)


def _taken_up_to(cursor: Cursor, until: int, lag_from: int) -> tuple[list[LogRecord], int]:
    """Take the records before an offset; of those that may be lag, the first are enough."""
    kept: list[LogRecord] = []
    more = 0
    while cursor.next_offset() < until and (len(kept) < MOST_AHEAD or cursor.next_offset() < lag_from):
        ahead = cursor.records[cursor.index :]
        taken = cursor.take(bisect_left(ahead, until, key=lambda each: each.offset))
        room = max(0, MOST_KEPT - len(kept))
        kept += taken[:room]
        more += sum(each.records for each in taken[room:])
    return kept, more


# The common records of a slot


def split(slot: Slot, times: Times) -> tuple[list[Slot], int]:
    """Take out the records that both sides have in the same order; return the slots between, and how many."""
    pairs = _common(slot, times)
    slots: list[Slot] = []
    start, first = slot.start, Place(0, 0)
    for pair in pairs:
        ours, theirs = slot.source[pair.source], slot.destination[pair.destination]
        source, destination = (
            slot.source[first.source : pair.source],
            slot.destination[first.destination : pair.destination],
        )
        if source or destination:
            gaps = Place(_gaps(source) + ours.gap, _gaps(destination) + theirs.gap)
            slots.append(Slot(source, destination, start, gaps, Place(ours.offset, theirs.offset)))
        start = Place(ours.offset + 1, theirs.offset + 1)
        first = Place(pair.source + 1, pair.destination + 1)
    source, destination = slot.source[first.source :], slot.destination[first.destination :]
    if source or destination or slot.is_last or any(slot.more):
        gaps = Place(
            slot.gaps.source - _gaps(slot.source[: first.source]),
            slot.gaps.destination - _gaps(slot.destination[: first.destination]),
        )
        slots.append(slot._replace(source=source, destination=destination, start=start, gaps=gaps))
    return slots, len(pairs)


def _gaps(records: Sequence[LogRecord]) -> int:
    return sum(each.gap for each in records)


def _common(slot: Slot, times: Times) -> list[Place]:
    """Return the indexes of the longest part that both sides have in the same order."""
    places: dict[int | None, list[int]] = defaultdict(list)
    for there, each in enumerate(slot.destination):
        places[times.key(each, Side.DESTINATION)].append(there)
    places.pop(None, None)
    pairs = [
        Place(here, there)
        for here, each in enumerate(slot.source)
        for there in reversed(places.get(times.key(each, Side.SOURCE), ())[:_MOST_LIKES])
    ]
    return [pairs[at] for at in longest_ascending([pair.destination for pair in pairs])]


def longest_ascending(numbers: Sequence[int]) -> list[int]:
    """Return the indexes of the most numbers that ascend (patience sorting)."""
    smallest: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for index, number in enumerate(numbers):
        length = bisect_left(smallest, number)
        before.append(ends[length - 1] if length else None)
        if length == len(ends):
            smallest.append(number)
            ends.append(index)
        else:
            smallest[length], ends[length] = number, index
    found: list[int] = []
    last = ends[-1] if ends else None
    while last is not None:
        found.append(last)
        last = before[last]
    return found[::-1]
