"""
The offsets of the source that a copy would take now, by the copy's own decisions.

A header has the number of the batch's records. So shoal decodes two sorts of batches: those of an old format,
and those with holes that an end of the range lies in. Any range takes the memory of one fetch buffer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import closing

from ...client.cluster import Cluster
from ...client.scan import read_decided
from ...error_codes import ErrorCode
from ...errors import BrokerError, CorruptBatch, UnsupportedBatch
from ...records import Decision, RecordBatch
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.offset_map import TakenOffsets, spans_of
from ..task.rebuilder import records_to_mirror

__all__ = ["SourceTaken"]

_BUFFER_BYTES = 1024 * 1024

#: So many answers are kept: groups that are idle, or at the same offset, ask the same.
_MOST_KEPT = 64


class SourceTaken:
    """
    Counts the offsets of one source partition that a copy would take now; a :class:`~..offset_map.Taken`.

    For one thread. The counts are kept for a while, so make a new object for each round.

    Attributes:
        read_bytes: The size of the batches that were read.

    """

    def __init__(self, source: Cluster, partition: TopicPartition, settings: CopySettings) -> None:
        """
        Read nothing yet.

        Args:
            source: The source cluster, with metadata of the partition.
            partition: The partition.
            settings: Of the mirror.

        """
        self.read_bytes = 0
        self._source = source
        self._partition = partition
        self._settings = settings
        self._kept: OrderedDict[tuple[int, int], TakenOffsets | None] = OrderedDict()

    def count(self, first: int, end: int) -> TakenOffsets | None:
        """
        Count the offsets that a copy would take, from one to before another.

        Returns:
            None if the source does not have the first offset any more, or if a batch cannot be decoded.

        Raises:
            ShoalError: The leader does not answer.

        """
        if (first, end) not in self._kept:
            self._kept[first, end] = self._count(first, end)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return self._kept[first, end]

    def _count(self, first: int, end: int) -> TakenOffsets | None:
        count, dropped = 0, 0
        try:
            with closing(self._batches(first)) as batches:
                for decision, batch in batches:
                    header = batch.header
                    if header.magic == 2 and header.base_offset >= end:
                        break
                    begins, ends = max(header.base_offset, first), min(header.next_offset, end)
                    if decision is Decision.DROP_CONTROL or decision is Decision.DROP_ABORTED:
                        dropped += ends - begins
                    elif header.magic == 2 and ends - begins == header.last_offset_delta + 1:
                        count += header.records_count
                    else:
                        count += sum(
                            min(behind, end) - start
                            for start, behind in self._spans(batch, first)
                            if start < end
                        )
                    if header.next_offset >= end:
                        break
        except (CorruptBatch, UnsupportedBatch):
            return None
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None
        return TakenOffsets(count, count + dropped == end - first)

    def nth(self, first: int, number: int) -> int:
        """
        Return the taken offset with a number, which is 0 for the first one at or after ``first``.

        Raises:
            IndexError: There are not so many.
            ShoalError: The leader does not answer, or a batch cannot be decoded.

        """
        left = number
        with closing(self._batches(first)) as batches:
            for decision, batch in batches:
                header = batch.header
                if decision.is_drop:
                    continue
                if header.magic == 2 and header.base_offset >= first and header.records_count <= left:
                    left -= header.records_count
                    continue
                for start, behind in self._spans(batch, first):
                    if left < behind - start:
                        return start + left
                    left -= behind - start
        raise IndexError(number)

    def _batches(self, first: int) -> Generator[tuple[Decision, RecordBatch]]:
        level = self._settings.source.isolation_level
        with closing(read_decided(self._source, self._partition, first, level, _BUFFER_BYTES)) as decided:
            for decision, batch in decided:
                self.read_bytes += len(batch.view)
                yield decision, batch

    def _spans(self, batch: RecordBatch, first: int) -> Sequence[tuple[int, int]]:
        """Return the offsets of a batch's records from one on, as spans of first and end."""
        header = batch.header
        if header.magic == 2 and not header.has_holes:
            return [(max(header.base_offset, first), header.next_offset)]
        return spans_of(records_to_mirror(batch, first, self._settings))
