"""
Lots: batches of one partition that lie one behind the other, stamped, on their way out.

As far as the batches of a fetch response are plain, they are one lot: a view of the fetch buffer, and an
index that has the size and the records of each. So a batch costs no object, and is counted with its lot.
Any other batch (cropped, rebuilt, joined, or copied by a decision of its own) is a lot of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...records import ENTRY, Decision, PlainRun, RecordBatch, read_header
from .outbound import OutboundBatch

__all__ = ["Entry", "Lot", "Piece", "batches_of", "lot_of_batch", "lot_of_run"]

#: A batch: its size in bytes, its records, its ``max_timestamp``, its leader epoch at the source.
Entry: TypeAlias = tuple[int, int, int, int]


@dataclass(slots=True, eq=False)
class Lot:
    """
    Batches that go out in this order.

    In a lot with several, each batch begins at the source offset where the one before it ends.

    Attributes:
        view: Their bytes.
        index: For each batch an :data:`~shoal.records.ENTRY`.
        batches_count: At least one.
        records_count: In all of them.
        source_start: The source offset of the first record.
        source_end: The next source offset after them.
        destination_offset: The offset at which the first batch has to land.
        oldest_ms: The smallest timestamp in the index.
        decision: The decision about the fetched batch.
        spans: Runs of source offsets, first and end, that follow one another in the lot's one batch; None if
            the source offsets have no gap.
        sent: The number of batches that were sent.
        sent_bytes: Their size.
        landed: The number of batches that were acknowledged at their offsets.
        counted: The number of these that the partition has counted.
        counted_records: Their records.
        counted_bytes: Their size.

    """

    view: memoryview
    index: bytes
    batches_count: int
    records_count: int
    source_start: int
    source_end: int
    destination_offset: int
    oldest_ms: int
    decision: Decision = Decision.COPY
    spans: Sequence[tuple[int, int]] | None = None
    sent: int = 0
    sent_bytes: int = 0
    landed: int = 0
    counted: int = 0
    counted_records: int = 0
    counted_bytes: int = 0
    _entries: list[Entry] | None = field(default=None, init=False)

    @property
    def entries(self) -> list[Entry]:
        """The index as tuples, from the first use on: the native pump needs none."""
        if self._entries is None:
            self._entries = list(ENTRY.iter_unpack(self.index))
        return self._entries

    @property
    def last_leader_epoch(self) -> int:
        """The leader epoch of the last batch at the source."""
        epoch: int = ENTRY.unpack_from(self.index, len(self.index) - ENTRY.size)[3]
        return epoch

    @property
    def newest_landed_ms(self) -> int:
        """The timestamp of the batch that was acknowledged last."""
        newest_ms: int = ENTRY.unpack_from(self.index, (self.landed - 1) * ENTRY.size)[2]
        return newest_ms

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
        entries = self.entries
        size, records, newest_ms, leader_epoch = entries[number]
        start = sum(entry[0] for entry in entries[:number])
        view = self.view[start : start + size]
        return OutboundBatch(
            RecordBatch(read_header(view), view),
            view,
            records,
            self.source_start_of(number),
            self.source_end_of(number),
            leader_epoch,
            newest_ms,
            self.decision,
            self.spans,
            self.destination_offset + self.records_before(number),
        )


#: A lot, the first of its batches, and the one behind the last.
Piece: TypeAlias = tuple[Lot, int, int]


def batches_of(pieces: Sequence[Piece]) -> list[OutboundBatch]:
    """Return the batches in a request by themselves, for decisions about one of them."""
    return [lot.batch(number) for lot, first, end in pieces for number in range(first, end)]


def lot_of_run(record_set: memoryview, start: int, run: PlainRun, source_start: int, landing: int) -> Lot:
    """
    Let plain batches go out together.

    Args:
        record_set: Where they lie.
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
        run.oldest_ms,
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
        outgoing.newest_ms,
        outgoing.decision,
        outgoing.spans,
    )
