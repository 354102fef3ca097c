"""
An aligner has the partitions of one pair of leaders that are not copied: it aligns those that are due.

An aligned partition is passed to the pair of its leaders. Until then it waits here, if time can heal what
holds it up. The aligner ends as soon as it has no partition left to align.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...client.cluster import is_transient
from ...client.scan import NoRecords
from ...errors import CorruptBatch, PartitionStopped, ProtocolError, ShoalError
from ...topic_partition import TopicPartition
from ..assignment import end_offsets
from .lost_range import end_deleted
from .partition import PartitionCopy
from .partition_state import PartitionState
from .resume import Watch, leader_epochs_of, resume_partitions, take_over
from .worker import Worker, WorkerPhase

__all__ = ["Aligner"]


class Aligner(Worker):
    """Partitions that wait, and are aligned."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits here."""
        return not self._unfinished()

    def _work(self) -> None:
        while not self._has_ended():
            self._last_response_at = time.monotonic()
            self._take_admitted()
            if due := [copy for copy in self._unfinished() if copy.state.is_due]:
                self._step(due)
            self._reports.now_and_then(self.copies)
            self._wait_until_due()

    def _step(self, due: Sequence[PartitionCopy]) -> None:
        try:
            self._control.begin()  # what was aligned before an interruption is aligned again
            self._control.check_lease()
            self._refresh(due)
            end_deleted(due, self._metadata, self._settings)
            self._align([copy for copy in due if not copy.state.is_over])
        except ShoalError as error:
            self._hold_up([copy for copy in due if not copy.state.is_over], error)
        if not self._control.stop_requested:
            self._pass([copy for copy in self.copies if copy.state.current is PartitionState.COPYING])

    def _refresh(self, due: Sequence[PartitionCopy]) -> None:
        """Refresh the metadata if leaders or topics may have changed."""
        if self._metadata.is_old or any(copy.position is not None for copy in due):
            self._metadata.refresh(self._unfinished())

    def _wait_until_due(self) -> None:
        waiting = self._unfinished()
        if not waiting:
            return
        delay_s = max(0.0, min(copy.state.retry_at for copy in waiting) - time.monotonic())
        if delay_s >= self._timing.report_interval_s:
            self._reports.send(self.copies)  # with the reasons of waiting partitions
        self._pause(min(delay_s, self._timing.admission_s))

    def _align(self, copies: Sequence[PartitionCopy]) -> None:
        for copy in copies:
            # In this order: an interruption does not end the doubts of a former task.
            self._commits.inherit_doubts(copy)
            copy.begin_alignment(self._control.seen_interruptions, self._control.generation)
        for copy, left in take_over(copies, self._source, self._destination, self._settings):
            if left.committed is not None:
                copy.keep_commit(left.committed)
        copies = [copy for copy in copies if not copy.state.is_aligned]
        if not copies:
            return
        began_at = time.monotonic()
        self._phase = WorkerPhase.ALIGNING
        try:
            errors = self._resume(copies)
        finally:
            self._phase = WorkerPhase.WORKING
        took_s = time.monotonic() - began_at
        self._metadata.is_stale = bool(errors)
        for copy in copies:
            self._take_outcome(copy, errors.get(copy.source), took_s)
        self._end_with_the_logs(copies)
        if any(copy.counters.incidents for copy in copies):
            self._reports.send(self.copies)

    def _resume(self, copies: Sequence[PartitionCopy]) -> dict[TopicPartition, ShoalError]:
        watch = Watch(
            lambda: self._control.stop_requested,
            self._report_waiting,
            lambda: self._reports.send(self.copies),
        )
        return resume_partitions(
            copies, self._source, self._destination, self._commits, self._settings, watch
        )

    def _take_outcome(self, copy: PartitionCopy, error: ShoalError | None, took_s: float) -> None:
        if error is None or not is_transient(error):
            # An outage counts: a refusal after it has a cause of its own.
            copy.suspicions.disregard(took_s)
        elif isinstance(error, NoRecords):
            copy.suspicions.prolong(took_s)
        if error is None:
            if copy.next_offset >= copy.end_offset:
                copy.state.report_waiting(None)  # else the next batch has to be acknowledged first
            copy.keep_leader_epochs(leader_epochs_of(copy, self._source, self._destination))
            return
        copy.lose_track()
        if isinstance(error, PartitionStopped):
            copy.stop_with(error)
        elif isinstance(error, NoRecords):
            self._gaps.take_failed_read(copy, error)
        elif is_transient(error):
            copy.wait(str(error))
        elif isinstance(error, CorruptBatch | ProtocolError):
            copy.suspect(copy.next_offset, str(error))
        else:
            copy.stop(str(error))

    def _report_waiting(self, copy: PartitionCopy, reason: str) -> None:
        """Report the reason why a partition waits during its alignment, which may take long."""
        copy.state.report_waiting(reason)
        self._reports.now_and_then(self.copies)

    def _end_with_the_logs(self, copies: Sequence[PartitionCopy]) -> None:
        """Let ranges that were made for a former topic or log end where the present logs do."""
        former = [
            copy for copy in copies if copy.state.is_aligned and copy.end_is_former and not copy.range.is_open
        ]
        if not former:
            return
        try:
            ends = end_offsets(
                self._source, [copy.source for copy in former], self._settings.source.isolation_level
            )
        except ShoalError:
            for copy in former:
                copy.lose_track()
            raise
        for copy in former:
            copy.end_at(ends[copy.source])
