"""
Records at the destination, merged by order with those that the source still has.

The source had these records once, in this order. Since then it may have lost any
of them, and each lost one left an offset without a record. So each record that
the source still has is the next one at the destination, or comes behind some
that the source lost: at most as many as offsets are missing there.

:class:`Reach` goes through the source's records and keeps how many of the
destination's can lie before each: every number that is possible, and none that
is not. A record that the source still has, and the destination has not, leaves
no number. The same holds in the opposite direction, for the numbers behind each.

:class:`Merge` begins at a position. If all records that were written behind it
can lie before a place in the source, this is a possible place of the mirror.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ....errors import CorruptBatch
from ....records import RecordBatch
from ...model.offset_map import add_run
from .record_key import RecordKey
from .search import SourcePlace
from .source_walk import Gap, SourceRecord, Step, Undecodable
from .written import WrittenRecords

__all__ = ["Cut", "Merge", "Reach"]


class Reach:
    """
    How many of the destination's records can lie before a place in the source.

    Attributes:
        spans: The possible numbers, as the first and the last of each run of them.

    """

    def __init__(self, written: WrittenRecords, first: int = 0, last: int = 0) -> None:
        """Begin at a place that so many records lie before."""
        self._written = written
        self.spans = [(first, last)]

    @property
    def only(self) -> int | None:
        """The number, if only one is possible."""
        is_one = len(self.spans) == 1 and self.spans[0][0] == self.spans[0][1]
        return self.spans[0][0] if is_one else None

    @property
    def last(self) -> int:
        """The largest number that is possible, if any is."""
        return self.spans[-1][1]

    @property
    def size(self) -> int:
        """The number of records at the destination."""
        return self._written.size

    @property
    def width(self) -> int:
        """How many numbers are possible."""
        return sum(last + 1 - first for first, last in self.spans)

    def pass_gap(self, offsets: int) -> None:
        """Go on behind offsets that the source has nothing at: each may have had one of the records."""
        size = self._written.size
        wider: list[tuple[int, int]] = []
        for first, last in self.spans:
            end = self._written.end_of_removable(last, min(last + offsets, size))
            if wider and first <= wider[-1][1] + 1:
                wider[-1] = wider[-1][0], max(wider[-1][1], end)
            else:
                wider.append((first, end))
        self.spans = wider

    def take(self, key: RecordKey) -> None:
        """Go on behind a record that the source has."""
        self.go_on(
            (number + 1, number + 1) for span in self._ahead() for number in self._written.find(*span, key)
        )

    def pass_records(self, count: int) -> None:
        """Go on behind records that may be any, all of which the destination has."""
        size = self._written.size
        moved = ((first + count, min(last + count, size)) for first, last in self.spans)
        self.go_on((first, last) for first, last in moved if first <= size)

    def has(self, key: RecordKey) -> bool:
        """Whether the destination has a record with this content behind one of the numbers."""
        return any(True for span in self._ahead() for _ in self._written.equal(*span, key))

    def has_unknown(self) -> bool:
        """Whether the destination has lost a record behind one of the numbers."""
        return any(self._written.has_unknown(*span) for span in self._ahead())

    def has_unreadable(self) -> bool:
        """Whether a record behind one of the numbers cannot be decoded."""
        return any(self._written.has_unreadable(*span) for span in self._ahead())

    def _ahead(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers of the records that may be next, as the first and the end of each run of them."""
        return ((first, min(last + 1, self.size)) for first, last in self.spans)

    def go_on(self, spans: Iterable[tuple[int, int]]) -> None:
        """Let other numbers be possible."""
        self.spans = list(spans)

    def numbers(self) -> list[int]:
        """Return the possible numbers."""
        return [number for first, last in self.spans for number in range(first, last + 1)]


class Cut(NamedTuple):
    """
    A possible place of the mirror: behind so many of the records that the source has now.

    Attributes:
        survivors: How many of them were mirrored.
        source_offset: The offset behind the last of them, and behind as many offsets as records were written.
        source_leader_epoch: The last record's; -1 if others were mirrored behind it.

    """

    survivors: int
    source_offset: int
    source_leader_epoch: int


class Merge:
    """
    The possible places of the mirror, on a walk through the source from its position on.

    Attributes:
        first: The first possible place of the mirror; None as long as there is none.

    """

    def __init__(self, written: WrittenRecords, source_offset: int) -> None:
        """Begin at the position: nothing that was written lies before it."""
        self._written = written
        self._reach = Reach(written)
        self._survivors = 0
        self._begin = source_offset
        self._end = source_offset
        self._leader_epoch = -1
        self._runs: list[list[int]] = []
        self.first: Cut | None = None
        self.last: Cut | None = None
        self._note()

    @property
    def is_over(self) -> bool:
        """Whether no place behind here is possible."""
        return not self._reach.spans or self._reach.only == self._written.size

    @property
    def last_place(self) -> SourcePlace | None:
        """The last possible place, with the certain spans before it."""
        if self.last is None:
            return None
        end = self.last.source_offset
        runs = ((start, min(to, end), number) for start, to, number in self._runs if start < end)
        return SourcePlace(end, self.last.source_leader_epoch, tuple(runs))

    def take(self, step: Step) -> None:
        """
        Go on behind a step of the source.

        Raises:
            CorruptBatch: A batch is damaged.
            UnsupportedBatch: A batch cannot be decoded, and could not be mirrored without that.

        """
        if isinstance(step, Gap):
            self._reach.pass_gap(max(0, step.offsets))
            self._note()
        elif isinstance(step, SourceRecord):
            self._reach.take(step.key)
            number = self._reach.only
            if number is not None:
                add_run(self._runs, step.offset, step.offset + 1, number - 1)
            self._go_on(1, step.end, step.leader_epoch)
        elif isinstance(step, Undecodable):
            if isinstance(step.error, CorruptBatch) or step.fingerprint is None:
                raise step.error
            # The mirror copies such a batch without decoding it: the destination has all of it, or nothing.
            self._reach.pass_records(step.records)
            self._go_on(step.records, step.header.next_offset, step.header.leader_epoch)

    def take_copy(self, batch: RecordBatch) -> bool:
        """
        Go on behind a whole batch, if there is one number only.

        Returns:
            Whether the destination has a copy there, or has lost all that was there.

        """
        number = self._reach.only
        if number is None or not self._written.skip_copy(number, batch):
            return False
        header = batch.header
        add_run(self._runs, header.base_offset, header.next_offset, number)
        self._reach.pass_records(header.records_count)
        self._go_on(header.records_count, header.next_offset, header.leader_epoch)
        return True

    def _go_on(self, survivors: int, end: int, leader_epoch: int) -> None:
        if self._reach.spans:
            self._written.forget_before(self._reach.spans[0][0])
        self._survivors += survivors
        self._end = end
        self._leader_epoch = leader_epoch
        self._note()

    def _note(self) -> None:
        """Keep this place, if all that was written can lie before it."""
        spans = self._reach.spans
        if not spans or spans[-1][1] < self._written.size:
            return
        offset = max(self._end, self._begin + self._written.size)
        cut = Cut(self._survivors, offset, self._leader_epoch if offset == self._end else -1)
        self.first = self.first or cut
        self.last = cut
