"""
Lots: batches of one partition that lie one behind the other, stamped, on their way out.

As far as the batches of a fetch response are plain, they are one lot: a view of the fetch buffer, and an
index that has the size and the records of each. So a batch costs no object, and is counted with its lot.
Any other batch (cropped, rebuilt, joined, or copied by a decision of its own) is a lot of one.

The batches of a lot land and are counted in their order: each of the two is one number, and only the methods
of :class:`Lot` change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...records import ENTRY, HEADER_SIZE, Decision, PlainRun, RecordBatch, read_header
from ..model.offset_map import add_run
from ..model.reports import Counters
from ..model.runs import Run
from .moving_map import LandedEnd
from .outbound import OutboundBatch

__all__ = ["Entry", "Lot", "lot_of_batch", "lot_of_run"]

#: A batch: its size in bytes, its records, its ``max_timestamp``, its leader epoch at the source.
Entry: TypeAlias = tuple[int, int, int, int]


@dataclass(slots=True, eq=False)
class Lot:
    """
    Batches that go out in this order.

    In a lot with several, each batch begins at the source offset where the one before it ends.

    Attributes:
        view: Their bytes, one behind the other.
        index: An :data:`~shoal.records.ENTRY` for each batch.
        batches_count: The number of batches, at least one.
        records_count: The number of records in all of them.
        source_start: The source offset of the first record.
        source_end: The next source offset after them.
        destination_offset: The offset at which the first batch has to land.
        decision: The decision about the fetched batch.
        spans: The runs of source offsets in the lot's one batch, each as first and end; None if there is only
            one.
        landed: The number of batches that were acknowledged at their offsets.
        newest_ms: The timestamp of the last of these; None before the first, or if its header has none.
        counted: The number of these that are counted.

    """

    view: memoryview
    index: bytes
    batches_count: int
    records_count: int
    source_start: int
    source_end: int
    destination_offset: int
    decision: Decision = Decision.COPY
    spans: Sequence[tuple[int, int]] | None = None
    landed: int = 0
    newest_ms: int | None = None
    counted: int = 0
    _counted_records: int = field(default=0, init=False)
    _counted_bytes: int = field(default=0, init=False)
    _entries: list[Entry] | None = field(default=None, init=False)

    @property
    def entries(self) -> list[Entry]:
        """The index as tuples, from the first use on: a lot that lands as a whole needs none."""
        if self._entries is None:
            self._entries = list(ENTRY.iter_unpack(self.index))
        return self._entries

    @property
    def last_leader_epoch(self) -> int:
        """The leader epoch of the last batch at the source."""
        epoch: int = ENTRY.unpack_from(self.index, len(self.index) - ENTRY.size)[3]
        return epoch

    def runs(self) -> Iterator[tuple[Run, int]]:
        """Yield the runs of its records, each with the destination offset behind it."""
        if self.spans is not None:
            landing = self.destination_offset
            for start, end in self.spans:
                yield Run(landing, start, self.last_leader_epoch), landing + end - start
                landing += end - start
            return
        end = self.destination_offset + self.records_count
        run = Run(self.destination_offset, self.source_start, ENTRY.unpack_from(self.index)[3])
        if run.leader_epoch != self.last_leader_epoch:
            landing, source = run.destination, run.source
            for _, records, _, leader_epoch in self.entries:
                if leader_epoch != run.leader_epoch:
                    yield run, landing
                    run = Run(landing, source, leader_epoch)
                landing, source = landing + records, source + records
        yield run, end

    # On the way out

    def land(self, end: int) -> int:
        """Take the batches before one as acknowledged; return the records of those that were not yet."""
        first, self.landed = self.landed, end
        # As a rule whole lots land: these need no entries.
        last: Entry = (
            self._entries[end - 1] if self._entries else ENTRY.unpack_from(self.index, (end - 1) * ENTRY.size)
        )
        self.newest_ms = last[2] if last[2] >= 0 else None
        if end - first == 1:
            return last[1]
        if end - first == self.batches_count:
            return self.records_count
        return sum(entry[1] for entry in self.entries[first:end])

    def displace(self, by: int) -> None:
        """Expect the batches that are not counted so many offsets later."""
        self.destination_offset += by

    def count(self, counters: Counters) -> int:
        """Count the batches that landed since the last call; return the source offset behind them."""
        if self.landed == self.batches_count:
            records = self.records_count - self._counted_records
            size = len(self.view) - self._counted_bytes
        else:
            entries = self.entries[self.counted : self.landed]
            records, size = sum(entry[1] for entry in entries), sum(entry[0] for entry in entries)
        counters.decisions[self.decision] += self.landed - self.counted
        counters.records += records
        counters.bytes_out += size
        landed = self.destination_offset + self._counted_records
        start = self.source_start + self._counted_records
        end = self.source_end if self.landed == self.batches_count else start + records
        for span_start, span_end in self.spans or ((start, end),):
            add_run(counters.runs, span_start, span_end, landed)
            landed += span_end - span_start
        self.counted = self.landed
        self._counted_records += records
        self._counted_bytes += size
        return end

    def landed_end(self) -> LandedEnd:
        """Return the end of the last batch that landed."""
        if self.landed == self.batches_count:  # as a rule
            source_end, before, end = self.source_end, self.records_count, len(self.view)
        else:
            before = self.records_before(self.landed)
            source_end = self.source_start + before
            end = sum(entry[0] for entry in self.entries[: self.landed])
        size, _, _, leader_epoch = ENTRY.unpack_from(self.index, (self.landed - 1) * ENTRY.size)
        header = bytes(self.view[end - size : end - size + HEADER_SIZE])
        return LandedEnd(source_end, self.destination_offset + before, header, leader_epoch)

    # Its batches

    def records_before(self, number: int) -> int:
        """Return the number of records before a batch."""
        return sum(entry[1] for entry in self.entries[:number])

    def source_start_of(self, number: int) -> int:
        """Return the source offset of a batch's first record."""
        return self.source_start + self.records_before(number)

    def source_end_of(self, number: int) -> int:
        """Return the next source offset after a batch."""
        return self.source_end if number == self.batches_count - 1 else self.source_start_of(number + 1)

    def batch(self, number: int) -> OutboundBatch:
        """Return a batch by itself."""
        entry: Entry = ENTRY.unpack_from(self.index, number * ENTRY.size)
        size, records, newest_ms, leader_epoch = entry
        if number == self.batches_count - 1:  # each turn asks for it: the index stays as it is
            start, before = len(self.view) - size, self.records_count - records
        else:
            start, before = sum(each[0] for each in self.entries[:number]), self.records_before(number)
        view = self.view[start : start + size]
        return OutboundBatch(
            RecordBatch(read_header(view), view),
            view,
            records,
            self.source_start + before,
            self.source_end_of(number),
            leader_epoch,
            newest_ms,
            self.decision,
            self.spans,
            self.destination_offset + before,
        )


def lot_of_run(record_set: memoryview, start: int, run: PlainRun, source_start: int, landing: int) -> Lot:
    """
    Let plain batches go out together.

    Args:
        record_set: The bytes that contain them.
        start: The position of the first.
        run: The walk that stamped them; it found at least one.
        source_start: The source offset of the first record.
        landing: The offset at which the first has to land.

    """
    return Lot(
        record_set[start : run.end],
        run.entries,
        len(run.entries) // ENTRY.size,
        run.records_count,
        source_start,
        source_start + run.records_count,
        landing,
    )


def lot_of_batch(outgoing: OutboundBatch) -> Lot:
    """Let a stamped batch go out by itself."""
    index = ENTRY.pack(
        len(outgoing.view), outgoing.records_count, outgoing.newest_ms, outgoing.source_leader_epoch
    )
    return Lot(
        outgoing.view,
        index,
        1,
        outgoing.records_count,
        outgoing.source_start,
        outgoing.source_end,
        outgoing.destination_offset,
        outgoing.decision,
        outgoing.spans,
    )
