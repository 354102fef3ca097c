"""
The batches of a fetched record set, in the order of the log, with the decision about each.

Every reader of a log needs the same steps. It finds the next batch, and decides about it from its header. If
it drops a batch, it verifies the CRC. If that batch is a marker, it ends a transaction.

Some readers pass a walk over plain batches, many in one call, up to the next batch that needs a decision of
its own. The mirror's intake stamps or joins them; verify and the archive digest them.

The header alone decides whether a batch is dropped. So without the CRC a flipped
attribute bit would turn records into a marker, and lose them without an error.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ..errors import CorruptBatch
from .aborted import AbortedTransactions
from .batch import NO_END, RecordBatch, batch_at
from .checksum import verify_crc
from .decide import Decision, decide

__all__ = ["BeyondTheEnd", "CheckedCrcs", "OffsetsGoBack", "Scan", "Walked", "WrongOffset"]


class CheckedCrcs(enum.Enum):
    """The batches whose CRC a scan verifies."""

    NONE = "none"
    DROPPED = "dropped"
    ALL = "all"


class WrongOffset(CorruptBatch):
    """A batch's base offset contradicts another one, or the log's end. No CRC covers offsets."""


class OffsetsGoBack(WrongOffset):
    """A batch begins before the one in front of it ends: either may be wrong."""


class BeyondTheEnd(WrongOffset):
    """
    A batch begins behind a gap that reaches to the log's end: its own must be wrong.

    Without this error, it would look as if the log had nothing up to its end.
    """


#: A run of plain batches, in the form of the walk over them.
R = TypeVar("R")


class Walked(NamedTuple, Generic[R]):
    """
    Plain batches that a walk has taken.

    Attributes:
        run: The batches.
        position: The position behind them.
        next_offset: The offset behind them.

    """

    run: R
    position: int
    next_offset: int


@dataclass(slots=True)
class Scan(Generic[R]):
    """
    One walk over a record set. It can be continued where it ended, also after an error.

    Attributes:
        record_set: Zero or more batches back to back, the last perhaps cut short.
        offset: The first wanted offset; each batch that is passed moves it to its own end.
        aborted: The aborted transactions of the response, or those that are left of several record sets; None
            with ``read_uncommitted``.
        end_offset: The first offset that is not wanted any more.
        log_end: The high watermark of the response, or -1 if it is unknown. A batch behind it is none that
            the leader may send; one that follows the batches before it may have been written meanwhile.
        keep_append_time: See :func:`~shoal.records.decide`.
        crcs: The batches whose CRC is verified.
        plain: Takes the plain batches from a position on that begin before an offset; the third argument says
            whether transactional ones are plain. None if there is none.
        position: The position of the next batch. A single batch is passed once the one after it is asked for.
            A run of plain batches is passed as soon as the walk has taken it.
        is_over: Whether the next batch begins at the end offset or behind it.

    """

    record_set: memoryview
    offset: int
    aborted: AbortedTransactions | None
    end_offset: int = NO_END
    log_end: int = NO_END
    keep_append_time: bool = False
    crcs: CheckedCrcs = CheckedCrcs.DROPPED
    plain: Callable[[int, int, bool], Walked[R] | None] | None = None
    position: int = 0
    is_over: bool = False
    _end_of_last: int = 0

    def __iter__(self) -> Iterator[tuple[Decision, RecordBatch | R]]:
        """
        Yield each batch that ends behind the first wanted offset with the decision about it.

        Yields:
            Views of the record set, and runs that the walk takes instead of some; nothing is copied.

        Raises:
            CorruptBatch: A header that no broker sends, a wrong CRC, or a marker without a control record.
            OffsetsGoBack: A batch begins before the one in front of it ends.
            BeyondTheEnd: A batch begins behind the end of the log.

        """
        while self.position < len(self.record_set):
            walked = None if self.plain is None else self.plain(self.position, *self._plain_until())
            if walked is not None:
                self.position = walked.position
                self.offset = self._end_of_last = walked.next_offset
                yield Decision.COPY, walked.run
                continue
            batch = batch_at(self.record_set, self.position)
            if batch is None:
                return
            header = batch.header
            if header.base_offset < self._end_of_last:
                raise OffsetsGoBack(f"offset {header.base_offset} comes after {self._end_of_last - 1}")
            begins_at = header.begins_at(self.offset)
            if begins_at >= self.log_end >= 0 and begins_at > self.offset:
                raise BeyondTheEnd(f"offset {begins_at} lies behind the end of the log, {self.log_end}")
            self.is_over = begins_at >= self.end_offset
            if self.is_over:
                return
            if self.crcs is CheckedCrcs.ALL:
                verify_crc(batch)
            decision = self.decided(batch)
            if header.next_offset > self.offset:
                yield decision, batch
            self.go_past(batch)

    def _plain_until(self) -> tuple[int, bool]:
        """Return an offset, and whether transactional batches before it are plain: none was aborted."""
        if self.aborted is None:
            return self.end_offset, True
        none_before = self.aborted.none_before
        if none_before > self.offset:
            return min(self.end_offset, none_before), True
        return self.end_offset, False

    def decided(self, batch: RecordBatch) -> Decision:
        """Decide about the next batch. If it is dropped, verify the CRC, and let a marker take effect."""
        decision = decide(
            batch.header,
            self.offset,
            self.aborted,
            end_offset=self.end_offset,
            keep_append_time=self.keep_append_time,
        )
        if decision is Decision.COPY or not decision.is_drop:
            return decision  # most are copied, and is_drop costs a Python call for the enum's hash
        if self.crcs is CheckedCrcs.DROPPED:
            verify_crc(batch)
        if decision is Decision.DROP_CONTROL and self.aborted is not None:
            self.aborted.see_marker(batch)
        return decision

    def go_past(self, batch: RecordBatch) -> None:
        """Continue behind the next batch."""
        self.position += batch.header.size
        self._end_of_last = batch.header.next_offset
        self.offset = max(self.offset, self._end_of_last)
