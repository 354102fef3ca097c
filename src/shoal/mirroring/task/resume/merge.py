"""
The records that were written behind a position, merged by order with the source's remaining ones.

The source had these records once, in this order, from the position on. Since then
it may have lost any of them, and each lost one left an offset without a record.
Consider the records that it still has before the mirror's place. Each is the
next one that was written, or comes behind some that the source lost: at most as
many as offsets are missing there.

:class:`Merge` goes through the source's records and keeps how many of the
written ones can lie before each: every number that is possible, and none that
is not. If all of them can, this is a possible place of the mirror. A record that
the source still has, and the destination has not, leaves no number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ....records import Record, RecordBatch
from ...model.offset_map import add_run
from .written import Written

__all__ = ["Cut", "Merge"]


class Cut(NamedTuple):
    """
    A possible place of the mirror: behind so many of the records that the source has now.

    Attributes:
        survivors: How many of them were mirrored.
        source_offset: Behind the last of them, and behind as many offsets as records were written.
        source_leader_epoch: Of the last of them; -1 if others were mirrored behind it.

    """

    survivors: int
    source_offset: int
    source_leader_epoch: int


class Merge:
    """
    The numbers of written records that can lie before a place in the source.

    Attributes:
        first: The first possible place of the mirror; None as long as there is none.
        last: The last one.

    """

    def __init__(self, written: Written, source_offset: int) -> None:
        """Begin at the position: nothing that was written lies before it."""
        self._written = written
        self._reached = [(0, 0)]  # ranges, with their ends
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
        return not self._reached or self._reached == [(self._written.size, self._written.size)]

    @property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """Source start, source end and first number of each certain span before :attr:`last`."""
        end = self.last.source_offset if self.last else self._begin
        return tuple((start, min(to, end), number) for start, to, number in self._runs if start < end)

    def pass_gap(self, offsets: int) -> None:
        """Go on behind offsets that the source has nothing at: each may have had a mirrored record."""
        if offsets <= 0:
            return
        size = self._written.size
        wider: list[tuple[int, int]] = []
        for first, last in self._reached:
            end = self._written.end_of_removable(last, min(last + offsets, size))
            if wider and first <= wider[-1][1] + 1:
                wider[-1] = wider[-1][0], max(wider[-1][1], end)
            else:
                wider.append((first, end))
        self._reached = wider
        self._note()

    def take(self, record: Record, create_time: int | None, end: int, leader_epoch: int) -> None:
        """
        Go on behind a record that the source has.

        Args:
            record: As it is to be mirrored.
            create_time: None if it may have been replaced.
            end: The source offset behind it.
            leader_epoch: Of its batch.

        """
        reached = [
            index + 1
            for first, last in self._reached
            for index in self._written.find(first, min(last + 1, self._written.size), record, create_time)
        ]
        if len(reached) == 1:
            add_run(self._runs, record.offset, record.offset + 1, reached[0] - 1)
        self._go_on(((each, each) for each in reached), 1, end, leader_epoch)

    def take_copy(self, batch: RecordBatch) -> bool:
        """Go on behind a whole batch, if there is one number only, and the destination has a copy there."""
        if len(self._reached) != 1 or self._reached[0][0] != self._reached[0][1]:
            return False
        index, _ = self._reached[0]
        if not self._written.skip_copy(index, batch):
            return False
        header = batch.header
        add_run(self._runs, header.base_offset, header.next_offset, index)
        reached = index + header.records_count
        self._go_on([(reached, reached)], header.records_count, header.next_offset, header.leader_epoch)
        return True

    def take_undecodable(self, batch: RecordBatch) -> None:
        """Go on behind a batch that can be copied and not compared: it is there whole, or not at all."""
        header, size = batch.header, self._written.size
        moved = [(each + header.records_count, last + header.records_count) for each, last in self._reached]
        self._go_on(
            [(first, min(last, size)) for first, last in moved if first <= size],
            header.records_count,
            header.next_offset,
            header.leader_epoch,
        )

    def _go_on(self, reached: Iterable[tuple[int, int]], survivors: int, end: int, leader_epoch: int) -> None:
        self._reached = list(reached)
        if self._reached:
            self._written.forget_before(self._reached[0][0])
        self._survivors += survivors
        self._end = end
        self._leader_epoch = leader_epoch
        self._note()

    def _note(self) -> None:
        """Keep this place, if all that was written can lie before it."""
        if not self._reached or self._reached[-1][1] < self._written.size:
            return
        offset = max(self._end, self._begin + self._written.size)
        cut = Cut(self._survivors, offset, self._leader_epoch if offset == self._end else -1)
        self.first = self.first or cut
        self.last = cut
