"""
One copy task: it shares its partitions out to workers by their leaders, and reports to the driver.

Each worker has a thread, so that one that waits for a leader delays no other. Partitions that fail
while others of the same leaders go on are *in trouble*: a further worker copies those of each pair of
leaders.

The task's own thread looks after the workers four times a second. Its time limits follow on one another:

- A worker without a response for ``stalled_s`` is reported as waiting for its broker.
- After a request to end, ``end_patience_s`` later whatever a worker waits for is given up.
- Another ``give_up_patience_s`` later the task ends without the worker, unless it commits.

:class:`~shoal.timing.Timing` has these times.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from ...client.cluster import Cluster
from ...client.metadata import Metadata, leader_in
from ...errors import PartitionStopped, ShoalError
from ..control import Control, WorkerControl
from ..model.copy_options import CopySettings
from ..model.ranges import CopyRange
from ..model.reports import TaskReport, left_out_report
from .partition import PartitionCopy
from .partition_state import PartitionState
from .session import TaskSession
from .worker import LeaderPairWorker, Stop

__all__ = ["TaskResult", "run_copy_task"]

#: The leaders at source and destination, by node id; None if there is no leader, or it is not known.
_Leaders: TypeAlias = "tuple[int | None, int | None]"

#: The least buffer of a worker, if its task has as much: one batch of max.message.bytes' default.
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
        self._known: tuple[Metadata | None, Metadata | None] = (None, None)
        self._known_at = 0.0
        self._buffer_bytes = settings.fetch_buffer_bytes
        self._workers: list[LeaderPairWorker] = []
        self._in_trouble: dict[_Leaders, LeaderPairWorker] = {}
        self._threads: dict[LeaderPairWorker, threading.Thread] = {}
        self._ended: queue.SimpleQueue[LeaderPairWorker] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._requested_rebalance = False

    def run(self) -> TaskResult:
        self._session.report()  # the driver's clock starts here
        groups = self._share_out()
        if len(groups) > 1:
            share = self._settings.fetch_buffer_bytes // len(groups)
            self._buffer_bytes = max(share, min(self._settings.fetch_buffer_bytes, _LEAST_BUFFER_BYTES))
        for (_, in_trouble), copies in groups.items():
            if in_trouble:
                self._copy_in_trouble(copies)
            else:
                self._start(self._worker(copies, give_away=self._copy_in_trouble))
        self._wait_for_workers()
        for worker in self._workers:
            if worker.failure is not None:
                raise worker.failure
        copies = [
            copy
            for worker in self._workers
            for copy in worker.copies
            if copy.state.current is not PartitionState.HANDED_ON
        ]
        stopped = tuple(copy.state.stopped for copy in copies if copy.state.stopped)
        return TaskResult(stopped, complete=all(copy.state.is_over for copy in copies))

    # Workers

    def _share_out(self) -> dict[tuple[_Leaders, bool], list[PartitionCopy]]:
        """Group the partitions by their leaders, and by whether they are in trouble."""
        # First, since the driver may answer only after the tasks of the window before have ended.
        self._look_at_clusters()
        handover = self._control.take([each.source for each in self._ranges])
        groups: dict[tuple[_Leaders, bool], list[PartitionCopy]] = defaultdict(list)
        for each in self._ranges:
            if each.source in handover.given_up:
                continue
            copy = PartitionCopy(
                each,
                self._settings,
                inherited=handover.left.get(each.source),
                waiting_for=handover.in_trouble.get(each.source),
                accepted=handover.accepted.get(each.source),
            )
            leaders = self._leaders_of(copy)
            groups[leaders, copy.source in handover.in_trouble or None in leaders].append(copy)
        return groups

    def _look_at_clusters(self) -> None:
        self._known_at = time.monotonic()
        with Cluster(self._settings.source) as source, Cluster(self._settings.destination) as destination:
            with suppress(ShoalError):  # the workers try again, and report the error
                source.refresh({each.source.topic for each in self._ranges})
                destination.refresh({each.destination.topic for each in self._ranges})
            self._known = source.known, destination.known

    def _leaders_of(self, copy: PartitionCopy) -> _Leaders:
        source, destination = self._known
        return leader_in(source, copy.source), leader_in(destination, copy.destination)

    def _worker(
        self,
        copies: Sequence[PartitionCopy],
        *,
        give_away: Callable[[Sequence[PartitionCopy]], None] | None = None,
        stays: bool = False,
    ) -> LeaderPairWorker:
        source, destination = self._known
        return LeaderPairWorker(
            copies,
            self._settings,
            WorkerControl(self._control),
            Cluster(self._settings.source, source),
            Cluster(self._settings.destination, destination),
            known_at=self._known_at,
            buffer_bytes=self._buffer_bytes,
            report=self._session.report,
            give_away=give_away,
            stays=stays,
        )

    def _start(self, worker: LeaderPairWorker) -> None:
        def run() -> None:
            try:
                worker.run()
            except BaseException as error:  # raised again by the task's own thread
                if not worker.is_fenced:
                    worker.failure = error
            self._ended.put(worker)

        thread = threading.Thread(target=run, name="shoal-worker", daemon=True)
        self._workers.append(worker)
        self._threads[worker] = thread
        thread.start()

    def _copy_in_trouble(self, copies: Sequence[PartitionCopy]) -> None:
        """Go on with partitions that failed by themselves; from any worker's thread."""
        with self._starting:
            for copy in copies:
                leaders = self._leaders_of(copy)
                if leaders not in self._in_trouble:
                    self._in_trouble[leaders] = self._worker([], stays=True)
                    self._start(self._in_trouble[leaders])
                self._in_trouble[leaders].admit([copy])

    # The task's own thread

    def _wait_for_workers(self) -> None:
        """Wait until every worker has ended; report the broker that a stalled one waits for."""
        while self._threads:
            self._let_go_of_those_in_trouble()
            with suppress(queue.Empty):
                ended = self._ended.get(timeout=_LOOK_INTERVAL_S)
                with self._starting:
                    # A fenced worker may end all the same.
                    thread = self._threads.pop(ended, None)
                if thread is not None:
                    thread.join()
                    self._leave(ended)
            if any(worker.failure for worker in self._workers):
                for worker in list(self._threads):
                    worker.stop(Stop.SOON)
            elif not self._control.stop_requested:
                self._look_after_workers()
                continue
            self._hurry()

    def _let_go_of_those_in_trouble(self) -> None:
        """Stop the workers in trouble once no other worker can give them partitions."""
        with self._starting:
            in_trouble = set(self._in_trouble.values())
            if in_trouble.issuperset(self._threads):
                for worker in in_trouble:
                    worker.stop(Stop.WITHOUT_PARTITIONS)

    def _look_after_workers(self) -> None:
        for worker in list(self._threads):
            if worker.silent_for_s > self._timing.stalled_s:
                stuck = [copy for copy in list(worker.copies) if not copy.state.is_over]
                worker.report_again(stuck)
                reason = worker.waits_for()
                self._session.report(left_out_report({copy.source: reason for copy in stuck}))
        self._session.show_life()
        if self._session.ends_soon:
            if any(each.aligns for each in list(self._threads)):
                self._session.report(TaskReport(aligns=True))
            elif all(each.is_quiet for each in self._threads):
                self._session.report(TaskReport(is_idle=True))
        if not self._requested_rebalance and any(worker.needs_rebalance for worker in list(self._threads)):
            self._requested_rebalance = True
            self._session.report(TaskReport(assign_again=True))

    def _hurry(self) -> None:
        """After a request to end, give up the waits of workers that are stuck, align, or get no answer."""
        for worker in list(self._threads):
            if worker.is_stuck or worker.aligns or worker.silent_for_s > self._timing.end_patience_s:
                worker.stop(Stop.NOW)
            if worker.gave_up_for_s > self._timing.give_up_patience_s and not worker.commits:
                worker.stop(Stop.FENCED)
                with self._starting:
                    self._threads.pop(worker, None)

    def _leave(self, worker: LeaderPairWorker) -> None:
        """Report the partitions that the worker has ended in good order."""
        if leaves := worker.leaves():
            self._session.report(TaskReport(leaves=leaves))
