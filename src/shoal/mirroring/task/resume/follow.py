"""The source from a position on, by the number of records that the mirror wrote behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

from ....errors import CorruptBatch, UnsupportedBatch
from ....records import BatchHeader, Decision, Record, RecordBatch
from ...model.offset_map import add_run
from ...model.position import MirrorPosition
from .logs import PartitionLogs
from .search import Place
from .source_walk import SourceWalk
from .tail import Tail, is_ours

__all__ = ["count_records", "counts_of_batches", "follow"]


def follow(
    logs: PartitionLogs, position: MirrorPosition, written: int, tail: Tail, tail_index: int
) -> Place | None:
    """
    Walk the source from the position over exactly so many records, as they are mirrored.

    Args:
        logs: Both logs of the partition.
        position: The position to begin at.
        written: The number of records that the mirror wrote after the position.
        tail: The last batch of them that the destination still has.
        tail_index: The first of them that its offsets cover; negative if it
            begins before the position.

    Returns:
        The place behind them. None if the source has another batch there than the tail, or if offsets are
        missing on the way: compaction may have removed records since, so that their number proves nothing.

    """
    walk = SourceWalk(logs, position.source_offset)
    run = _Run(logs, position, written, tail, tail_index)
    with closing(walk.batches()) as batches:
        for decision, batch in batches:
            records = run.decode(decision, batch)
            if _has_gap(walk, batch.header, records) or not run.take(batch, records):
                return None
            walk.offset = batch.header.next_offset
            if run.is_complete:
                return run.end()
    return None


def _has_gap(walk: SourceWalk, header: BatchHeader, records: Sequence[Record] | None) -> bool:
    """Whether offsets are missing that may have had records to mirror: before a batch, or in it."""
    before = walk.skip_to(header.base_offset) if header.magic == 2 else walk.skip_to(walk.offset)
    if header.magic != 2 and records:
        return before > 0 or records[-1].offset - walk.offset + 1 != len(records)
    return before > 0 or header.has_holes


def count_records(logs: PartitionLogs, start_offset: int, end_offset: int) -> int:
    """Return the number of records to mirror from one source offset to before another."""
    return sum(counts_of_batches(logs, start_offset, end_offset))


def counts_of_batches(logs: PartitionLogs, start_offset: int, end_offset: int) -> Iterator[int]:
    """Yield the number of records to mirror in each batch of the source between two offsets."""
    for decision, batch in logs.source_batches(start_offset):
        if batch.header.base_offset >= end_offset:
            break
        if decision in (Decision.COPY, Decision.REBUILD_APPEND_TIME):
            # These have no holes. The end may lie in it: the mirror of a copy that was cut in another
            # way begins there.
            yield min(batch.header.next_offset, end_offset) - batch.header.base_offset
        elif not decision.is_drop:
            records = logs.records_to_mirror(batch, start_offset)
            yield sum(record.offset < end_offset for record in records)


class _Run:
    """
    So many records of the source, counted; those that the tail should hold are kept.

    A copied batch is recognized by its fingerprint. Records that were cropped, rebuilt, or recompressed by a
    broker are compared one by one: the last time they may have been cut into batches in another way.
    """

    def __init__(
        self, logs: PartitionLogs, position: MirrorPosition, written: int, tail: Tail, tail_index: int
    ) -> None:
        self._logs = logs
        self._position = position.source_offset
        self._source_leader_epoch = position.source_leader_epoch
        self._left = written
        self._count = 0
        self._identity = position.identity
        self._tail = tail
        self._tail_index = tail_index
        self._expected: dict[int, Record] = {}
        self._is_copy = False
        self._runs: list[list[int]] = []

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    def decode(self, decision: Decision, batch: RecordBatch) -> list[Record] | None:
        """Return a batch's records where it is not copied as it is: it may be there in part."""
        if decision is not Decision.COPY:
            return self._logs.records_to_mirror(batch, self._position)
        if batch.header.records_count <= self._left:
            return None
        # The batch may have been joined with those before it, and the result cut (--rebatch, now or then).
        with suppress(UnsupportedBatch):
            return self._logs.records_to_mirror(batch, self._position)
        return None

    def take(self, batch: RecordBatch, records: list[Record] | None) -> bool:
        """Count a batch; return False for one that is copied whole and larger than the rest."""
        header = batch.header
        count = header.records_count if records is None else len(records)
        if records is None and count > self._left:
            return False
        if self._count == self._tail_index and count == self._left and self._tail.is_copy_of(batch):
            self._is_copy = True
        elif self._count + count > self._tail_index:
            whole = self._logs.records_to_mirror(batch, self._position) if records is None else records
            self._expect(whole)
        if records is None or count <= self._left:
            self._position = header.next_offset
        else:
            records = records[: self._left]
            count = self._left
            self._position = records[-1].offset + 1
        self._add_runs(header, records)
        self._source_leader_epoch = header.leader_epoch
        self._count += count
        self._left -= count
        return True

    def _expect(self, records: Sequence[Record]) -> None:
        for index, record in enumerate(records, self._count):
            if index >= self._tail_index:
                self._expected[index] = record

    def _add_runs(self, header: BatchHeader, records: Sequence[Record] | None) -> None:
        if records is None:
            add_run(self._runs, header.base_offset, header.next_offset, self._count)
            return
        for index, record in enumerate(records, self._count):
            add_run(self._runs, record.offset, record.offset + 1, index)

    def end(self) -> Place | None:
        """Return the place behind the records, if the tail is the same as the source has it."""
        if not (self._is_copy or self._matches()):
            return None
        runs = tuple((start, end, before) for start, end, before in self._runs)
        return Place(self._position, self._source_leader_epoch, runs)

    def _matches(self) -> bool:
        first = self._tail.header.base_offset
        try:
            records = self._tail.records
        except (CorruptBatch, UnsupportedBatch):
            return False
        for record in records:
            index = self._tail_index + record.offset - first
            if index < 0:
                continue  # before the position: it was acknowledged
            expected = self._expected.get(index)
            if expected is None or not self._tail.is_same_record(record, expected):
                return False
        # Compaction may have left an empty batch, to remember the writer's sequence by.
        return bool(records) or is_ours(self._tail.header, self._identity)
