"""The source from a position on, by the number of records that the mirror wrote behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from ....records import Decision
from ...model.position import MirrorPosition
from .logs import PartitionLogs
from .merge import Merge
from .search import SourcePlace
from .source_walk import Gap, SourceWalk, Undecodable
from .tail import Tail, is_ours
from .written import WrittenBatch, WrittenRecords

__all__ = ["count_records", "counts_of_batches", "follow"]


def follow(
    logs: PartitionLogs, position: MirrorPosition, written: int, tail: Tail, tail_index: int
) -> SourcePlace | None:
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
    is_by_us = is_ours(tail.header, position.identity)
    if not (tail.header.records_count or is_by_us):
        return None  # of our own, compaction may have left an empty batch, to remember the sequence by
    # All records before the tail count as lost: each may be any of the source.
    last = WrittenRecords(
        iter([WrittenBatch(tail_index, tail.batch, is_by_us)]), written, logs.settings, undecodable_fits=False
    )
    merge = Merge(last, position.source_offset)
    with closing(SourceWalk(logs, position.source_offset).steps(merge.take_copy)) as steps:
        for step in steps:
            if isinstance(step, Gap):
                return None
            if isinstance(step, Undecodable):
                raise step.error
            merge.take(step)
            if merge.is_over:
                return merge.last_place
    return None


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
