"""The source's remaining records behind a position, compared with those that the mirror wrote."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from .contents import Contents
from .logs import PartitionLogs
from .merge import Cut, Merge
from .record_key import copied_key
from .source_walk import Gap, SourceWalk, keys_between
from .written import WrittenBatch, WrittenRecords

__all__ = ["Survivors"]


@dataclass(frozen=True)
class Survivors:
    """
    One partition of the source behind an offset, and the records that were written from there on.

    Attributes:
        logs: Both logs of the partition.
        source_offset: The offset of the first written record, or a later one.
        source_start: The first offset of the source's log.
        source_end: The offset up to which it can be read.
        written: Begins to read the written batches from the first one on.
        size: The number of written records.

    """

    logs: PartitionLogs
    source_offset: int
    source_start: int
    source_end: int
    written: Callable[[], Generator[WrittenBatch]]
    size: int

    def merge(self, *, is_unchanged: bool) -> Merge:
        """
        Go through the source for the possible places of the mirror.

        Args:
            is_unchanged: Whether the source lost only records before its start since: other offsets
                without a record had none when they were mirrored.

        Raises:
            OutOfSight: Too much would have to be compared.
            BrokerError: A leader refuses.

        """
        start = max(self.source_offset, self.source_start)
        with closing(self.written()) as batches:
            merge = Merge(WrittenRecords(batches, self.size, self.logs.settings), self.source_offset)
            merge.take(Gap(start - self.source_offset))
            walk = SourceWalk(self.logs, start, self.source_end)
            for step in walk.steps(merge.take_copy):
                if merge.is_over:
                    break
                if not (isinstance(step, Gap) and is_unchanged):
                    merge.take(step)
        return merge

    def are_written(self, first: Cut, last: Cut, *, is_compacted: bool) -> bool:
        """
        Whether the mirror may go on at the last of several places, whichever is the right one.

        The source's records between the first and the last may repeat mirrored ones, with the same key,
        value and time. In a compacted topic that makes no difference, if the destination's last record of
        each such key is the source's: no key has an older value then. In a topic that keeps all its records
        each of them must also be the only one of its kind.

        Raises:
            OutOfSight: There are too many records.

        """
        between = Contents()
        start = max(first.source_offset, self.source_start)
        between.add(keys_between(self.logs, start, last.source_offset))
        written = self._written_like(between)
        if is_compacted:
            return between.all_have_keys and between.ends_as(written)
        is_only = all(count == 1 for count in between.counts.values())
        return is_only and between.counts == written.counts and between.ends_as(written)

    def _written_like(self, between: Contents) -> Contents:
        """Return the written records that have a key or content of the source between two places."""
        found = Contents()
        with closing(self.written()) as batches:
            for number, batch, _ in batches:
                found.add(
                    (
                        (record, copied_key(batch.header, record))
                        for record in self.logs.settings.decode(batch)
                        if number + record.offset - batch.header.base_offset >= 0
                    ),
                    like=between,
                )
        return found
