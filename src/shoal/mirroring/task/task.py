"""
What one task does: share its partitions out to carriers by their leaders, and tell the driver.

Each carrier has a thread, so that one that waits for a leader holds up no
other. Partitions that fail by themselves while others of the same leaders do
not are in trouble, and carried on by one carrier more.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...client.cluster import Cluster
from ...client.metadata import Metadata, leader_in
from ...errors import PartitionStopped, ShoalError
from ..control import Control, WorkerControl
from ..model.copy_options import CopySettings
from ..model.ranges import CopyRange
from ..model.reports import PartitionReport, TaskReport
from .partition import PartitionCopy
from .partition_state import State
from .reports import ProcessUse
from .worker import LeaderPairWorker, Stop

__all__ = ["TaskResult", "run_copy_task"]

#: Of the source and of the destination, by node id; None where there is none, or nobody knows.
_Leaders: TypeAlias = "tuple[int | None, int | None]"

#: The least that a carrier fetches into, where its lane has so much: one batch of max.message.bytes' default.
_LEAST_BUFFER_BYTES = 1024 * 1024

#: A carrier that hears nothing for so long is stuck; a fetch without data is answered in half a second.
_STALLED_S = 2.5

#: How long a carrier may hear nothing once an end was requested; then what it waits for is given up.
_END_PATIENCE_S = 2.5

#: And how long it may take after that, as in a connect that cannot be given up; then nobody waits for it.
_ABANDONED_PATIENCE_S = 1.0

#: A lane in which nothing happens says at least so often that it is there, and what it takes.
_SIGN_OF_LIFE_S = 15.0

#: So shortly before the end of a slice in which nothing happens, or something must not be interrupted, the
#: driver is told: it may prolong it.
_LAST_MOMENTS_S = 1.0

#: How often the task's own thread looks after the carriers.
_LOOK_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What became of a lane: the partitions that cannot go on, and whether all others are done."""

    stopped: tuple[PartitionStopped, ...]
    complete: bool


def run_copy_task(ranges: Sequence[CopyRange], settings: CopySettings, control: Control) -> TaskResult:
    """
    Copy ranges of partitions, whatever a former attempt has copied of them.

    Returns:
        When every partition is done or stopped, or an end was requested. All
        that was acknowledged is committed then, or handed over.

    Raises:
        Stopped: The driver is gone.
        ShoalError: The last commit failed.

    """
    return _Lane(ranges, settings, control).run()


class _Lane:
    def __init__(self, ranges: Sequence[CopyRange], settings: CopySettings, control: Control) -> None:
        self._settings = settings
        self._control = control
        self._process = ProcessUse()
        self._ranges = ranges
        self._known: tuple[Metadata | None, Metadata | None] = (None, None)
        self._buffer_bytes = settings.fetch_buffer_bytes
        self._carriers: list[LeaderPairWorker] = []
        self._in_trouble: dict[_Leaders, LeaderPairWorker] = {}
        self._threads: dict[LeaderPairWorker, threading.Thread] = {}
        self._ended: queue.SimpleQueue[LeaderPairWorker] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._reporting = threading.Lock()
        self._dealing_anew = False
        self._told_at = 0.0

    def run(self) -> TaskResult:
        self._report([], 0)  # the driver's clock starts here
        groups = self._share_out()
        if len(groups) > 1:
            share = self._settings.fetch_buffer_bytes // len(groups)
            self._buffer_bytes = max(share, min(self._settings.fetch_buffer_bytes, _LEAST_BUFFER_BYTES))
        for (_, in_trouble), copies in groups.items():
            if in_trouble:
                self._carry_in_trouble(copies)
            else:
                self._start(self._carrier(copies, give_away=self._carry_in_trouble))
        self._wait_for_carriers()
        for carrier in self._carriers:
            if carrier.failure is not None:
                raise carrier.failure
        copies = [
            copy
            for carrier in self._carriers
            for copy in carrier.copies
            if copy.state.current is not State.HANDED_ON
        ]
        self._leave()
        stopped = tuple(copy.state.stopped for copy in copies if copy.state.stopped)
        return TaskResult(stopped, complete=all(copy.state.is_over for copy in copies))

    # Carriers

    def _share_out(self) -> dict[tuple[_Leaders, bool], list[PartitionCopy]]:
        """Group the partitions by what may hold them up: their leaders, and whether they are in trouble."""
        handover = self._control.take([each.source for each in self._ranges])
        groups: dict[tuple[_Leaders, bool], list[PartitionCopy]] = defaultdict(list)
        with Cluster(self._settings.source) as source, Cluster(self._settings.destination) as destination:
            with suppress(ShoalError):  # the carriers try again, and say what is wrong
                source.refresh({each.source.topic for each in self._ranges})
                destination.refresh({each.destination.topic for each in self._ranges})
            self._known = source.known, destination.known
        for each in self._ranges:
            if each.source in handover.given_up:
                continue
            copy = PartitionCopy(
                each,
                self._settings,
                inherited=handover.left.get(each.source),
                waiting_for=handover.in_trouble.get(each.source),
            )
            leaders = self._leaders_of(copy)
            groups[leaders, copy.source in handover.in_trouble or None in leaders].append(copy)
        return groups

    def _leaders_of(self, copy: PartitionCopy) -> _Leaders:
        source, destination = self._known
        return leader_in(source, copy.source), leader_in(destination, copy.destination)

    def _carrier(
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
            buffer_bytes=self._buffer_bytes,
            report=self._report,
            give_away=give_away,
            stays=stays,
        )

    def _start(self, carrier: LeaderPairWorker) -> None:
        def run() -> None:
            try:
                carrier.run()
            except BaseException as error:  # raised again by the task's own thread
                if not carrier.is_disowned:
                    carrier.failure = error
            self._ended.put(carrier)

        thread = threading.Thread(target=run, name="shoal-carrier", daemon=True)
        self._carriers.append(carrier)
        self._threads[carrier] = thread
        thread.start()

    def _carry_in_trouble(self, copies: Sequence[PartitionCopy]) -> None:
        """Carry partitions on that failed by themselves. Called from any carrier's thread."""
        with self._starting:
            for copy in copies:
                leaders = self._leaders_of(copy)
                if leaders not in self._in_trouble:
                    self._in_trouble[leaders] = self._carrier([], stays=True)
                    self._start(self._in_trouble[leaders])
                self._in_trouble[leaders].admit([copy])

    # The task's own thread

    def _wait_for_carriers(self) -> None:
        """Wait until every carrier has ended; say what those wait for that do not move."""
        while self._threads:
            self._let_go_of_those_in_trouble()
            with suppress(queue.Empty):
                ended = self._ended.get(timeout=_LOOK_INTERVAL_S)
                with self._starting:
                    # One that nobody waited for any more may end all the same.
                    thread = self._threads.pop(ended, None)
                if thread is not None:
                    thread.join()
            if any(carrier.failure for carrier in self._carriers):
                for carrier in list(self._threads):
                    carrier.stop(Stop.SOON)
            elif not self._control.stop_requested:
                self._look_after_carriers()
                continue
            self._hurry()

    def _let_go_of_those_in_trouble(self) -> None:
        """Where nobody is left who could give them more, they end with their last partition."""
        with self._starting:
            in_trouble = set(self._in_trouble.values())
            if in_trouble.issuperset(self._threads):
                for carrier in in_trouble:
                    carrier.stop(Stop.WITHOUT_PARTITIONS)

    def _look_after_carriers(self) -> None:
        for carrier in list(self._threads):
            if carrier.unheard_s > _STALLED_S:
                stuck = [copy for copy in list(carrier.copies) if not copy.state.is_over]
                carrier.report_again(stuck)
                reason = carrier.waits_for()
                self._report([PartitionReport(copy.source, waiting_for=reason) for copy in stuck], 0)
        if time.monotonic() - self._told_at >= _SIGN_OF_LIFE_S:
            self._report([], 0)
        if self._control.remaining_s < _LAST_MOMENTS_S:
            if any(each.aligns for each in list(self._threads)):
                self._report([], 0, aligns=True)
            elif all(each.is_quiet for each in self._threads):
                self._report([], 0, is_idle=True)
        if not self._dealing_anew and any(carrier.could_be_dealt_anew for carrier in list(self._threads)):
            self._dealing_anew = True
            self._report([], 0, deal_anew=True)

    def _hurry(self) -> None:
        """An end was requested: give up what carriers wait for that are stuck, hear nothing, or take long."""
        for carrier in list(self._threads):
            if carrier.is_stuck or carrier.aligns or carrier.unheard_s > _END_PATIENCE_S:
                carrier.stop(Stop.NOW)
            if carrier.gave_up_for_s > _ABANDONED_PATIENCE_S and not carrier.commits:
                carrier.stop(Stop.DISOWNED)
                with self._starting:
                    self._threads.pop(carrier, None)

    def _leave(self) -> None:
        """Tell the driver where the next task can go on without asking."""
        left = [entry for carrier in self._carriers for entry in carrier.leaves()]
        if left:
            self._report([], 0, leaves=left)

    # Reporting

    def _report(self, partitions: Sequence[PartitionReport], bytes_in: int, **more: Any) -> None:
        """Report to the driver; from any thread."""
        with self._reporting:
            self._told_at = time.monotonic()
            process = self._process.report()
        self._control.report(TaskReport(partitions, bytes_in, process, **more))
