"""
One copy task: its partitions go from aligners to pairs and back, and it reports to the driver.

An aligner and a pair for each two leaders: each has a thread, so that one that waits for a leader delays no
other, and an alignment delays no copying. Each begins with its first partition, and ends with its last.

The task's own thread looks after the workers four times a second. Its time limits follow on one another:

- A worker without a response for ``stalled_s`` is reported as waiting for its broker.
- After a request to end, ``end_patience_s`` later whatever a worker waits for is given up.
- Another ``give_up_patience_s`` later the task ends without the worker, unless it commits.

:class:`~shoal.timing.Timing` has these times.
"""

from __future__ import annotations

import enum
import gc
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster
from ...client.metadata import leader_in
from ...errors import PartitionStopped, ShoalError
from ..control import Control, WorkerControl
from ..model.copy_options import CopySettings
from ..model.ranges import CopyRange
from ..model.reports import TaskReport, left_out_report
from .aligner import Aligner
from .ends import Leaders
from .fresh_metadata import Known
from .pair import Pair
from .partition import PartitionCopy
from .session import TaskSession
from .worker import Stop, Worker

__all__ = ["TaskResult", "run_copy_task"]

#: The leaders at source and destination, by node id; None if there is no leader, or it is not known.
_Leaders: TypeAlias = "tuple[int | None, int | None]"


class _Work(enum.Enum):
    """The work of a worker for its partitions."""

    ALIGN = enum.auto()
    #: Also what may take long.
    ALIGN_SLOWLY = enum.auto()
    COPY = enum.auto()
    #: Copies partitions whose sequences are not their offsets.
    COPY_MOVED = enum.auto()


class _Place(NamedTuple):
    """The place of a worker in its task."""

    leaders: _Leaders
    work: _Work


#: The least buffer of a pair, if its task has as much: one batch of max.message.bytes' default.
_LEAST_BUFFER_BYTES = 1024 * 1024

_LOOK_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task: the partitions that stopped, and whether all others are done."""

    stopped: tuple[PartitionStopped, ...]
    complete: bool


def run_copy_task(ranges: Sequence[CopyRange], settings: CopySettings, control: Control) -> TaskResult:
    """
    Copy ranges of partitions, whatever a former attempt has copied of them.

    Returns:
        The result, as soon as every partition is done or stopped, or an end was requested. Everything
        acknowledged is committed then, or handed over.

    Raises:
        Stopped: The driver is gone.
        ShoalError: The last commit failed.

    """
    # Each response makes objects, and so starts the garbage collector: it need not walk again and again what
    # the process had before. In a worker of PySpark that is 72,000 objects, and took 0.2 CPU-s for each GB.
    gc.freeze()
    try:
        return _TaskWorkers(ranges, settings, control).run()
    finally:
        # A worker and its connections form cycles, which hold its fetch buffer of 16 MB. Unfrozen objects are
        # old, and Python collects old ones when a quarter is new: after dozens of windows. While the others
        # are frozen, only the task's own objects are walked.
        gc.collect()
        gc.unfreeze()


class _TaskWorkers:
    def __init__(self, ranges: Sequence[CopyRange], settings: CopySettings, control: Control) -> None:
        self._settings = settings
        self._timing = settings.timing
        self._control = control
        self._session = TaskSession(control, settings.timing)
        self._ranges = ranges
        self._buffer_bytes = settings.fetch_buffer_bytes
        #: Destination leaders that took several batches in a request when they were queried last.
        self._accepting: set[int] = set()
        self._starting = threading.Lock()
        self._is_over = False
        self._workers: dict[_Place, Worker] = {}
        self._failure: BaseException | None = None
        self._threads: dict[Worker, threading.Thread] = {}
        self._ended: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def run(self) -> TaskResult:
        self._session.report()  # the driver's clock starts here
        # First, since the driver may answer only after the tasks of the window before have ended.
        known = self._look_at_clusters()
        copies = self._take_copies()
        pairs = {_leaders_of(copy, known) for copy in copies}
        if len(pairs) > 1:
            share = self._settings.fetch_buffer_bytes // len(pairs)
            self._buffer_bytes = max(share, min(self._settings.fetch_buffer_bytes, _LEAST_BUFFER_BYTES))
        self._pass_on(None, copies, known)
        self._wait_for_workers()
        if self._failure is not None:
            raise self._failure
        stopped = tuple(copy.state.stopped for copy in copies if copy.state.stopped)
        return TaskResult(stopped, complete=all(copy.state.is_over for copy in copies))

    def _look_at_clusters(self) -> Known:
        at = time.monotonic()
        with Cluster(self._settings.source) as source, Cluster(self._settings.destination) as destination:
            with suppress(ShoalError):  # the aligners try again, and report the error
                source.refresh({each.source.topic for each in self._ranges})
                destination.refresh({each.destination.topic for each in self._ranges})
            return Known(source.known, destination.known, at)

    def _take_copies(self) -> list[PartitionCopy]:
        interruptions = self._control.interruptions
        handover = self._control.take([each.source for each in self._ranges])
        return [
            PartitionCopy(
                each,
                self._settings,
                inherited=handover.left.get(each.source),
                waiting_for=handover.in_trouble.get(each.source),
                accepted=handover.accepted.get(each.source),
                interruptions=interruptions,
            )
            for each in self._ranges
            if each.source not in handover.given_up
        ]

    # Passing partitions on, from any thread

    def _pass_on(self, sender: Worker | None, copies: Sequence[PartitionCopy], known: Known) -> None:
        """Give partitions to their workers; those of a fenced sender stay as they are."""
        groups: dict[_Place, list[PartitionCopy]] = defaultdict(list)
        for copy in copies:
            groups[_place_of(copy, known)].append(copy)
        with self._starting:
            if self._is_over or (sender is not None and sender not in self._threads):
                return
            for place, group in groups.items():
                worker = self._workers.get(place)
                if worker is None or not worker.admit(group):
                    worker = self._workers[place] = self._worker_for(place, known)
                    self._start(worker, group)

    def _worker_for(self, place: _Place, known: Known) -> Worker:
        control, report = WorkerControl(self._control), self._session.report
        source, destination = place.leaders
        if place.work in {_Work.ALIGN, _Work.ALIGN_SLOWLY} or source is None or destination is None:
            may_be_slow = place.work is _Work.ALIGN_SLOWLY
            return Aligner(
                self._settings, control, known, report=report, pass_on=self._pass_on, may_be_slow=may_be_slow
            )
        return Pair(
            self._settings,
            control,
            known,
            report=report,
            pass_on=self._pass_on,
            ends=Leaders(
                self._settings,
                source,
                destination,
                self._buffer_bytes,
                self._accepting,
                can_be_marked=place.work is _Work.COPY,
            ),
        )

    def _start(self, worker: Worker, copies: Sequence[PartitionCopy]) -> None:
        """Start a worker with its first partitions."""

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:  # raised again by the task's own thread
                if not worker.is_fenced:
                    worker.failure = error
            self._ended.put(worker)

        worker.admit(copies)
        thread = threading.Thread(target=run, name="shoal-worker", daemon=True)
        self._threads[worker] = thread
        thread.start()

    # The task's own thread

    def _wait_for_workers(self) -> None:
        """Wait until every worker has ended; report the broker that a stalled one waits for."""
        while not self._has_ended():
            with suppress(queue.Empty):
                self._end(self._ended.get(timeout=_LOOK_INTERVAL_S))
            if self._failure is not None:
                for worker in list(self._threads):
                    worker.stop(Stop.SOON)
            elif not self._control.stop_requested:
                self._look_after_workers()
                continue
            self._hurry()

    def _has_ended(self) -> bool:
        """Whether no worker is left; then none begins any more."""
        with self._starting:
            self._is_over = not self._threads
            return self._is_over

    def _end(self, worker: Worker) -> None:
        """Keep what an ended worker leaves."""
        thread = self._take_off(worker)
        if thread is None:
            return  # it is fenced
        thread.join()
        self._failure = self._failure or worker.failure
        if leaves := worker.leaves():
            self._session.report(TaskReport(leaves=leaves))

    def _take_off(self, worker: Worker) -> threading.Thread | None:
        """Forget a worker, but not its partitions; return its thread, or None if it is forgotten already."""
        with self._starting:
            thread = self._threads.pop(worker, None)
            if thread is None:
                return None
            self._workers = {place: each for place, each in self._workers.items() if each is not worker}
        return thread

    def _look_after_workers(self) -> None:
        workers = list(self._threads)
        for worker in workers:
            if worker.silent_for_s > self._timing.stalled_s:
                stuck = [copy for copy in worker.held if not copy.state.is_over]
                worker.report_again(stuck)
                reason = worker.waits_for()
                self._session.report(left_out_report({copy.source: reason for copy in stuck}))
        self._session.show_life()
        if self._session.ends_soon:
            if any(each.aligns for each in workers):
                self._session.report(TaskReport(aligns=True))
            elif all(each.is_quiet for each in workers):
                self._session.report(TaskReport(is_idle=True))

    def _hurry(self) -> None:
        """After a request to end, give up the waits of workers that are stuck, align, or get no answer."""
        for worker in list(self._threads):
            if worker.is_stuck or worker.aligns or worker.silent_for_s > self._timing.end_patience_s:
                worker.stop(Stop.NOW)
            if worker.gave_up_for_s > self._timing.give_up_patience_s and not worker.commits:
                worker.stop(Stop.FENCED)
                self._take_off(worker)


def _leaders_of(copy: PartitionCopy, known: Known) -> _Leaders:
    return leader_in(known.source, copy.source), leader_in(known.destination, copy.destination)


def _place_of(copy: PartitionCopy, known: Known) -> _Place:
    """Return the worker that a partition belongs to; without a leader it has to be aligned again."""
    leaders = _leaders_of(copy, known)
    if copy.state.is_aligned and None in leaders:
        copy.lose_track()
    if copy.state.is_aligned:
        return _Place(leaders, _Work.COPY if copy.sequence_is_offset else _Work.COPY_MOVED)
    return _Place(leaders, _Work.ALIGN_SLOWLY if copy.is_slow else _Work.ALIGN)
