"""
An aligner has the partitions of one pair of leaders that are not copied: it aligns those that are due.

An aligned partition is passed to the pair of its leaders. Until then it waits here, if time can heal what
holds it up. The aligner ends as soon as it has no partition left to align.

An alignment may take long, to compare a whole copy or to ask a silent source again. Its partition goes to an
aligner for such ones, which takes one at a time. So it delays no other alignment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import PartitionStopped, ShoalError
from ...topic_partition import TopicPartition
from .deleted_topics import end_deleted
from .partition import PartitionCopy
from .partition_state import PartitionState
from .resume import Watch, resume_partitions
from .source_gaps import look_into_silence
from .worker import Surroundings, Worker

__all__ = ["Aligner"]


class Aligner(Worker):
    """Partitions that wait, and are aligned."""

    def __init__(self, around: Surroundings, *, may_be_slow: bool = False) -> None:
        """
        Prepare an aligner without partitions.

        Args:
            may_be_slow: Whether it takes the partitions whose alignment may take long.

        """
        super().__init__(around)
        self._may_be_slow = may_be_slow

    def _work(self) -> None:
        while not self._has_ended():
            self._last_response_at = time.monotonic()
            self._take_admitted()
            self._leave(self._take_left())
            if due := [copy for copy in self._unfinished() if copy.state.is_due]:
                self._step(due[:1] if self._may_be_slow else due)
            self._reports.now_and_then(self.copies)
            self._wait_until_due()

    def _step(self, due: Sequence[PartitionCopy]) -> None:
        try:
            self._control.begin()  # what was aligned before an interruption is aligned again
            self._control.check_lease()
            self._metadata.refresh(self._unfinished())
            for copy in due:
                with self._stopping(copy):
                    end_deleted(copy, self._source, self._settings)
            self._align([copy for copy in due if not copy.state.is_over])
        except ShoalError as error:
            self._hold_up([copy for copy in due if not copy.state.is_over], error)
        if not self._control.stop_requested:
            self._pass([copy for copy in self.copies if self._belongs_elsewhere(copy)])

    def _belongs_elsewhere(self, copy: PartitionCopy) -> bool:
        if copy.state.current is PartitionState.WAITING:
            return copy.is_slow and not self._may_be_slow
        return copy.state.current is PartitionState.COPYING

    def _wait_until_due(self) -> None:
        waiting = self._unfinished()
        if not waiting:
            return
        delay_s = max(0.0, min(copy.state.retry_at for copy in waiting) - time.monotonic())
        if delay_s >= self._timing.report_interval_s:
            self._reports.send(self.copies)  # with the reasons of waiting partitions
        self._pause(min(delay_s, self._timing.admission_s))

    def _align(self, copies: Sequence[PartitionCopy]) -> None:
        if not copies:
            return
        for copy in copies:
            copy.begin_alignment(self._control.seen_interruptions, self._control.driver.generation)
        errors = self._resume(copies)
        for copy in copies:
            self._take_outcome(copy, errors.get(copy.source))
        if self._may_be_slow:
            self._look_into_silences(copies)
        if any(copy.counters.incidents for copy in copies):
            self._reports.send(self.copies)

    def _resume(self, copies: Sequence[PartitionCopy]) -> dict[TopicPartition, ShoalError]:
        watch = Watch(
            lambda: self._control.stop_requested or self.is_leaving,
            self._report_waiting,
            lambda: self._reports.send(self.copies),
        )
        return resume_partitions(
            copies, self._source, self._destination, self._commits, self._settings, watch
        )

    def _look_into_silences(self, copies: Sequence[PartitionCopy]) -> None:
        """Ask the source again for partitions of which it sent nothing; it may wait as long as it likes."""
        self._is_pausing = True
        for copy in copies:
            if copy.state.current is PartitionState.COPYING and copy.is_silent:
                with self._stopping(copy):
                    look_into_silence(copy, self._source, self._settings)
        self._is_pausing = False

    def _take_outcome(self, copy: PartitionCopy, error: ShoalError | None) -> None:
        if error is not None:
            copy.fail(error, copy.next_offset)
        elif copy.state.is_aligned:  # else it is left to an aligner that may be slow
            copy.progress.source_leader_epoch = self._source.partition(copy.source).leader_epoch

    def _report_waiting(self, copy: PartitionCopy, reason: str) -> None:
        """Report the reason why a partition waits during its alignment, which may take long."""
        copy.state.waiting_for = reason
        self._reports.now_and_then(self.copies)

    @contextmanager
    def _stopping(self, copy: PartitionCopy) -> Iterator[None]:
        """Stop a partition that cannot continue."""
        try:
            yield
        except PartitionStopped as error:
            copy.stop_with(error)
