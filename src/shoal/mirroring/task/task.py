"""
One copy task: its partitions go from aligners to pairs and back, and it reports to the driver.

An aligner and a pair for each two leaders: each has a thread, so that one that waits for a leader delays no
other, and an alignment delays no copying. Each begins with its first partition, and ends with its last.

The task of a mirror follows its document (:func:`follow_documents`): it begins partitions that are new in it,
and its workers leave those that it lacks. The task's own thread looks after the workers four times a second.
Its time limits follow on one another:

- A worker without a response for ``stalled_s`` is reported as waiting for its broker. The requests of a pair
  without one for ``isolate_s`` are given up, since they may wait for one partition alone.
- ``end_patience_s`` after a worker was asked to end, or to leave partitions, what it waits for is given up.
  If a call cannot be given up, such as that of a name service, the driver takes the lease, or ends the job.

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
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster
from ...client.metadata import leader_in
from ...errors import ShoalError
from ..control import ControlConnection, WorkerControl
from ..model.copy_options import CopySettings
from ..model.reports import left_out_report
from .aligner import Aligner
from .fresh_metadata import Known
from .pair import Pair
from .partition import PartitionCopy
from .session import TaskSession
from .worker import Surroundings, Worker

__all__ = ["follow_documents"]

#: The leaders at source and destination, by node id; None if there is no leader, or it is not known.
_Leaders: TypeAlias = "tuple[int | None, int | None]"


class _Work(enum.Enum):
    """The work of a worker for its partitions."""

    ALIGN = enum.auto()
    #: Also what may take long.
    ALIGN_SLOWLY = enum.auto()
    COPY = enum.auto()


class _Place(NamedTuple):
    """The place of a worker in its task."""

    leaders: _Leaders
    work: _Work


#: The least buffer of a pair, if its task has as much: one batch of max.message.bytes' default.
_LEAST_BUFFER_BYTES = 1024 * 1024

_LOOK_INTERVAL_S = 0.25


def follow_documents(settings: CopySettings, control: ControlConnection) -> None:
    """
    Copy the partitions of the driver's documents, until an end is requested.

    Everything acknowledged is committed then.

    Raises:
        Stopped: The driver is gone.
        ShoalError: The last commit failed.

    """
    with _frozen():
        _TaskWorkers(settings, control).follow()


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
    def __init__(self, settings: CopySettings, control: ControlConnection) -> None:
        self._settings = settings
        self._timing = settings.timing
        self._control = control
        self._session = TaskSession(control, settings.timing)
        self._buffer_bytes = settings.fetch_buffer_bytes
        self._starting = threading.Lock()
        self._workers: dict[_Place, Worker] = {}
        self._failure: BaseException | None = None
        self._threads: dict[Worker, threading.Thread] = {}
        #: Workers that have ended; None for a new document.
        self._news: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        #: When the requests of a place's pair were given up last.
        self._isolated_at: dict[_Place, float] = {}
        #: When workers were first seen that have to end, or to leave partitions.
        self._asked_at: dict[Worker, float] = {}

    def follow(self) -> None:
        control = self._control
        self._session.report()  # the driver's clock starts here
        control.on_document(lambda: self._news.put(None))
        while self._threads or not control.stop_requested:
            if not control.stop_requested and self._failure is None:
                self._begin_new()
            self._look()
            if not self._threads:
                if self._failure is not None:
                    raise self._failure
                control.raise_if_orphan()

    def _begin_new(self) -> None:
        """Begin the partitions that are new; workers leave those that the newest document lacks again."""
        if new := self._control.take_new():
            self._begin([PartitionCopy(each, self._settings) for each in new])

    def _begin(self, copies: Sequence[PartitionCopy]) -> None:
        known = self._look_at_clusters(copies)
        pairs = {*(place.leaders for place in self._workers), *(_leaders_of(copy, known) for copy in copies)}
        if len(pairs) > 1:
            share = self._settings.fetch_buffer_bytes // len(pairs)
            self._buffer_bytes = max(share, min(self._settings.fetch_buffer_bytes, _LEAST_BUFFER_BYTES))
        self._pass_on(copies, known)

    def _look_at_clusters(self, copies: Sequence[PartitionCopy]) -> Known:
        source, destination = self._settings.source.impatient(), self._settings.destination.impatient()
        with Cluster(source) as there, Cluster(destination) as here:
            with suppress(ShoalError):  # the aligners try again, and report the error
                there.refresh({copy.source.topic for copy in copies})
                here.refresh({copy.destination.topic for copy in copies})
            return Known(there.known, here.known)

    # Passing partitions on, from any thread

    def _pass_on(self, copies: Sequence[PartitionCopy], known: Known) -> None:
        """Give partitions to their workers."""
        groups: dict[_Place, list[PartitionCopy]] = defaultdict(list)
        for copy in copies:
            groups[_place_of(copy, known)].append(copy)
        with self._starting:
            for place, group in groups.items():
                worker = self._workers.get(place)
                if worker is None or not worker.admit(group):
                    worker = self._workers[place] = self._worker_for(place, known)
                    self._start(worker, group)

    def _worker_for(self, place: _Place, known: Known) -> Worker:
        control = WorkerControl(self._control)
        around = Surroundings(self._settings, control, known, self._session.report, self._pass_on)
        match place:
            case _Place((int(source), int(destination)), _Work.COPY):
                return Pair(around, (source, destination), self._buffer_bytes)
        return Aligner(around, may_be_slow=place.work is _Work.ALIGN_SLOWLY)

    def _start(self, worker: Worker, copies: Sequence[PartitionCopy]) -> None:
        """Start a worker with its first partitions."""

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:  # raised again by the task's own thread
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
        ends = self._control.stop_requested or self._failure is not None
        for each in list(self._threads):
            if self._failure is not None:
                each.request_end()
            if ends or each.is_leaving:
                self._hurry(each)
            else:
                self._asked_at.pop(each, None)
        if not ends:
            self._look_after_workers()

    def _end(self, worker: Worker) -> None:
        """Keep what an ended worker leaves."""
        with self._starting:
            thread = self._threads.pop(worker)
            self._workers = {place: each for place, each in self._workers.items() if each is not worker}
        self._asked_at.pop(worker, None)
        thread.join()
        self._failure = self._failure or worker.failure
        self._session.report(worker.leaving(worker.held))

    def _look_after_workers(self) -> None:
        now = time.monotonic()
        for place, worker in list(self._workers.items()):
            if worker.silent_for_s > self._timing.stalled_s:
                stuck = [copy for copy in worker.held if not copy.state.is_over]
                for copy in stuck:
                    copy.reported = ()  # its worker reports it again, whether or not anything is new
                reason = worker.waits_for()
                self._session.report(left_out_report({copy.source: reason for copy in stuck}))
                self._isolate(place, worker, now)
        self._session.show_life()

    def _isolate(self, place: _Place, worker: Worker, now: float) -> None:
        """
        Give up the requests of a pair that is silent for long, since they may wait for one partition alone.

        Not again soon: a broker that is slow, and not stuck, has to answer some time.
        """
        if place.work is not _Work.COPY or len(worker.held) < 2:
            return
        is_due = now - self._isolated_at.get(place, -math.inf) >= self._timing.isolate_again_s
        if is_due and worker.silent_for_s > self._timing.isolate_s:
            self._isolated_at[place] = now
            worker.give_up()

    def _hurry(self, worker: Worker) -> None:
        """Give up what a worker waits for that was asked to end, or to leave partitions."""
        now = time.monotonic()
        if now - self._asked_at.setdefault(worker, now) > self._timing.end_patience_s:
            worker.give_up()


def _leaders_of(copy: PartitionCopy, known: Known) -> _Leaders:
    return leader_in(known.source, copy.source), leader_in(known.destination, copy.destination)


def _place_of(copy: PartitionCopy, known: Known) -> _Place:
    """Return the worker that a partition belongs to; without a leader it has to be aligned again."""
    leaders = _leaders_of(copy, known)
    if copy.state.is_aligned and None in leaders:
        copy.lose_track()
    if copy.state.is_aligned:
        return _Place(leaders, _Work.COPY)
    return _Place(leaders, _Work.ALIGN_SLOWLY if copy.is_slow else _Work.ALIGN)
