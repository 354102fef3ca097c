"""
The records that a mirror wrote behind a position, by their number, as the destination has them now.

They are read once, from the first to the last, and a stretch of them is kept:
16 bytes each, a hash of key, value and headers, and the create time. Two
different records with the same hash only look alike. That may add a place, and
never hides the right one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ....errors import CorruptBatch, ShoalError, UnsupportedBatch
from ....records import Record, RecordBatch, fingerprint
from ...model.copy_options import CopyOptions
from .logs import create_time_of

__all__ = ["OutOfSight", "Written", "WrittenBatch"]

#: So many records may be looked at together: 32 MiB.
_MOST_IN_SIGHT = 2 * 1024 * 1024

#: Stands for the hash of a record that the destination does not have any more, or that cannot be decoded.
_UNKNOWN = 0
#: Stands for the hash of another program's record that cannot be decoded. No hash in Python is -1.
_NEVER = -1
#: Stands for a create time that a cleaner replaced. No timestamp is below -1.
_ANY_TIME = -2

#: So much is forgotten at once: to forget costs as much as what stays.
_FORGET_AT = 65_536


class OutOfSight(ShoalError):
    """Too many records would have to be looked at together."""


class WrittenBatch(NamedTuple):
    """
    A batch behind the position.

    Attributes:
        number: Of the record that its first offset stands for; below 0 if it begins before the position.
        batch: As the destination has it; a view that is valid until the next one is asked for.
        is_ours: Whether its producer and sequence are those that the position names.

    """

    number: int
    batch: RecordBatch
    is_ours: bool


class Written:
    """
    So many records, numbered from 0; a stretch of them is in sight.

    Attributes:
        size: How many there are.

    """

    def __init__(self, batches: Iterator[WrittenBatch], size: int, options: CopyOptions) -> None:
        """Take the batches in their order; what none of them has is gone from the destination."""
        self.size = size
        self._batches = batches
        self._next: WrittenBatch | None = None
        self._options = options
        self._first = 0
        self._hashes = array("q")
        self._times = array("q")
        self._has_unknown = False
        self._foreign: deque[range] = deque()

    @property
    def _end(self) -> int:
        return self._first + len(self._hashes)

    # Comparing

    def find(self, first: int, end: int, record: Record, create_time: int | None) -> Iterator[int]:
        """Yield the numbers from ``first`` to before ``end`` that may be a record of the source."""
        self._load(end)
        wanted = hash(record.body)
        if self._has_unknown or wanted == _UNKNOWN:
            yield from sorted({*self._equal(first, end, wanted, create_time), *self._unknown(first, end)})
        else:
            yield from self._equal(first, end, wanted, create_time)

    def _equal(self, first: int, end: int, wanted: int, create_time: int | None) -> Iterator[int]:
        for index in self._having(first, end, wanted):
            time = self._times[index - self._first]
            if create_time is None or time in (_ANY_TIME, create_time):
                yield index

    def _unknown(self, first: int, end: int) -> Iterator[int]:
        return self._having(first, end, _UNKNOWN)

    def _having(self, first: int, end: int, wanted: int) -> Iterator[int]:
        position, stop = first - self._first, end - self._first
        while position < stop:
            try:
                position = self._hashes.index(wanted, position, stop)
            except ValueError:
                return
            yield self._first + position
            position += 1

    def end_of_removable(self, first: int, end: int) -> int:
        """Return up to which number the source may have lost all from ``first`` on: not what others wrote."""
        self._load(end)
        for foreign in self._foreign:
            if foreign.stop > first:
                return min(end, max(first, foreign.start))
        return end

    def skip_copy(self, index: int, batch: RecordBatch) -> bool:
        """Pass over the batch that begins with a number, if it is a copy of a certain source batch."""
        if index != self._end:
            return False
        following = self._peek()
        if following is None or following.number != index or index + batch.header.records_count > self.size:
            return False
        there = following.batch
        if there.header.batch_length != batch.header.batch_length or fingerprint(there) != fingerprint(batch):
            return False
        self._next = None
        self._forget_all(index + batch.header.records_count)
        return True

    def forget_before(self, index: int) -> None:
        """Let records out of sight that will not be asked for any more."""
        if index - self._first < min(_FORGET_AT, len(self._hashes)):
            return
        count = min(index - self._first, len(self._hashes))
        del self._hashes[:count]
        del self._times[:count]
        self._first += count
        self._has_unknown = self._has_unknown and bool(self._hashes)
        while self._foreign and self._foreign[0].stop <= self._first:
            self._foreign.popleft()

    def _forget_all(self, first: int) -> None:
        self._hashes, self._times = array("q"), array("q")
        self._first = first
        self._has_unknown = False
        self._foreign.clear()

    # Reading

    def _peek(self) -> WrittenBatch | None:
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next

    def _load(self, end: int) -> None:
        if end - self._first > _MOST_IN_SIGHT:
            raise OutOfSight
        while self._end < end:
            following = self._peek()
            if following is None or following.number > self._end:
                known_from = end if following is None else min(end, following.number)
                self._add_unknown(known_from - self._end)
            else:
                self._next = None
                self._decode(following)

    def _add_unknown(self, count: int) -> None:
        self._hashes.extend([_UNKNOWN] * count)
        self._times.extend([_ANY_TIME] * count)
        self._has_unknown = True

    def _decode(self, written: WrittenBatch) -> None:
        header = written.batch.header
        start, end = self._end, written.number + header.last_offset_delta + 1
        if end <= start:
            return
        if not written.is_ours:
            self._foreign.append(range(start, end))
        try:
            records = self._options.decode(written.batch)
        except (CorruptBatch, UnsupportedBatch):
            self._add_unknown(end - start)
            if not written.is_ours:
                for index in range(start, end):
                    self._hashes[index - self._first] = _NEVER
            return
        has_unknown = self._has_unknown
        self._add_unknown(end - start)
        self._has_unknown = has_unknown or len(records) < header.last_offset_delta + 1
        for record in records:
            position = written.number + record.offset - header.base_offset - self._first
            if position >= start - self._first:
                time = create_time_of(header, record)
                self._hashes[position] = hash(record.body)
                self._times[position] = _ANY_TIME if time is None else time
