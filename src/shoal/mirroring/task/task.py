"""
One copy task: its partitions go from aligners to pairs and back, and it reports to the driver.

An aligner and a pair for each two leaders: each has a thread, so that one that waits for a leader delays no
other, and an alignment delays no copying. Each begins with its first partition, and ends with its last.

The task of a mirror follows its document (:func:`follow_documents`): it begins partitions that are new in it,
and its workers leave those that it lacks. The task's own thread looks after the workers four times a second.
Its time limits follow on one another:

- A worker without a response for ``stalled_s`` is reported as waiting for its broker. The requests of a pair
  without one for ``isolate_s`` are given up, since they may wait for one partition alone.
- After a request to end, or to leave partitions, ``end_patience_s`` later whatever a worker waits for is
  given up.
- Another ``give_up_patience_s`` later the task continues or ends without the worker, unless it commits.

:class:`~shoal.timing.Timing` has these times.
"""

from __future__ import annotations

import enum
import gc
import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster
from ...client.metadata import leader_in
from ...errors import PartitionStopped, ShoalError
from ..control import Control, ControlConnection, WorkerControl
from ..model.copy_options import CopySettings
from ..model.handover import Assigned
from ..model.ranges import CopyRange
from ..model.reports import left_out_report
from .aligner import Aligner
from .ends import Leaders
from .fresh_metadata import Known
from .pair import Pair
from .partition import PartitionCopy
from .session import TaskSession
from .worker import Stop, Surroundings, Worker

__all__ = ["TaskResult", "follow_documents", "run_copy_task"]

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
    Copy ranges that no driver changes meanwhile, whatever a former attempt has copied of them.

    Returns:
        The result, as soon as every partition is done or stopped, or an end was requested. Everything
        acknowledged is committed then.

    Raises:
        Stopped: The driver is gone.
        ShoalError: The last commit failed.

    """
    with _frozen():
        return _TaskWorkers(settings, control).copy(ranges)


def follow_documents(settings: CopySettings, control: ControlConnection) -> None:
    """
    Copy the partitions of the driver's documents, until an end is requested.

    Everything acknowledged is committed then, or handed over.

    Raises:
        Stopped: The driver is gone.
        ShoalError: The last commit failed.

    """
    with _frozen():
        _TaskWorkers(settings, control).follow(control)


@contextmanager
def _frozen() -> Iterator[None]:
    # Each response makes objects, and so starts the garbage collector: it need not walk again and again what
    # the process had before. In a worker of PySpark that is 72,000 objects, and took 0.2 CPU-s for each GB.
    gc.freeze()
    try:
        yield
    finally:
        # A worker and its connections form cycles, which hold its fetch buffer of 16 MB.
        gc.collect()
        gc.unfreeze()


class _TaskWorkers:
    def __init__(self, settings: CopySettings, control: Control) -> None:
        self._settings = settings
        self._timing = settings.timing
        self._control = control
        #: Whether its workers leave what the newest document lacks.
        self._follows = False
        self._session = TaskSession(control, settings.timing)
        self._buffer_bytes = settings.fetch_buffer_bytes
        #: Destination leaders that took several batches in a request when they were queried last.
        self._accepting: set[int] = set()
        self._starting = threading.Lock()
        self._is_over = False
        self._workers: dict[_Place, Worker] = {}
        self._failure: BaseException | None = None
        self._threads: dict[Worker, threading.Thread] = {}
        #: Workers that have ended; None for a new document.
        self._news: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        #: When the requests of a place's pair were given up last.
        self._isolated_at: dict[_Place, float] = {}
        #: When workers were first seen that have partitions to leave.
        self._leaving_since: dict[Worker, float] = {}

    def copy(self, ranges: Sequence[CopyRange]) -> TaskResult:
        self._session.report()  # the driver's clock starts here
        assignment = self._control.assignment
        copies = [self._begun(assignment.get(each.source, Assigned(0, each)), each) for each in ranges]
        self._begin(copies)
        while self._threads:
            self._look()
        self._end_all()
        stopped = tuple(copy.state.stopped for copy in copies if copy.state.stopped)
        return TaskResult(stopped, complete=all(copy.state.is_over for copy in copies))

    def follow(self, control: ControlConnection) -> None:
        self._follows = True
        self._session.report()
        control.on_document(lambda: self._news.put(None))
        while self._threads or not control.stop_requested:
            if not control.stop_requested and self._failure is None:
                self._begin_new(control)
                if control.has_to_report_again:
                    control.has_to_report_again = False
                    for worker in list(self._threads):
                        worker.report_again(worker.held)
            self._look()
            if not self._threads:
                if self._failure is not None:
                    break
                control.raise_if_orphan()
        self._end_all()

    def _end_all(self) -> None:
        with self._starting:
            self._is_over = True
        if self._failure is not None:
            raise self._failure

    def _begin_new(self, control: ControlConnection) -> None:
        """Begin the partitions that are new; workers leave those that the newest document lacks again."""
        if new := control.take_new():
            self._begin([self._begun(each, each.range) for each in new])

    def _begun(self, assigned: Assigned, copied: CopyRange) -> PartitionCopy:
        return PartitionCopy(
            copied,
            self._settings,
            entry=assigned.entry,
            inherited=assigned.inherited,
            waiting_for=assigned.waiting_for,
            accepted=assigned.accepted,
            interruptions=assigned.interruptions,
        )

    def _begin(self, copies: Sequence[PartitionCopy]) -> None:
        known = self._look_at_clusters(copies)
        pairs = {*(place.leaders for place in self._workers), *(_leaders_of(copy, known) for copy in copies)}
        if len(pairs) > 1:
            share = self._settings.fetch_buffer_bytes // len(pairs)
            self._buffer_bytes = max(share, min(self._settings.fetch_buffer_bytes, _LEAST_BUFFER_BYTES))
        self._pass_on(None, copies, known)

    def _look_at_clusters(self, copies: Sequence[PartitionCopy]) -> Known:
        at = time.monotonic()
        source, destination = self._settings.source.impatient(), self._settings.destination.impatient()
        with Cluster(source) as there, Cluster(destination) as here:
            with suppress(ShoalError):  # the aligners try again, and report the error
                there.refresh({copy.source.topic for copy in copies})
                here.refresh({copy.destination.topic for copy in copies})
            return Known(there.known, here.known, at)

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
        control = WorkerControl(self._control, follows=self._follows)
        around = Surroundings(self._settings, control, known, self._session.report, self._pass_on)
        source, destination = place.leaders
        if place.work in {_Work.ALIGN, _Work.ALIGN_SLOWLY} or source is None or destination is None:
            return Aligner(around, may_be_slow=place.work is _Work.ALIGN_SLOWLY)
        can_be_marked = place.work is _Work.COPY
        leaders = (source, destination)
        return Pair(
            around, Leaders(self._settings, *leaders, self._buffer_bytes, self._accepting, can_be_marked)
        )

    def _start(self, worker: Worker, copies: Sequence[PartitionCopy]) -> None:
        """Start a worker with its first partitions."""

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:  # raised again by the task's own thread
                if not worker.is_fenced:
                    worker.failure = error
            self._news.put(worker)

        worker.admit(copies)
        thread = threading.Thread(target=run, name="shoal-worker", daemon=True)
        self._threads[worker] = thread
        thread.start()

    # The task's own thread

    def _look(self) -> None:
        """Wait for the end of a worker, and look after all of them."""
        with suppress(queue.Empty):
            worker = self._news.get(timeout=_LOOK_INTERVAL_S)
            if worker is not None:
                self._end(worker)
        if self._failure is not None:
            for each in list(self._threads):
                each.stop(Stop.SOON)
        elif not self._control.stop_requested:
            self._look_after_workers()
            return
        for each in list(self._threads):
            self._hurry(each)

    def _end(self, worker: Worker) -> None:
        """Keep what an ended worker leaves."""
        thread = self._take_off(worker)
        if thread is None:
            return  # it is fenced
        thread.join()
        self._failure = self._failure or worker.failure
        self._session.report(worker.leaving(worker.held))

    def _take_off(self, worker: Worker) -> threading.Thread | None:
        """Forget a worker, but not its partitions; return its thread, or None if it is forgotten already."""
        with self._starting:
            thread = self._threads.pop(worker, None)
            if thread is None:
                return None
            self._workers = {place: each for place, each in self._workers.items() if each is not worker}
        self._leaving_since.pop(worker, None)
        return thread

    def _look_after_workers(self) -> None:
        now = time.monotonic()
        for worker in list(self._threads):
            if worker.silent_for_s > self._timing.stalled_s:
                stuck = [copy for copy in worker.held if not copy.state.is_over]
                worker.report_again(stuck)
                reason = worker.waits_for()
                self._session.report(left_out_report({copy.source: reason for copy in stuck}))
                self._isolate(worker, now)
            if not worker.is_leaving:
                self._leaving_since.pop(worker, None)
            elif now - self._leaving_since.setdefault(worker, now) > self._timing.end_patience_s:
                # The driver gives the partitions that it does not have to leave out again.
                self._hurry(worker, has_waited=True)
        self._session.show_life()

    def _isolate(self, worker: Worker, now: float) -> None:
        """
        Give up the requests of a pair that is silent for long, since they may wait for one partition alone.

        Not again soon: a broker that is slow, and not stuck, has to answer some time.
        """
        place = next((place for place, each in self._workers.items() if each is worker), None)
        if place is None or place.work not in {_Work.COPY, _Work.COPY_MOVED} or len(worker.held) < 2:
            return
        is_due = now - self._isolated_at.get(place, -math.inf) >= self._timing.isolate_again_s
        if is_due and worker.silent_for_s > self._timing.isolate_s:
            self._isolated_at[place] = now
            worker.give_up_requests()

    def _hurry(self, worker: Worker, *, has_waited: bool = False) -> None:
        """Give up the waits of a worker that is stuck, aligns, or gets no answer."""
        if (
            has_waited
            or worker.is_stuck
            or worker.aligns
            or worker.silent_for_s > self._timing.end_patience_s
        ):
            worker.stop(Stop.NOW)
        if worker.gave_up_for_s > self._timing.give_up_patience_s and not worker.commits:
            worker.stop(Stop.FENCED)
            if self._take_off(worker) is not None:
                # The worker may have passed some on, and not noted that yet.
                others = {copy for each in list(self._threads) for copy in each.held}
                left = [copy for copy in worker.held if copy not in others]
                self._session.report(worker.leaving(left))


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
