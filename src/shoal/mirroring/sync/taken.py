"""
The offsets of the source that a copy would take now, by the copy's own decisions.

A header has the number of the batch's records. So shoal decodes two sorts of batches: those of an old format,
and those with holes that an end of the range lies in. Any range takes the memory of one fetch buffer.

Many groups have offsets near each other. So what an answer of the source brings is kept, as runs of offsets,
and a count reads only what no count before has read. And groups move in many partitions at once: counts may
be postponed, and then :func:`read_postponed` reads all these partitions by few requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.scan import read_answers, read_decided, read_first_of_each
from ...error_codes import ErrorCode
from ...errors import BrokerError, CorruptBatch, UnsupportedBatch
from ...records import Decision, RecordBatch
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.offset_map import TakenOffsets, spans_of
from .log_part import LogPart

__all__ = ["SourceTaken", "read_postponed"]

_BUFFER_BYTES = 1024 * 1024

#: The number of parts of a log that are kept.
_MOST_PARTS = 4

#: Postponed counts begin near each other: where groups were a few seconds ago. Those that begin earlier are
#: of groups that lag, and read for themselves.
_NEAR_OFFSETS = 10_000


class SourceTaken:
    """
    Counts the offsets of one source partition that a copy would take now; a :class:`~..offset_map.Taken`.

    For one thread. The counts are kept for a while, so make a new object for each round.

    Attributes:
        read_bytes: The size of the batches that were read.
        postpones: Whether to read nothing now: a count that needs it has no result, until all partitions are
            read together.

    """

    def __init__(
        self,
        source: Cluster,
        partition: TopicPartition,
        settings: CopySettings,
        *,
        most_counted: int | None = None,
    ) -> None:
        """
        Prepare to read a source partition.

        Args:
            source: The source cluster, with metadata of the partition.
            settings: The mirror's settings, which decide which records it copies.
            most_counted: The most offsets that one count may span; None for any number.

        """
        self.read_bytes = 0
        self.postpones = False
        self._postponed: list[int] = []
        self._log_end: int | None = None
        self._most_counted = most_counted
        self._source = source
        self._partition = partition
        self._settings = settings
        self._parts: deque[LogPart] = deque(maxlen=_MOST_PARTS)

    def count(self, first: int, end: int) -> TakenOffsets | None:
        """
        Count the offsets that a copy would take, from one to before another.

        Returns:
            None if the source does not have the first offset any more, or if a batch cannot be decoded; also
            if the count is too long, or postponed.

        Raises:
            ShoalError: The leader does not answer.

        """
        if self._most_counted is not None and end - first > self._most_counted:
            return None
        known = next((each for each in reversed(self._parts) if each.begin <= first <= each.end), None)
        if self.postpones:
            counted = known.count(first, end) if known is not None and known.end >= end else None
            if counted is None:
                self._postponed.append(first)
            return counted
        try:
            counted = None if known is None else self._count_in(known, first, end)
            if counted is None:
                fresh = LogPart(first)
                counted = self._count_in(fresh, first, end)
                self._parts.append(fresh)
        except (CorruptBatch, UnsupportedBatch):
            return None
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None
        return counted

    def _count_in(self, part: LogPart, first: int, end: int) -> TakenOffsets | None:
        """Count in a part that is read on if it ends too early; None if it does not have each run apart."""
        # A source that lost its tail ends before its copy does: to ask again would wait each time.
        if part.end >= end or part.end == self._log_end:
            return part.count(first, end)
        level = self._settings.source.isolation_level
        answers = read_answers(self._source, self._partition, part.end, level, _BUFFER_BYTES)
        with closing(answers):
            for answer in answers:
                if self._read_up_to(part, end, answer):
                    counted = part.count(first, end)
                    self._read_ahead(part, answer)
                    return counted
        self._log_end = part.end
        return part.count(first, end)

    def _read_up_to(self, part: LogPart, end: int, answer: Iterator[tuple[Decision, RecordBatch]]) -> bool:
        """Add batches of an answer up to an offset; return whether it is reached."""
        for decision, batch in answer:
            part.thin()
            header = batch.header
            is_cut = header.base_offset < part.end or header.base_offset < end < header.next_offset
            if not decision.is_drop and (header.magic != 2 or (is_cut and header.has_holes)):
                self.read_bytes += len(batch.view)
                spans = spans_of(self._settings.records_to_mirror(batch, part.end))
                part.add_spans(spans, header.next_offset)
            else:
                self._add_undecoded(part, decision, batch)
            if part.end >= end:
                return True
        return False

    def _read_ahead(self, part: LogPart, answer: Iterator[tuple[Decision, RecordBatch]]) -> None:
        """Add the other batches of an answer, as far as their headers are enough."""
        with suppress(CorruptBatch):
            for decision, batch in answer:
                if batch.header.magic != 2:
                    break
                part.thin()
                self._add_undecoded(part, decision, batch)
        part.thin()

    def _add_undecoded(self, part: LogPart, decision: Decision, batch: RecordBatch) -> None:
        header = batch.header
        self.read_bytes += len(batch.view)
        if decision is Decision.DROP_CONTROL or decision is Decision.DROP_ABORTED:
            part.add_dropped(header.base_offset, header.next_offset)
        elif header.magic == 2 and not header.has_holes:
            part.add_taken(header.base_offset, header.next_offset)
        else:
            part.add_some(header.base_offset, header.next_offset, header.records_count)

    @property
    def has_postponed(self) -> bool:
        """Whether a count is postponed."""
        return bool(self._postponed)

    def end_postponing(self) -> int | None:
        """Return the offset from which on to read for the postponed counts; None if there are none."""
        self.postpones = False
        last = max(self._postponed, default=0)
        begin = min((each for each in self._postponed if each >= last - _NEAR_OFFSETS), default=None)
        self._postponed.clear()
        return begin

    def add_read(self, begin: int, batches: Iterator[tuple[Decision, RecordBatch]]) -> None:
        """Keep what was read from an offset on, as far as headers are enough."""
        part = LogPart(begin)
        self._read_ahead(part, batches)
        self._parts.append(part)

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
        return spans_of(self._settings.records_to_mirror(batch, first))


def read_postponed(
    source: Cluster, readers: Mapping[TopicPartition, SourceTaken], isolation_level: IsolationLevel
) -> bool:
    """Read for all postponed counts, which are no longer postponed; return whether there were any."""
    wanted: dict[TopicPartition, int] = {}
    for partition, reader in readers.items():
        if (begin := reader.end_postponing()) is not None:
            wanted[partition] = begin
    if len(wanted) > 1:
        with closing(read_first_of_each(source, wanted, isolation_level)) as answers:
            for partition, batches in answers:
                readers[partition].add_read(wanted[partition], batches)
    return bool(wanted)
