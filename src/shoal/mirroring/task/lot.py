"""
Lots: batches of one partition that lie one behind the other, on their way out.

As far as the batches of a fetch response are plain, they are one lot: a view of the fetch buffer, and an
index that has the size and the records of each. So a batch costs no object, and is counted with its lot.
Any other batch (cropped, rebuilt, joined, or copied by a decision of its own) is a lot of one. A rebuilt or
joined batch has memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...errors import UnsupportedBatch
from ...records import ENTRY, HEADER_SIZE, Codec, Decision, RecordBatch, verify_crc
from ...records.batch import DELETE_HORIZON, BatchHeader
from ..model.offset_map import add_run
from ..model.reports import Counters
from ..model.runs import Run
from .moving_map import LandedEnd

__all__ = ["Lot", "lot_of_copy", "lot_of_one"]


@dataclass(slots=True, eq=False)
class Lot:
    """
    Batches that go out in this order.

    In a lot with several, each batch begins at the source offset where the one before it ends.

    Attributes:
        view: Their bytes, one behind the other.
        index: An :data:`~shoal.records.ENTRY` for each batch. Its time is not after the one that the broker
            keeps for the producer; -1 if unknown.
        records_count: The number of records in all of them.
        source_start: The source offset of the first record.
        source_end: The next source offset after them.
        decision: The decision about the fetched batch.
        spans: The runs of source offsets in the lot's one batch, each as first and end; None if there is only
            one.
        destination_offset: The offset at which the first batch has to land; -1 until it is queued.

    """

    view: memoryview
    index: bytes
    records_count: int
    source_start: int
    source_end: int
    decision: Decision = Decision.COPY
    spans: Sequence[tuple[int, int]] | None = None
    destination_offset: int = -1

    @property
    def batches_count(self) -> int:
        """The number of batches, at least one."""
        return len(self.index) // ENTRY.size

    @property
    def _last(self) -> tuple[int, int, int, int]:
        last: tuple[int, int, int, int] = ENTRY.unpack_from(self.index, len(self.index) - ENTRY.size)
        return last

    @property
    def newest_ms(self) -> int | None:
        """The time of the last batch; None if its header has none."""
        newest_ms = self._last[2]
        return newest_ms if newest_ms >= 0 else None

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last batch at the source."""
        return self._last[3]

    @property
    def can_be_smaller(self) -> bool:
        """Whether it can be sent as smaller batches: it was decoded anyway, and has several records."""
        return self.decision is not Decision.COPY and self.records_count > 1

    def runs(self) -> Iterator[tuple[Run, int]]:
        """Yield the runs of its records, each with the destination offset behind it."""
        landing, last_epoch = self.destination_offset, self.leader_epoch
        if self.spans is not None:
            for start, end in self.spans:
                yield Run(landing, start, last_epoch), landing + end - start
                landing += end - start
            return
        run = Run(landing, self.source_start, ENTRY.unpack_from(self.index)[3])
        if run.leader_epoch != last_epoch:
            for _, records, _, leader_epoch in ENTRY.iter_unpack(self.index):
                if leader_epoch != run.leader_epoch:
                    yield run, landing
                    run = Run(landing, run.source_at(landing), leader_epoch)
                landing += records
        yield run, self.destination_offset + self.records_count

    def split(self, batches: int) -> tuple[Lot, Lot]:
        """Return the first batches, and the others; there are some of both."""
        end = batches * ENTRY.size
        sizes, records, *_ = zip(*ENTRY.iter_unpack(self.index[:end]), strict=True)
        size, count = sum(sizes), sum(records)
        between = self.source_start + count
        first = replace(
            self, view=self.view[:size], index=self.index[:end], records_count=count, source_end=between
        )
        others = replace(
            self,
            view=self.view[size:],
            index=self.index[end:],
            records_count=self.records_count - count,
            source_start=between,
            destination_offset=self.destination_offset + count,
        )
        return first, others

    def count(self, counters: Counters) -> None:
        """Count its batches, all of which have landed."""
        counters.decisions[self.decision] += self.batches_count
        counters.batches += self.batches_count
        counters.records += self.records_count
        counters.bytes_out += len(self.view)
        landing = self.destination_offset
        for start, end in self.spans or ((self.source_start, self.source_end),):
            add_run(counters.runs, start, end, landing)
            landing += end - start

    def landed_end(self) -> LandedEnd:
        """Return the end of its last batch, which has landed."""
        size, _, _, leader_epoch = self._last
        header = bytes(self.view[-size:][:HEADER_SIZE])
        records_end = self.spans[-1][1] if self.spans else self.source_start + self.records_count
        landing = self.destination_offset + self.records_count
        return LandedEnd(self.source_end, records_end, landing, header, leader_epoch)


def lot_of_one(
    batch: RecordBatch,
    source: tuple[int, int],
    leader_epoch: int,
    decision: Decision,
    spans: Sequence[tuple[int, int]] | None = None,
) -> Lot:
    """
    Let a batch that was made for the destination go out by itself.

    Args:
        source: The source offset of its first record, and the next one after it.
        leader_epoch: The source's leader epoch of its records.

    """
    header, view = batch
    index = ENTRY.pack(len(view), header.records_count, header.max_timestamp, leader_epoch)
    return Lot(view, index, header.records_count, *source, decision, spans)


def lot_of_copy(batch: RecordBatch) -> Lot:
    """
    Let a fetched batch go out as it is.

    Raises:
        CorruptBatch: Its codec is none, and its CRC is wrong.
        UnsupportedBatch: Its codec is none.

    """
    header, view = batch
    if header.codec_id > Codec.ZSTD:
        verify_crc(batch)
        raise UnsupportedBatch(
            f"its codec is {header.codec_id}, which Kafka does not have", header.base_offset
        )
    index = ENTRY.pack(len(view), header.records_count, _newest_create_time_ms(header), header.leader_epoch)
    return Lot(view, index, header.records_count, header.base_offset, header.next_offset)


def _newest_create_time_ms(header: BatchHeader) -> int:
    """Return a time that is not after the newest record's create time; -1 if the header has none."""
    if not header.is_log_append_time:
        return header.max_timestamp
    # max_timestamp is the append time then. The first record's create time is known, unless
    # compaction wrote its horizon there (KIP-534).
    return -1 if header.attributes & DELETE_HORIZON else min(header.base_timestamp, header.max_timestamp)
