"""One partition that is archived: what the archive has of it, and the segment that is open."""

from __future__ import annotations

import time
import uuid

from ....archive.aborted import OpenAborted
from ....archive.directory import Archive
from ....archive.names import topic_directory_id
from ....archive.objects import PartitionObjects
from ....archive.segment import OpenSegment
from ....client.backoff import Backoff
from ....errors import PartitionStopped
from ....protocol.fetch import FetchedPartition
from ....records import Decision
from ....timing import Timing
from ...control import WorkerControl
from ...model.incidents import Incident, IncidentKind
from ...model.reports import Assigned, CopyReport, Counters
from ...model.text import offsets
from .spool import Spool

__all__ = ["ArchivedPartition"]


class ArchivedPartition:
    """
    A partition of the task.

    Attributes:
        entry: The number of the document's entry by which the task has it.
        range: The offsets to archive.
        source: The partition at the source.
        topic_id: The source's topic id, once the partition has begun; None if the source has none.
        leader_epoch: The epoch of the source's leader when it began.
        segment: The segment that is open; None without batches that are not archived.
        is_begun: Whether the archive was looked at, so that its position is known.
        waiting_for: Why it waits; None if it does not.
        retry_at: When it is due again, on the monotonic clock.
        stopped: Why it stopped; None if it did not.
        counters: The counts since the task took it.

    """

    def __init__(self, assigned: Assigned, timing: Timing) -> None:
        self.entry = assigned.entry
        self.range = assigned.range
        self.source = assigned.range.source
        self.topic_id: uuid.UUID | None = None
        self.leader_epoch = -1
        self.segment: OpenSegment | None = None
        self.is_begun = False
        self.waiting_for = assigned.waiting_for
        self.retry_at = 0.0
        self.stopped: PartitionStopped | None = None
        self.counters = Counters.begun()
        self._backoff = Backoff(timing.first_retry_ms, timing.longest_retry_ms)
        self._objects: PartitionObjects | None = None
        self._position = assigned.range.start_offset
        self._follows = self._position
        self._aborted = OpenAborted()
        self._end_offset: int | None = None
        self._held_back: int | None = None
        self._newest_ms: int | None = None
        self._last_report: object = None

    # Where it stands

    @property
    def position(self) -> int:
        """The offset up to which the archive has it."""
        return self._position

    @property
    def fetch_offset(self) -> int:
        """The next offset to fetch."""
        return self._position if self.segment is None else self.segment.next_offset

    @property
    def last_epoch(self) -> int:
        """The source's leader epoch of the last archived batch; -1 without any."""
        objects = self._objects
        if objects is None or not objects.names:
            return -1
        return objects.facts(
            max(objects.names, key=lambda each: objects.facts(each).next_offset)
        ).leader_epoch

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.stopped is not None or self.is_done

    @property
    def is_done(self) -> bool:
        """Whether everything up to the end is archived."""
        return self.is_begun and not self.range.is_open and self._position >= self.range.end_offset

    @property
    def takes_batches(self) -> bool:
        """Whether batches may be added: its position is known, and no segment waits for the store."""
        return self.is_begun and (self.segment is None or not self.segment.is_closed)

    @property
    def needs_data(self) -> bool:
        """Whether to fetch more now."""
        is_due = self.takes_batches and self.stopped is None and time.monotonic() >= self.retry_at
        return is_due and self.fetch_offset < self.range.end_offset

    # Its life

    def begin(
        self, archive: Archive, topic_id: uuid.UUID | None, cluster_id: str | None, leader_epoch: int
    ) -> None:
        """
        Find the position: the end of the last object that counts.

        Raises:
            ShoalError: The store does not answer, or has what no archive has.

        """
        self.forget()
        directory_id = topic_directory_id(topic_id, cluster_id)
        objects = archive.objects(self.range.destination_topic, directory_id, self.source.partition)
        end = objects.end_offset
        self._objects, self.topic_id, self.leader_epoch = objects, topic_id, leader_epoch
        self._position = self._follows = self.range.start_offset if end is None else end
        self.is_begun = True

    def forget(self) -> None:
        """Drop the open segment: another task may have the partition, or its log is another one."""
        if self.segment is not None:
            self.segment.drop()
        self.segment = None
        self.is_begun = False
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

    def take(self, fetched: FetchedPartition, end_offset: int, spool: Spool) -> bool:
        """
        Gather the batches of a response; return whether there was a whole one.

        Raises:
            CorruptBatch: The source sent a damaged batch. All before it are gathered.
            Disconnected: The local disk does not take them.

        """
        self._end_offset = end_offset
        self._held_back = max(0, fetched.high_watermark - end_offset)
        if not len(fetched.record_set):
            if self.fetch_offset >= end_offset:
                self.waiting_for = None
            return False
        if self.segment is None:
            self.segment = OpenSegment(
                spool.new_file(),
                self._position,
                self._aborted,
                follows=self._follows,
                is_read_again=self._objects is None or not self._objects.store.is_local,
            )
        self.counters.bytes_in += len(fetched.record_set)
        self._aborted.learn(fetched.aborted_transactions)
        if not self.segment.take(fetched.record_set):
            return False
        self._succeed()
        return True

    def pass_over(self, offset: int) -> None:
        """Go on at a later offset: the source has no batch before it."""
        if self.segment is None:
            self._position = max(self._position, offset)
        else:
            self.segment.pass_over(offset)

    def skip_deleted(self, log_start: int, *, may_continue: bool) -> None:
        """React to records that the source deleted before they were archived."""
        first, lost = self.fetch_offset, log_start - self.fetch_offset
        kind = IncidentKind.SOURCE_RETENTION
        reason = f"the source deleted {offsets(first, log_start - 1)} before they were archived"
        if not may_continue:
            self.stop(f"{reason}. Continue behind them by {kind.continuing}", kind, lost)
            return
        self.counters.incidents.append(Incident(kind, reason, lost, continued=True))
        self._position = log_start  # the open segment was published

    def is_due(self, segment_bytes: int, segment_seconds: float) -> bool:
        """Whether the open segment has to be archived now."""
        segment = self.segment
        if segment is None or time.monotonic() < self.retry_at:
            return False
        if not segment.batches:
            return False
        age_s = time.monotonic() - segment.began_at
        return (
            segment.is_closed
            or segment.size >= segment_bytes
            or age_s >= segment_seconds
            or self.stopped is not None
            or segment.next_offset >= self.range.end_offset
        )

    def publish(self, archive: Archive, control: WorkerControl) -> None:
        """
        Archive the open segment.

        Raises:
            BrokerError: The lease has ended, or another task may have had the partition: begin again.
            ShoalError: The store does not take it. It may be tried again.

        """
        segment, objects = self.segment, self._objects
        if segment is None or objects is None or not segment.batches:
            return
        control.check_lease()
        generation = max(control.generation, objects.next_generation)
        name, facts = segment.publish(archive.store, objects.path, generation, control.check_lease)
        segment.drop()
        self.segment = None
        self._position = self._follows = facts.next_offset
        self._newest_ms = facts.newest_ms if facts.newest_ms >= 0 else None
        objects.note(name, facts)
        counters = self.counters
        counters.batches += facts.batches
        counters.records += facts.records
        counters.bytes_out += facts.log_bytes
        counters.decisions[Decision.COPY] += facts.batches
        self._succeed()

    def _succeed(self) -> None:
        self._backoff.reset()
        self.waiting_for = None

    # Reports

    def report(self) -> CopyReport | None:
        """Return a report with the counts; None if there is nothing new."""
        position = self._position if self.is_begun else None
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
