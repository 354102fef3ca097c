"""One partition that is archived: what the archive has of it, and the segment that is open."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from ....archive.aborted import OpenAborted
from ....archive.objects import Place
from ....archive.segment import OpenSegment
from ....client.backoff import Backoff
from ....errors import CorruptBatch, PartitionStopped
from ....protocol.fetch import FetchedPartition
from ....records import Decision
from ....timing import Timing
from ...control import WorkerControl
from ...model.incidents import Incident, IncidentKind
from ...model.reports import Assigned, CopyReport, Counters
from ..trouble import Troubles

__all__ = ["ArchivedPartition"]


class ArchivedPartition:
    """
    A partition of the task.

    Attributes:
        entry: The number of the document's entry by which the task has it.
        range: The offsets to archive.
        source: The partition at the source.
        place: Where the archive has it; None until the task has looked, so that its position is known.
        topic_id: The source's topic id, once the partition has begun; None if the source has none.
        leader_epoch: The epoch of the source's leader when it began.
        position: The offset up to which the archive has it.
        segment: The segment that is open; None without batches that are not archived.
        troubles: The answers without records before its log's end, unless the last answer had some.
        waiting_for: Why it waits; None if it does not.
        retry_at: When it is due again, on the monotonic clock.
        stopped: Why it stopped; None if it did not.
        counters: The counts since the task took it.

    """

    def __init__(self, assigned: Assigned, timing: Timing) -> None:
        self.entry = assigned.entry
        self.range = assigned.range
        self.source = assigned.range.source
        self.place: Place | None = None
        self.topic_id: uuid.UUID | None = None
        self.leader_epoch = -1
        self.position = self._follows = assigned.range.start_offset
        self.segment: OpenSegment | None = None
        self.troubles = Troubles(timing)
        self.waiting_for = assigned.waiting_for
        self.retry_at = 0.0
        self.stopped: PartitionStopped | None = None
        self.counters = Counters.begun()
        self._backoff = Backoff(timing.first_retry_ms, timing.longest_retry_ms)
        self._aborted = OpenAborted()
        self._end_offset: int | None = None
        self._held_back: int | None = None
        self._newest_ms: int | None = None
        self._last_report: object = None

    # Where it stands

    @property
    def fetch_offset(self) -> int:
        """The next offset to fetch."""
        return self.position if self.segment is None else self.segment.next_offset

    @property
    def gathered_bytes(self) -> int:
        """The bytes that are not archived yet."""
        return 0 if self.segment is None else self.segment.size

    @property
    def is_done(self) -> bool:
        """Whether everything up to the end is archived."""
        return self.place is not None and not self.range.is_open and self.position >= self.range.end_offset

    @property
    def is_due(self) -> bool:
        """Whether it does not pause after an error."""
        return time.monotonic() >= self.retry_at

    @property
    def takes_batches(self) -> bool:
        """Whether batches may be added: its position is known, and no segment waits for the store."""
        is_open = self.segment is None or not self.segment.is_closed
        return self.place is not None and self.stopped is None and is_open

    @property
    def needs_data(self) -> bool:
        """Whether to fetch more now."""
        return self.takes_batches and self.is_due and self.fetch_offset < self.range.end_offset

    # Its life

    def begin(self, place: Place, topic_id: uuid.UUID | None, leader_epoch: int) -> None:
        """Continue at the end of the last object that counts."""
        self.forget()
        self.place, self.topic_id, self.leader_epoch = place, topic_id, leader_epoch
        last = place.last
        self.position = self._follows = self.range.start_offset if last is None else last.next_offset

    def forget(self) -> None:
        """Drop the open segment: another task may have the partition, or its log is another one."""
        if self.segment is not None:
            self.segment.drop()
        self.segment = self.place = None
        self._aborted = OpenAborted()

    def wait(self, reason: str) -> None:
        """Pause, longer each time until something succeeds."""
        self.waiting_for = reason
        self.counters.retries += 1
        self.retry_at = time.monotonic() + self._backoff.next_delay_s()

    def stop(self, reason: str, kind: IncidentKind | None = None, lost: int = 0) -> None:
        """Stop for good; what is gathered is archived first, by the task."""
        self.stopped = PartitionStopped(*self.source, self.fetch_offset, reason, cause=kind)
        self.waiting_for = None
        if kind is not None:
            self.counters.incidents.append(Incident(kind, reason, lost))

    # Batches

    def take(self, fetched: FetchedPartition, spool: Callable[[], Path]) -> bool:
        """
        Gather the batches of a response; return False if it had no whole one, and is not the log's end.

        Raises:
            Disconnected: The local disk does not take them.

        """
        self._end_offset = end = fetched.end_offset(committed=True)
        self._held_back = max(0, fetched.high_watermark - end)
        before = self.fetch_offset
        if len(fetched.record_set):
            self._gather(fetched, spool)
        is_empty = self.fetch_offset == before < end and self.stopped is None
        if not is_empty:
            self._succeed()
        return not is_empty

    def _gather(self, fetched: FetchedPartition, spool: Callable[[], Path]) -> None:
        if self.segment is None:
            self.segment = OpenSegment(spool(), self.position, self._aborted, follows=self._follows)
        self.counters.bytes_in += len(fetched.record_set)
        self._aborted.learn(fetched.aborted_transactions)
        try:
            self.segment.take(fetched.record_set, fetched.high_watermark)
        except CorruptBatch as error:
            self.stop(f"the source sent a batch at offset {self.fetch_offset} damaged: {error.reason}")
        if not self.segment.batches:
            self.segment = None  # it has no file, either

    def pass_over(self, offset: int) -> None:
        """Go on at a later offset: the source has no batch before it."""
        self.troubles.clear()
        if self.segment is None:
            self.position = max(self.position, offset)
        else:
            self.segment.pass_over(offset)

    def is_full(self, segment_bytes: int, segment_seconds: float) -> bool:
        """Whether the open segment has to be archived now."""
        segment = self.segment
        if segment is None or not self.is_due:
            return False
        return (
            segment.is_closed
            or segment.size >= segment_bytes
            or time.monotonic() - segment.began_at >= segment_seconds
            or self.stopped is not None
            or segment.next_offset >= self.range.end_offset
        )

    def publish(self, control: WorkerControl) -> None:
        """
        Archive the open segment.

        Raises:
            BrokerError: The lease has ended, or another task may have had the partition: begin again.
            SegmentLost: The local file lacks batches: begin again.
            ShoalError: The store does not take it. It may be tried again.

        """
        segment, place = self.segment, self.place
        if segment is None or place is None:
            return
        control.check_lease()
        generation = max(control.driver.generation, place.next_generation)
        name, facts = segment.publish(place.store, place.path, generation, control.check_lease)
        segment.drop()
        self.segment = None
        self.position = self._follows = facts.next_offset
        self._newest_ms = facts.newest_ms if facts.newest_ms >= 0 else None
        place.highest_generation = name.generation
        counters = self.counters
        counters.batches += facts.batches
        counters.records += facts.records
        counters.bytes_out += facts.log_bytes
        counters.decisions[Decision.COPY] += facts.batches
        self._succeed()

    def _succeed(self) -> None:
        self._backoff.reset()
        self.waiting_for = None
        self.troubles.clear()

    def report(self) -> CopyReport | None:
        """Return a report with the counts; None if there is nothing new."""
        position = None if self.place is None else self.position
        end = self._end_offset if self.range.is_open else self.range.end_offset
        if end is not None and position is not None:
            end = max(end, position)
        standing = (position, end, self.waiting_for, self._held_back, self.stopped, self.counters.counts())
        if standing == self._last_report and not self.counters.incidents:
            return None
        self._last_report = standing
        return CopyReport(
            self.source,
            position,
            end,
            position,
            self._newest_ms,
            self.waiting_for,
            held_back=self._held_back,
            stopped=self.stopped,
            counters=self.counters.take(),
        )
