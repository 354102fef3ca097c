"""
A worker copies the partitions of one pair of leaders: it aligns them, and drives their copy loop.

A worker has a thread and connections of its own, so that a leader that stalls delays no other pair.
Each step of :meth:`LeaderPairWorker.run` does three things with the partitions that are due. It refreshes
metadata if leaders or topics may have changed, aligns those that are not aligned, and runs a copy loop.
After leaders have moved there is a loop for each pair of leaders, for a second in turn.
If time can heal an error, the partitions that it concerns wait, and the others continue. If a partition
fails while others of its loop do not, the task's worker for partitions in trouble gets it.

Three rules keep positions and records together:

- Whatever ends the worker, it commits everything acknowledged, unless the task has ended without it.
- After an interruption of the lease or of the group's membership, everything is aligned again, since another
  process may have written.
- A produce request does not outlive its worker: its connection is aborted on close.
"""

from __future__ import annotations

import enum
import math
import queue
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import chain

from ...client.cluster import Cluster, is_transient
from ...client.connection import Connection
from ...client.fetch import Fetcher
from ...client.scan import NoRecords
from ...errors import BrokerError, CorruptBatch, PartitionStopped, ProtocolError, ShoalError
from ...topic_partition import TopicPartition
from ..assignment import end_offsets
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from ..model.handover import InheritedPosition
from ..model.reports import TaskReport
from .committer import Commits, can_heal
from .copy_loop import CopyLoop
from .destination_leader import DestinationLeader
from .fresh_metadata import FreshMetadata
from .lost_range import end_deleted, end_deleted_source
from .partition import PartitionCopy
from .partition_state import PartitionState
from .reports import WorkerReports
from .resume import Watch, leader_epochs_of, resume_partitions, take_over
from .small_batches import SmallBatchesWatch
from .source_gaps import SourceGaps
from .throttle import Throttle

__all__ = ["LeaderPairWorker", "Stop"]

#: An alignment makes progress as long as brokers answer within this time.
_ANSWERED_S = 2.5


class WorkerPhase(enum.Enum):
    """The activity of a worker's thread."""

    #: Sends requests, and waits for brokers.
    WORKING = enum.auto()
    #: The same for an alignment, which may take minutes.
    ALIGNING = enum.auto()
    #: Waits until a partition is due.
    PAUSING = enum.auto()
    #: Commits for the last time, with a time limit of its own.
    ENDING = enum.auto()


class Stop(enum.Enum):
    """Ways to stop a worker, each more urgent than the one before."""

    #: As soon as it has no partitions left; only of one that waits for partitions that are given away.
    WITHOUT_PARTITIONS = enum.auto()
    #: As if the driver had requested it: finish what is in flight, and commit.
    SOON = enum.auto()
    #: The same, and give up whatever the thread waits for, except a commit, which takes seconds.
    NOW = enum.auto()
    #: Do nothing more: the task ends without the worker, and its partitions will be aligned again.
    FENCED = enum.auto()


class LeaderPairWorker:
    """
    Some of a task's partitions, in a thread.

    Attributes:
        copies: The partitions; those that were given away to another worker are over.
        failure: The error that ended :meth:`run`; None if none did.

    """

    def __init__(
        self,
        copies: Sequence[PartitionCopy],
        settings: CopySettings,
        control: WorkerControl,
        source: Cluster,
        destination: Cluster,
        *,
        known_at: float,
        buffer_bytes: int,
        report: Callable[[TaskReport], None],
        give_away: Callable[[Sequence[PartitionCopy]], None] | None = None,
        stays: bool = False,
    ) -> None:
        """
        Take over partitions, which :meth:`run` copies.

        Args:
            copies: The partitions, not aligned yet.
            control: This worker's own part of the control connection.
            source: The source cluster, for this worker's thread alone; closed at its end.
            destination: The destination cluster, for the same thread.
            known_at: The time at which the clusters' metadata were requested, on the monotonic clock.
            buffer_bytes: The size of the fetch buffer.
            report: Sends the driver reports of partitions, and the number of bytes fetched.
            give_away: Takes partitions that fail while the others go on. None: they stay.
            stays: Whether to wait for partitions that are admitted, also without any, until ``stop``.

        """
        self.copies = list(copies)
        self.failure: BaseException | None = None
        self._settings = settings
        self._timing = settings.timing
        self._control = control
        self._source = source
        self._destination = destination
        self._commits = Commits(settings, control, source.known)
        self._throttle = Throttle(control)
        self._gaps = SourceGaps(source, settings)
        self._buffer_bytes = buffer_bytes
        self._metadata = FreshMetadata(source, destination, known_at, settings.timing)
        self._report = report
        self._reports = WorkerReports(report, settings.timing)
        is_joining = settings.rebatch is not None
        self._small_batches = SmallBatchesWatch(math.inf if is_joining else settings.timing.small_batches_s)
        self._give_away = give_away
        self._admitted: queue.SimpleQueue[PartitionCopy] = queue.SimpleQueue()
        self._stays = stays
        self._looked_at = 0.0
        self._fetched_at = time.monotonic()
        self._loops = 0
        #: Destination leaders that took several batches in a request when they were queried last.
        self._multi_batch_leaders: set[int] = set()
        self._last_response_at = time.monotonic()
        self._phase = WorkerPhase.WORKING
        #: When the wait for brokers was given up, and what the worker waited for then.
        self._gave_up_at: float | None = None
        self._waited_for = ""

    # From any thread

    def admit(self, copies: Sequence[PartitionCopy]) -> None:
        """Give the running worker more partitions."""
        for copy in copies:
            self._admitted.put(copy)

    def stop(self, how: Stop) -> None:
        """Ask the worker to end, and return at once."""
        if how is Stop.WITHOUT_PARTITIONS:
            self._stays = False
        elif how is Stop.FENCED:
            self._control.fence()
        else:
            self._control.request_end()
            if how is Stop.NOW and self._gave_up_at is None:
                self._give_up()

    def _give_up(self) -> None:
        self._waited_for = self.waits_for()
        self._gave_up_at = time.monotonic()
        for connection in self._connections():
            if connection.in_flight:
                connection.abort()
        for cluster in (self._source, self._destination):
            cluster.abort_connecting()

    def report_again(self, copies: Sequence[PartitionCopy]) -> None:
        """Report all of these partitions next time, whether or not anything is new."""
        self._reports.forget(copies)

    @property
    def is_fenced(self) -> bool:
        """Whether the task ends without this worker."""
        return self._control.is_fenced

    @property
    def aligns(self) -> bool:
        """Whether it aligns partitions, and brokers respond: that may take minutes."""
        return self._phase is WorkerPhase.ALIGNING and self.silent_for_s < _ANSWERED_S

    @property
    def is_stuck(self) -> bool:
        """Whether all that is left to it waits for something: to wait for it, too, brings nothing."""
        unfinished = [copy for copy in list(self.copies) if not copy.state.is_over]
        return bool(unfinished) and all(copy.state.waiting_for for copy in unfinished)

    @property
    def commits(self) -> bool:
        """Whether the worker waits for a commit. Its outcome matters, and arrives within seconds."""
        return self._commits.is_waited_for

    @property
    def gave_up_for_s(self) -> float:
        """The seconds since :attr:`Stop.NOW`; 0 without it."""
        return time.monotonic() - self._gave_up_at if self._gave_up_at else 0.0

    @property
    def silent_for_s(self) -> float:
        """How long no broker has answered, while an answer is waited for."""
        if self._phase in {WorkerPhase.PAUSING, WorkerPhase.ENDING}:
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
                return f"the {cluster.name} cluster's broker {waited_for[0]} to answer"
        return "a broker to answer"

    @property
    def is_quiet(self) -> bool:
        """Whether all of its partitions stand where their logs end, and have for a while."""
        return time.monotonic() - self._fetched_at >= self._timing.quiet_s and all(
            copy.state.is_over or (copy.is_well and copy.next_offset >= copy.end_offset)
            for copy in list(self.copies)
        )

    @property
    def needs_rebalance(self) -> bool:
        """Whether healthy partitions share this worker with others that are not of their leaders."""
        if self._stays:
            return any(copy.is_well for copy in list(self.copies))
        return self._loops > 1

    def leaves(self) -> dict[TopicPartition, InheritedPosition | None]:
        """Return the positions for the next task, if this worker has ended in good order; see TaskReport."""
        if self.is_fenced or self.failure is not None:
            return {}
        left = {
            copy: self._left(copy)
            for copy in self.copies
            if copy.state.current is not PartitionState.HANDED_ON
        }
        return {copy.source: each for copy, each in left.items() if each or not copy.is_in_doubt}

    def _left(self, copy: PartitionCopy) -> InheritedPosition | None:
        if not copy.state.is_aligned or not copy.position or copy.state.stopped or copy.source_is_gone:
            return None
        return InheritedPosition(copy.position, copy.leader_epochs, copy.committed, copy.doubts)

    # Its own thread

    def run(self) -> None:
        """
        Copy until every partition is over, or an end is requested; then commit all that was acknowledged.

        Raises:
            Stopped: The driver is gone.
            ShoalError: The last commit failed.

        """
        with self._source, self._destination, self._commits, closing(self._gaps):
            try:
                while self._has_work and not self._control.stop_requested:
                    self._step()
                    self._wait_until_due()
            finally:
                self._take_admitted()  # they are not done
                # In any case, commit the positions of acknowledged batches.
                self._phase = WorkerPhase.ENDING
                self._commits.the_rest(self.copies, self._end_uncommitted)
                self._reports.send(self.copies)

    @property
    def _has_work(self) -> bool:
        # Checked in this order: another thread admits partitions first, and then lets this worker end.
        return self._stays or not self._admitted.empty() or bool(self._unfinished())

    def _unfinished(self) -> list[PartitionCopy]:
        return [copy for copy in self.copies if not copy.state.is_over]

    def _step(self) -> None:
        self._last_response_at = time.monotonic()
        self._take_admitted()
        if self._control.begin():
            # Another process may have had the group, and written.
            for copy in self._unfinished():
                copy.lose_track()
                copy.forget_group(self._control.generation)
        due = [copy for copy in self._unfinished() if copy.state.is_due]
        self._attempt(self._check_lease, due)
        self._attempt(self._refresh, due)
        end_deleted(due, self._metadata, self._settings)
        due = [copy for copy in due if not copy.state.is_over]
        self._attempt(self._align, [copy for copy in due if not copy.state.is_aligned])
        groups = list(self._by_leaders(due).values())
        self._loops = len(groups)
        in_loops = set(chain.from_iterable(groups))
        for copies in groups:
            self._attempt(self._look_before_a_loop, copies)
            same = [copy for copy in copies if copy.state.is_aligned and copy.state.is_due]
            self._attempt(partial(self._copy, in_loops=in_loops, alone=len(groups) == 1), same)
        self._reports.now_and_then(self.copies)

    def _end_uncommitted(self) -> None:
        """End partitions whose position cannot be committed, since their source topic was deleted."""
        refused = [
            copy
            for copy in self.copies
            if copy.commit_waits_for
            and not copy.range.is_open
            and not copy.state.stopped
            and copy.state.refusal is None  # it stops for that
            and copy.state.current is not PartitionState.HANDED_ON
        ]
        if not refused:
            return
        with suppress(ShoalError):
            self._metadata.refresh_source(refused)
            for copy in refused:
                end_deleted_source(copy, self._metadata, self._settings)

    def _take_admitted(self) -> None:
        while not self._admitted.empty():
            self.copies.append(self._admitted.get())
            self._metadata.is_stale = True

    def _check_lease(self, copies: Sequence[PartitionCopy]) -> None:
        self._control.check_lease()

    def _attempt(
        self, work: Callable[[Sequence[PartitionCopy]], None], copies: Sequence[PartitionCopy]
    ) -> None:
        """Run a step for partitions; if it fails for a transient reason, they wait."""
        if not copies or self._control.stop_requested:
            return
        try:
            work(copies)
        except ShoalError as error:
            if not can_heal(error) and not isinstance(error, ProtocolError):
                raise
            self._metadata.is_stale = True
            # They come back together: each by itself would have a copy loop of its own.
            delay_s = max(copy.state.next_delay_s() for copy in copies)
            # An error after giving up is of the worker's own making: reports have what it waited for.
            reason = self._waited_for if self._gave_up_at else str(error)
            for copy in copies:
                if not copy.state.is_over:
                    copy.wait(reason, delay_s)

    def _wait_until_due(self) -> None:
        waiting = self._unfinished()
        if not waiting and not self._stays:
            return
        now = time.monotonic()
        admission_s = self._timing.admission_s
        delay_s = max(0.0, min((copy.state.retry_at for copy in waiting), default=now + admission_s) - now)
        if self._stays:
            delay_s = min(delay_s, admission_s)
        elif delay_s >= self._timing.report_interval_s:
            self._reports.send(self.copies)  # with the reasons of waiting partitions
        self._phase = WorkerPhase.PAUSING
        self._control.wait(delay_s)
        self._phase = WorkerPhase.WORKING
        with suppress(BrokerError):
            self._control.check_lease()  # without a lease there is nothing to wait for

    # Aligning

    def _refresh(self, due: Sequence[PartitionCopy]) -> None:
        """Refresh the metadata if leaders or topics may have changed."""
        if self._metadata.is_old or any(copy.state.current is PartitionState.UNALIGNED for copy in due):
            self._metadata.refresh(self._unfinished())

    def _look_before_a_loop(self, copies: Sequence[PartitionCopy]) -> None:
        """Refresh the metadata if a topic may have been created again since nothing was fetched."""
        if self._metadata.is_old:
            self._metadata.refresh(self._unfinished())

    def _align(self, copies: Sequence[PartitionCopy]) -> None:
        copies = [copy for copy in copies if copy.state.is_due]
        self._commits.settle()
        for copy in copies:
            self._commits.inherit_doubts(copy)
        for copy, left in take_over(copies, self._source, self._destination, self._settings):
            if left.committed is not None:
                copy.keep_commit(left.committed)
        copies = [copy for copy in copies if not copy.state.is_aligned]
        if not copies:
            return
        self._phase = WorkerPhase.ALIGNING
        began_at = time.monotonic()
        try:
            watch = Watch(
                lambda: self._control.stop_requested,
                self._report_waiting,
                lambda: self._reports.send(self.copies),
            )
            errors = resume_partitions(
                copies, self._source, self._destination, self._commits, self._settings, watch
            )
        finally:
            self._phase = WorkerPhase.WORKING
        took_s = time.monotonic() - began_at
        self._metadata.is_stale = bool(errors)
        for copy in copies:
            error = errors.get(copy.source)
            if error is None or not is_transient(error):
                # An outage counts: a refusal after it has a cause of its own.
                copy.suspicions.disregard(took_s)
            elif isinstance(error, NoRecords):
                copy.suspicions.prolong(took_s)
            if isinstance(error, PartitionStopped):
                copy.stop_with(error)
            elif isinstance(error, NoRecords):
                self._gaps.take_failed_read(copy, error)
            elif error is not None and is_transient(error):
                copy.wait(str(error))
            elif isinstance(error, CorruptBatch | ProtocolError):
                copy.suspect(copy.next_offset, str(error))
            elif error is not None:
                copy.stop(str(error))
            else:
                if copy.next_offset >= copy.end_offset:
                    copy.state.report_waiting(None)  # else the next batch has to be acknowledged first
                copy.keep_leader_epochs(leader_epochs_of(copy, self._source, self._destination))
        self._end_with_the_logs(copies)
        if any(copy.counters.incidents for copy in copies):
            self._reports.send(self.copies)

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

    # Copying

    def _by_leaders(self, due: Sequence[PartitionCopy]) -> dict[tuple[int, int, bool], list[PartitionCopy]]:
        """Group partitions by their leaders on both sides, and by whether several batches can be sent."""
        groups: dict[tuple[int, int, bool], list[PartitionCopy]] = defaultdict(list)
        for copy in due:
            if not copy.state.is_aligned or copy.state.is_over or not copy.state.is_due:
                continue
            try:
                source_leader, destination_leader = self._metadata.leaders_of(copy)
                multi_batch = destination_leader in self._multi_batch_leaders and copy.sequence_is_offset
                groups[source_leader, destination_leader, multi_batch].append(copy)
            except ShoalError as error:
                self._metadata.is_stale = True
                copy.lose_track()
                copy.wait(str(error))
        return groups

    def _copy(
        self, copies: Sequence[PartitionCopy], *, in_loops: Collection[PartitionCopy], alone: bool
    ) -> None:
        """Run the copy loop of one pair of leaders until nothing is left to fetch, or others have a turn."""
        source_leader, destination_leader = self._metadata.leaders_of(copies[0])
        ends_turn = self._turn_rule(copies, in_loops, alone=alone)
        with (
            closing(self._connect_fetcher(source_leader)) as fetcher,
            closing(
                DestinationLeader.of(self._destination, destination_leader, copies, self._multi_batch_leaders)
            ) as leader,
            CopyLoop(
                copies,
                fetcher,
                leader,
                source=self._source,
                destination=self._destination,
                settings=self._settings,
                control=self._control,
                throttle=self._throttle,
                gaps=self._gaps,
                commits=self._commits,
                small_batches=self._small_batches,
            ) as loop,
        ):
            loop.send_fetch()
            while not self._control.stop_requested:
                if loop.is_held:
                    self._wait_for_throttle(loop, ends_turn)
                if not loop.is_waiting:
                    break
                response = loop.receive()
                if loop.was_away:
                    self._metadata.refresh(self._unfinished())
                    loop.drop_lost(copies)
                turn = loop.take(response)
                loop.produce_slices(turn)
                # The next fetch is on its way while this one is produced.
                if not (self._control.stop_requested or turn.is_last or ends_turn()):
                    loop.send_fetch()
                if unsent := loop.long_unsent(turn):
                    self._metadata.refresh_destination(unsent)
                    loop.drop_lost(unsent)
                loop.produce(turn)
                self._progress(turn.fetched_bytes)

    def _wait_for_throttle(self, loop: CopyLoop, ends_turn: Callable[[], bool]) -> None:
        """Wait until the throttle lets the loop fetch, or the loop ends; commit and report meanwhile."""
        until = time.monotonic() + self._timing.longest_hold_s
        self._phase = WorkerPhase.PAUSING
        try:
            while loop.is_held and not self._control.stop_requested:
                self._control.check_lease()
                self._progress(0)
                if ends_turn() or time.monotonic() >= until:
                    return
                self._throttle.wait(self._timing.hold_look_s)
                loop.send_fetch()
        finally:
            self._phase = WorkerPhase.WORKING

    def _connect_fetcher(self, node_id: int) -> Fetcher:
        return Fetcher(
            self._source.connect(node_id),
            buffer_bytes=self._buffer_bytes,
            isolation_level=self._settings.source.isolation_level,
            max_wait_ms=self._timing.fetch_max_wait_ms,
            timing=self._timing,
        )

    def _turn_rule(
        self, copies: Sequence[PartitionCopy], in_loops: Collection[PartitionCopy], *, alone: bool
    ) -> Callable[[], bool]:
        """Return the rule that ends a loop: its turn is over, or a partition that waits is due again."""
        until = time.monotonic() + self._timing.turn_s
        looked_at = 0.0
        # The pause of one that is in no loop may end before this loop begins.
        outside = [
            copy
            for copy in self._unfinished()
            if copy not in in_loops or not (copy.state.is_aligned and copy.state.is_due)
        ]

        def ends_turn() -> bool:
            nonlocal looked_at
            now = time.monotonic()
            if not alone and now >= until:
                return True
            if not self._admitted.empty():
                return True
            if now - looked_at < self._timing.look_interval_s:
                return False
            looked_at = now
            failed = (copy for copy in copies if not copy.state.is_aligned)
            return any(not copy.state.is_over and copy.state.is_due for copy in chain(outside, failed))

        return ends_turn

    def _progress(self, fetched_bytes: int) -> None:
        """Commit and report from time to time; nothing is in flight."""
        now = time.monotonic()
        if self._give_away and now - self._looked_at >= self._timing.look_interval_s:
            self._looked_at = now
            self._give_away_failed(self._give_away)
        self._commits.now_and_then(self.copies, now)
        if fetched_bytes:
            self._fetched_at = now
        self._reports.fetched_bytes += fetched_bytes
        self._reports.now_and_then(self.copies)
        if found := self._small_batches.take_finding():
            self._report(TaskReport(small_batches=found))

    def _give_away_failed(self, give_away: Callable[[Sequence[PartitionCopy]], None]) -> None:
        """Give partitions away that failed while others did not: they must not delay those."""
        # One whose commit is under way stays until that is over: it must not overtake the next worker's.
        failed = [
            copy
            for copy in self.copies
            if not copy.state.is_aligned and not copy.state.is_over and not self._commits.is_under_way(copy)
        ]
        if failed and len(failed) < len(self._unfinished()):
            handed_on = [copy.hand_on() for copy in failed]
            self._reports.send(self.copies)  # before their new worker does
            give_away(handed_on)
