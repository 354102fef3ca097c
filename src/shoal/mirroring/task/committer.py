"""
Commits of a worker's positions, beside the copying.

A coordinator that does not answer delays no copying: commits have a thread and connections of their own.
One commit is under way at a time. Each has everything acknowledged by then, so the next one covers one that
failed. A commit of unknown outcome may take effect after the next one, as from a coordinator that was paused.
So what its map does not lead to is not sent, until the group has a new generation: the coordinator refuses
the late commit then. The driver is asked for one as soon as a partition has to wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import NamedTuple, Self

from ...client.cluster import Cluster, is_transient, patiently
from ...client.coordinator import JOIN_AGAIN, MemberId
from ...client.metadata import Metadata
from ...error_codes import ErrorCode
from ...errors import BrokerError, Disconnected, ShoalError, Stopped
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from ..model.position import MirrorPosition
from ..positions import GroupOffsets, GroupPositions
from .partition import PartitionCopy
from .partition_state import PartitionState

__all__ = ["Commits", "can_heal"]

#: A partition without gaps may continue with any number of doubts. But each is kept.
_MOST_DOUBTS = 4

#: The coordinator appends a commit before it waits for its followers (``GroupMetadataManager.storeOffsets``).
#: It answers with one of these if they are late, or if it is no leader any more.
_PERHAPS_COMMITTED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class _Channel:
    """
    A connection to the group's coordinator, with a thread that sends one request after the other.

    Attributes:
        generation: The generation of the newest commit that was sent, or may have been.

    """

    def __init__(self, settings: CopySettings, control: WorkerControl, known: Metadata | None) -> None:
        self.coordinator = Cluster(settings.source.impatient(), known)
        self.positions = GroupPositions(self.coordinator, settings.group, self._membership)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="shoal-commit")
        self.generation = control.driver.generation
        self._control = control
        self._is_given_up = False

    def _membership(self) -> MemberId:
        """Return the member that commits now; in the thread."""
        member = self._control.driver.membership()
        # Read second: if a generation has begun in between, a doubt lasts until the one after it.
        self.generation = self._control.driver.generation
        if self._is_given_up:  # asked last, so that the generation is that of whatever is sent
            raise Stopped("the commit was given up before it was sent")
        return member

    def give_up(self) -> None:
        """Send no further commit; the last one may still take effect."""
        self._is_given_up = True
        self.coordinator.abort()
        self.close()

    def close(self) -> None:
        """Close the connection after the thread's present request, which may wait for a silent host."""
        self.thread.submit(self.coordinator.close)
        self.thread.shutdown(wait=False)


class _UnderWay(NamedTuple):
    """A commit without an outcome yet."""

    positions: Mapping[PartitionCopy, MirrorPosition]
    outcome: Future[Mapping[TopicPartition, ShoalError]]
    since: float


class Commits:
    """
    The commits of a worker's positions.

    A context manager, for one thread.
    """

    def __init__(self, settings: CopySettings, control: WorkerControl, known: Metadata | None) -> None:
        self._settings = settings
        self._timing = settings.timing
        self._control = control
        self._channel = _Channel(settings, control, known)
        self._under_way: _UnderWay | None = None
        self._began_at = time.monotonic()
        self._next_plan_at = 0.0
        self._is_last = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._channel.close()

    def is_under_way(self, copy: PartitionCopy) -> bool:
        """Whether a commit of the partition is in flight."""
        return self._under_way is not None and copy in self._under_way.positions

    # An alignment, which begins without a commit under way (QUIET)

    def settle(self, copies: Iterable[PartitionCopy] = ()) -> None:
        """
        End the commit under way, and commit some partitions, as long as a coordinator takes that is well.

        A commit that is under way for longer has an unknown outcome.
        """
        with suppress(ShoalError):
            if self._await():
                self._begin(self._positions_of(copies))
            if not self._await():
                self._end(time.monotonic(), gives_up=True)

    def read_state(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """Return the committed offsets of some partitions."""
        return self._channel.thread.submit(self._channel.positions.read_state, list(partitions)).result()

    def commit_aligned(
        self, positions: Mapping[PartitionCopy, MirrorPosition]
    ) -> Mapping[TopicPartition, ShoalError]:
        """
        Commit the positions that partitions are about to go on from, and keep the outcome in them.

        Returns:
            The partitions whose position was refused, with the error.

        Raises:
            ShoalError: No position is known to be committed.

        """
        self._begin(positions)
        refused = self._take(time.monotonic() + self._timing.last_commit_patience_s, gives_up=True)
        return {copy.source: error for copy, error in (refused or {}).items()}

    # The copying

    def unplanned(self, copies: Iterable[PartitionCopy]) -> list[PartitionCopy]:
        """Return the partitions whose queue the committed maps do not lead to."""
        generation = self._control.driver.generation
        return [copy for copy in copies if not copy.progress.is_planned(generation)]

    def plan(self, copies: Sequence[PartitionCopy]) -> None:
        """
        Commit the maps of such partitions, and wait for it as long as a coordinator takes that is well.

        A partition whose map is not committed then waits, and is aligned again.

        Raises:
            ShoalError: The commit failed for good.

        """
        # One at a time; it may have been the one that is wanted.
        if self._await() and (ahead := self.unplanned(copies)):
            time.sleep(max(0.0, self._next_plan_at - time.monotonic()))
            self._next_plan_at = time.monotonic() + self._timing.plan_interval_s
            self._begin(self._positions_of(ahead))
            self._await()
        unplanned = self.unplanned(copies)
        if any(copy.progress.doubts and not self.is_under_way(copy) for copy in unplanned):
            self._control.driver.begin_generation()
        for copy in unplanned:
            refusal = "the group to refuse an earlier commit of unknown outcome"
            coordinator = "the group's coordinator to take its map"
            copy.wait(copy.commit_waits_for or (refusal if copy.progress.doubts else coordinator))

    def now_and_then(self, copies: Iterable[PartitionCopy], now: float) -> None:
        """Commit without waiting for it, at the interval of the settings."""
        # The next commit, or the last, covers one that fails; a group that is
        # lost for good ends the lease.
        with suppress(ShoalError):
            self._end(now)
        if now - self._began_at >= self._timing.commit_interval_s and self._under_way is None:
            # A waiting partition is aligned without a commit under way.
            self._begin(
                self._positions_of(
                    copy for copy in copies if copy.state.current is not PartitionState.WAITING
                )
            )
            self._began_at = now

    def the_rest(self, copies: Iterable[PartitionCopy]) -> None:
        """
        Commit all that was acknowledged, and wait for it.

        If the driver requested the end, the commit has less time, and may fail for a reason that time can
        heal: the next task, or the next start, resumes by the map. The position of a topic that was deleted
        meanwhile is of no use.

        Raises:
            Stopped: The driver is gone.
            ShoalError: The commit failed.

        """

        def pause(seconds: float) -> None:
            # Not the control's wait, which returns at once after a request to end.
            self._control.check_lease()
            time.sleep(seconds)

        is_asked_to, timing = self._control.stop_requested, self._timing
        patience_s = timing.requested_commit_patience_s if is_asked_to else timing.last_commit_patience_s
        give_up_at = time.monotonic() + patience_s

        def commit() -> None:
            with suppress(ShoalError):
                self._end(give_up_at, gives_up=True)  # if it failed, the next one has its positions, too
            self._begin(self._positions_of(copies))
            self._end(give_up_at, gives_up=True)

        self._is_last = True
        try:
            patiently(commit, patience_s=patience_s, pause=pause, can_heal=can_heal)
        except ShoalError as error:
            if not is_asked_to or not can_heal(error):
                raise
        finally:
            self._is_last = False

    # One commit

    def _positions_of(self, copies: Iterable[PartitionCopy]) -> dict[PartitionCopy, MirrorPosition]:
        """Return the positions that are not committed, as milestones of their maps."""
        return {
            copy: position
            for copy in copies
            if not copy.source_is_gone
            # After an interruption, another process may have committed a newer one.
            and (copy.state.is_aligned or copy.progress.committed is not None)
            and (copy.progress.doubts or copy.progress.committed != copy.position)
            and (position := copy.progress.to_commit())
        }

    def _begin(self, positions: Mapping[PartitionCopy, MirrorPosition]) -> None:
        if positions:
            sent = {copy.source: position for copy, position in positions.items()}
            outcome = self._channel.thread.submit(self._channel.positions.commit, sent)
            self._under_way = _UnderWay(dict(positions), outcome, time.monotonic())

    def _await(self) -> bool:
        """
        Wait a little for the commit under way, if there is one; return whether none is any more.

        Its partitions keep an error that time can heal.

        Raises:
            ShoalError: The commit failed for good.

        """
        try:
            since = 0.0 if self._under_way is None else self._under_way.since
            return self._end(since + self._timing.plan_patience_s)
        except ShoalError as error:
            if not can_heal(error):
                raise
            return True

    def _end(self, until: float, *, gives_up: bool = False) -> bool:
        """
        Take the outcome of the commit under way, if there is one; stop what cannot be committed.

        Returns:
            Whether no commit is under way any more.

        Raises:
            ShoalError: The commit failed, or that of some partition, and time may heal it.

        """
        refused = self._take(until, gives_up=gives_up)
        for copy, error in (refused or {}).items():
            if not is_transient(error) and not copy.state.stopped:
                copy.stop(str(error))
        for error in (refused or {}).values():
            if is_transient(error):
                raise error
        return refused is not None

    def _take(self, until: float, *, gives_up: bool) -> Mapping[PartitionCopy, ShoalError] | None:
        """
        Wait for the outcome, and keep it in the partitions.

        Args:
            until: The end of the wait, on the monotonic clock.
            gives_up: Whether the commit is given up then. It may still take effect.

        Returns:
            The partitions whose position was refused, with the error. None if it is still under way.

        """
        if self._under_way is None:
            return {}
        positions, outcome, _ = self._under_way
        is_done = bool(wait([outcome], timeout=max(0.0, until - time.monotonic())).done)
        if not is_done and not gives_up:
            return None
        self._under_way = None
        if not is_done:
            # Another one is not queued behind it, nor sent in another generation.
            self._channel.give_up()
            self._doubt(positions)
            self._channel = _Channel(self._settings, self._control, self._channel.coordinator.known)
            raise Disconnected(self._settings.source.servers, "the group's coordinator does not answer")
        try:
            return self._keep(positions, outcome.result())
        except ShoalError as error:
            code = error.code if isinstance(error, BrokerError) else None
            if not isinstance(error, Stopped) and (code is None or code in _PERHAPS_COMMITTED):
                self._doubt(positions)
            for copy in positions:
                copy.commit_waits_for = str(error)
            raise

    def _keep(
        self,
        positions: Mapping[PartitionCopy, MirrorPosition],
        refused: Mapping[TopicPartition, ShoalError],
    ) -> Mapping[PartitionCopy, ShoalError]:
        errors: dict[PartitionCopy, ShoalError] = {}
        for copy, position in positions.items():
            error = refused.get(copy.source)
            if error is None:
                copy.keep_commit(position)
                continue
            code = error.code if isinstance(error, BrokerError) else None
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._is_last:
                copy.lose_source()
                continue
            # An alignment needs the whole map of a run before: a shorter one would lead to less.
            may_be_shorter = len(position.plan) > 1 and copy.state.current is not PartitionState.ALIGNING
            if code is ErrorCode.OFFSET_METADATA_TOO_LARGE and may_be_shorter:
                copy.progress.plan_less()
                copy.refetch()
                error = Disconnected(self._settings.source.servers, f"fewer runs fit into a commit: {error}")
            copy.commit_waits_for = str(error)
            errors[copy] = error
        return errors

    def _doubt(self, positions: Mapping[PartitionCopy, MirrorPosition]) -> None:
        """Keep maps whose commit has an unknown outcome."""
        for copy, position in positions.items():
            copy.progress.doubt(position, self._channel.generation)
            if copy.progress.doubts > _MOST_DOUBTS:
                self._control.driver.begin_generation()


def can_heal(error: ShoalError) -> bool:
    """Whether to retry: transient errors, and errors that the driver resolves by a new rebalance."""
    # A position's commit has a retention time, and so no instance id. If another process has begun as the
    # same mirror, the commit gets UNKNOWN_MEMBER_ID, as after a lost session. A task joins nothing. The
    # driver's Heartbeat has the instance id: it gets FENCED_INSTANCE_ID, and ends the mirror and its lease.
    return is_transient(error) or (isinstance(error, BrokerError) and error.code in JOIN_AGAIN)
