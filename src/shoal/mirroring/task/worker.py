"""
A worker is a thread of a copy task that has some of its partitions, and connections of its own.

There are two sorts. An :class:`.Aligner` has partitions that wait or are aligned, a :class:`.Pair` those that
are copied. A partition has one worker at a time: it is passed on, and only its worker changes it. So a broker
that stalls delays the partitions of one pair of leaders, and an alignment delays no copying.

Three rules keep positions and records together:

- Whatever ends a worker, it commits everything that its partitions have acknowledged.
- A partition is passed on without a commit under way, so a later one cannot be overtaken.
- A produce request does not outlive its worker: its connection is aborted on close.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from ...client.cluster import Cluster
from ...client.connection import Connection
from ...errors import BrokerError, ProtocolError, ShoalError
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from ..model.reports import Assigned, Left, TaskReport
from .committer import Commits, can_heal
from .fresh_metadata import FreshMetadata, Known
from .partition import PartitionCopy
from .partition_state import PartitionState
from .reports import WorkerReports

__all__ = ["Surroundings", "Worker"]

#: Gives partitions to another worker, with the metadata by which it is chosen.
PassOn: TypeAlias = "Callable[[Sequence[PartitionCopy], Known], None]"


@dataclass(frozen=True)
class Surroundings:
    """
    A worker's connections to its task.

    Attributes:
        settings: The mirror's settings.
        control: This worker's own part of the control connection.
        known: The metadata to begin with.
        report: Sends reports to the driver.
        pass_on: Takes partitions that the worker does not keep.

    """

    settings: CopySettings
    control: WorkerControl
    known: Known
    report: Callable[[TaskReport], None]
    pass_on: PassOn


class Worker(ABC):
    """
    Some of a task's partitions, in a thread.

    Attributes:
        copies: The partitions that it has begun with; those that are passed on are not among them.
        failure: The error that ended :meth:`run`; None if none did.

    """

    def __init__(self, around: Surroundings) -> None:
        """Prepare a worker without partitions; see :meth:`admit`."""
        settings, control, known = around.settings, around.control, around.known
        self.copies: Sequence[PartitionCopy] = []
        self.failure: BaseException | None = None
        self._settings = settings
        self._timing = settings.timing
        self._control = control
        self._source = Cluster(settings.source, known.source)
        self._destination = Cluster(settings.destination, known.destination)
        self._metadata = FreshMetadata(self._source, self._destination)
        self._commits = Commits(settings, control, known.source)
        self._reports = WorkerReports(around.report, settings.timing)
        self._report = around.report
        self._pass_on = around.pass_on
        self._admitting = threading.Lock()
        self._admitted: list[PartitionCopy] = []
        self._is_closed = False
        #: The document by which nothing more is to be left; None if that has to be looked up.
        self._kept: Mapping[TopicPartition, Assigned] | None = None
        self._last_response_at = time.monotonic()
        #: Whether its thread waits for no broker, or only for a commit, which has a time limit of its own.
        self._is_pausing = False
        #: The broker that it waited for when the task gave that up, until the failure is reported.
        self._gave_up: str | None = None

    # From any thread

    def admit(self, copies: Sequence[PartitionCopy]) -> bool:
        """Give the worker partitions; return False if it is about to end, and takes no more."""
        with self._admitting:
            if not self._is_closed:
                self._admitted.extend(copies)
            return not self._is_closed

    def request_end(self) -> None:
        """Ask the worker to finish what is in flight, to commit and to end; return at once."""
        self._control.request_end()

    def give_up(self) -> None:
        """Let the requests in flight fail, and attempts to connect; not a commit, which takes seconds."""
        waiting = [connection for connection in self._connections() if connection.in_flight]
        if waiting:
            self._gave_up = self.waits_for()
        for connection in waiting:
            connection.abort()
        for cluster in (self._source, self._destination):
            cluster.abort_connecting()

    @property
    def held(self) -> Sequence[PartitionCopy]:
        """Its partitions, also those that its thread has not begun with."""
        with self._admitting:
            return [*self.copies, *self._admitted]

    @property
    def silent_for_s(self) -> float:
        """How long no broker has answered, while an answer is waited for."""
        if self._is_pausing:
            return 0.0
        return time.monotonic() - max(
            self._last_response_at, *(each.last_response_at for each in self._connections()), 0.0
        )

    def _connections(self) -> list[Connection]:
        """Return those that something may be waited for on; the coordinator's has a time-out of its own."""
        return [*self._source.open, *self._destination.open]

    def waits_for(self) -> str:
        """Return the broker whose response is awaited."""
        for cluster in (self._destination, self._source):
            waited_for = [connection.address for connection in cluster.open if connection.in_flight]
            if cluster.connecting is not None:
                waited_for.append(cluster.connecting)
            if waited_for:
                return f"{cluster.config.broker_at(waited_for[0])} to answer"
        return "a broker to answer"

    def leaving(self, copies: Sequence[PartitionCopy]) -> TaskReport:
        """Return the report that this task writes partitions no more, of which nothing is in flight."""
        return TaskReport(leaves={copy.source: self._left(copy) for copy in copies})

    def _left(self, copy: PartitionCopy) -> Left:
        if self.failure is not None:
            return Left(copy.entry, is_settled=False)
        is_done = copy.state.current is PartitionState.DONE
        return Left(copy.entry, is_settled=not copy.progress.doubts, is_done=is_done)

    @property
    def is_leaving(self) -> bool:
        """Whether the newest document lacks a partition that the worker has; for any thread."""
        return self._control.driver.assignment is not self._kept and any(
            not self._is_assigned(copy) for copy in self.copies
        )

    def _is_assigned(self, copy: PartitionCopy) -> bool:
        assigned = self._control.driver.assignment.get(copy.source)
        return assigned is not None and assigned.entry == copy.entry

    # Its own thread

    def run(self) -> None:
        """
        Work until no partition is left to do, or an end is requested; then commit all that was acknowledged.

        Raises:
            Stopped: The driver is gone.
            ShoalError: The last commit failed.

        """
        with self._source, self._destination, self._commits:
            try:
                self._work()
            finally:
                self._close()
                # In any case, commit the positions of acknowledged batches.
                self._is_pausing = True
                self._commits.the_rest(self.copies)
                self._reports.send(self.copies)

    @abstractmethod
    def _work(self) -> None:
        """Work until nothing is left to do, or an end is requested."""

    def _unfinished(self) -> list[PartitionCopy]:
        return [copy for copy in self.copies if not copy.state.is_over]

    def _take_admitted(self) -> list[PartitionCopy]:
        """Add the admitted partitions to the others; return them."""
        with self._admitting:
            admitted, self._admitted = self._admitted, []
            # Replaced, not changed: other threads read it.
            self.copies = [*self.copies, *admitted]
        if admitted:
            self._kept = None
        return admitted

    def _close(self) -> None:
        """Admit nothing more."""
        with self._admitting:
            self._is_closed = True
        self._take_admitted()

    def _has_ended(self) -> bool:
        """Whether an end is requested, or nothing is left to do; then nothing more is admitted."""
        if self._control.stop_requested:
            return True
        if not all(copy.state.is_over for copy in self.copies):
            return False
        with self._admitting:
            self._is_closed = not self._admitted
            return self._is_closed

    def _pass(self, copies: Sequence[PartitionCopy]) -> None:
        """Pass partitions on."""
        if copies:
            self._let_go(copies)
            self._pass_on(copies, self._metadata.known)

    def _let_go(self, copies: Sequence[PartitionCopy]) -> None:
        self._reports.send(self.copies)  # before their next worker does
        gone = set(copies)
        with self._admitting:
            self.copies = [copy for copy in self.copies if copy not in gone]

    def _take_left(self) -> list[PartitionCopy]:
        """Return the partitions that the newest document lacks, with their positions committed."""
        assignment = self._control.driver.assignment
        if assignment is self._kept:
            return []
        self._kept = assignment
        lacking = [copy for copy in self.copies if not self._is_assigned(copy)]
        if lacking:
            self._commits.settle(lacking)
        return lacking

    def _leave(self, copies: Sequence[PartitionCopy]) -> None:
        """Report that this task writes partitions no more; nothing of them is in flight."""
        if copies:
            self._let_go(copies)
            self._report(self.leaving(copies))

    def _hold_up(self, copies: Sequence[PartitionCopy], error: ShoalError) -> None:
        """
        Let partitions wait for the end of an error, to be aligned again.

        Raises:
            ShoalError: The error, if time does not heal it.

        """
        if not can_heal(error) and not isinstance(error, ProtocolError):
            raise error
        # They come back together, in one alignment.
        delay_s = max((copy.state.next_delay_s() for copy in copies), default=0.0)
        # An error after giving up is of the worker's own making: reports have what it waited for.
        reason, self._gave_up = self._gave_up or str(error), None
        for copy in copies:
            copy.wait(reason, delay_s)

    def _pause(self, seconds: float, wait: Callable[[float], None] | None = None) -> None:
        """Wait, by default until the driver requests a stop or is gone."""
        self._is_pausing = True
        (wait or self._control.driver.wait)(seconds)
        self._is_pausing = False
        self._last_response_at = time.monotonic()
        with suppress(BrokerError):
            self._control.check_lease()  # without a lease there is nothing to wait for
