"""
The records that a mirror wrote behind a position, by their number, as the destination has them now.

They are read once, from the first to the last, and a stretch of them is kept:
16 bytes each, the key of the record (:mod:`.record_key`).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ....errors import CorruptBatch, ShoalError, UnsupportedBatch
from ....records import RecordBatch, fingerprint
from ...model.copy_options import CopyOptions
from .record_key import RecordKey, copied_key

__all__ = ["OutOfSight", "WrittenBatch", "WrittenRecords"]

#: The most records that are in memory together: 32 MiB.
_MOST_LOADED = 2 * 1024 * 1024

#: Stands for the hash of a record that the destination does not have any more, or that cannot be decoded.
_UNKNOWN = 0
#: Stands for the hash of a record that cannot be decoded, and that counts as none of the source. No hash in
#: Python is -1.
_NEVER = -1
#: Stands for a create time that a cleaner replaced. No timestamp is below -1.
_ANY_TIME = -2

#: The number that is dropped at once, because each drop costs as much as the records that stay.
_FORGET_AT = 65_536


class OutOfSight(ShoalError):
    """Too many records would have to be looked at together."""


class WrittenBatch(NamedTuple):
    """
    A batch behind the position.

    Attributes:
        number: The number of the record at its first offset; below 0 if it begins before the position.
        batch: As the destination has it; a view that is valid until the next one is asked for.
        is_ours: Whether its producer and sequence are those that the position names.

    """

    number: int
    batch: RecordBatch
    is_ours: bool


class WrittenRecords:
    """
    The records behind a position, numbered from 0; one stretch of them is loaded.

    Attributes:
        size: The number of records.

    """

    def __init__(
        self,
        batches: Iterator[WrittenBatch],
        size: int,
        options: CopyOptions,
        *,
        undecodable_fits: bool = True,
    ) -> None:
        """
        Take the batches in their order; a number in none of them is a record that the destination lost.

        A record of the mirror's own that cannot be decoded may be any of the source; with
        ``undecodable_fits=False`` it is none, as another program's.
        """
        self.size = size
        self._undecodable_fits = undecodable_fits
        self._batches = batches
        self._next: WrittenBatch | None = None
        self._options = options
        self._first = 0
        self._hashes = array("q")
        self._times = array("q")
        self._has_unknown = False
        self._has_never = False
        self._foreign: deque[range] = deque()

    @property
    def _end(self) -> int:
        return self._first + len(self._hashes)

    # Comparing

    def find(self, first: int, end: int, key: RecordKey) -> Iterator[int]:
        """Yield the numbers from ``first`` to before ``end`` that may be a record of the source."""
        self.load(end)
        if self._has_unknown or key.body == _UNKNOWN:
            yield from sorted({*self.equal(first, end, key), *self._having(first, end, _UNKNOWN)})
        else:
            yield from self.equal(first, end, key)

    def equal(self, first: int, end: int, key: RecordKey) -> Iterator[int]:
        """Yield the numbers from ``first`` to before ``end`` of records with this key."""
        for index in self._having(first, end, key.body):
            time = self._times[index - self._first]
            if key.time is None or time in (_ANY_TIME, key.time):
                yield index

    def has_unknown(self, first: int, end: int) -> bool:
        """Whether the destination has lost a record between two numbers."""
        return self._has_unknown and any(True for _ in self._having(first, end, _UNKNOWN))

    def has_unreadable(self, first: int, end: int) -> bool:
        """Whether a record between two numbers cannot be decoded, and so is none of the source."""
        return self._has_never and any(True for _ in self._having(first, end, _NEVER))

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
        """Return the end of the records from ``first`` on that no other program wrote; ``end`` at most."""
        self.load(end)
        for foreign in self._foreign:
            if foreign.stop > first:
                return min(end, max(first, foreign.start))
        return end

    def skip_copy(self, index: int, batch: RecordBatch) -> bool:
        """Pass over a source batch, if the records from a number on are a copy of it, or are all lost."""
        following, end = self._peek(), index + batch.header.records_count
        if index < self._end or following is None or end > self.size:
            return False
        if end <= following.number:
            self._forget_all(end)
            return True
        if following.number != index:
            return False
        there = following.batch
        if there.header.batch_length != batch.header.batch_length or fingerprint(there) != fingerprint(batch):
            return False
        self._next = None
        self._forget_all(end)
        return True

    def forget_before(self, index: int) -> None:
        """Drop the loaded records before a number, which the caller does not look up again."""
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

    def load_all(self) -> None:
        """Load all batches, and set the size to the number of their records."""
        while (following := self._peek()) is not None:
            self.load(following.number + following.batch.header.last_offset_delta + 1)
        self.size = self._end

    def fill(self, size: int) -> None:
        """Set the size: the records at the end are lost, or belong to no batch."""
        del self._hashes[size:], self._times[size:]
        self.size = size
        self.load(size)

    def reverse(self) -> None:
        """Reverse the numbers of the loaded records: the last one becomes 0."""
        self._hashes.reverse()
        self._times.reverse()

    # Reading

    def _peek(self) -> WrittenBatch | None:
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next

    def load(self, end: int) -> None:
        """Read until all records before a number are loaded."""
        if end - self._first > _MOST_LOADED:
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
            if not (written.is_ours and self._undecodable_fits):
                self._has_never = True
                for index in range(start, end):
                    self._hashes[index - self._first] = _NEVER
            return
        has_unknown = self._has_unknown
        self._add_unknown(end - start)
        self._has_unknown = has_unknown or len(records) < header.last_offset_delta + 1
        for record in records:
            position = written.number + record.offset - header.base_offset - self._first
            if position >= start - self._first:
                key = copied_key(header, record)
                self._hashes[position] = key.body
                self._times[position] = _ANY_TIME if key.time is None else key.time
