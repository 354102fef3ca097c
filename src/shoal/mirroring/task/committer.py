"""
Commits of a worker's positions, beside the copying.

A coordinator that does not answer delays no copying: commits have a thread and connections of their own.
One commit is under way at a time. Each has everything acknowledged by then, so the next one covers one that
failed. A commit of unknown outcome may take effect after the next one, as from a coordinator that was paused.
So what its map does not lead to is not sent, until the group has a new generation: the coordinator refuses
the late commit then. The driver is asked for one as soon as a partition has to wait for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Self

from ...client.cluster import Cluster, is_transient, patiently
from ...client.coordinator import JOIN_AGAIN, MemberId
from ...client.metadata import Metadata
from ...error_codes import ErrorCode
from ...errors import BrokerError, Disconnected, ShoalError, Stopped
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from ..model.position import MirrorPosition
from ..positions import GroupPositions, PositionsInThread
from .partition import PartitionCopy
from .partition_state import PartitionState

__all__ = ["Commits", "can_heal"]

#: A partition without gaps may continue with any number of doubts. But each is kept.
_MOST_DOUBTS = 4

#: The coordinator appends a commit before it waits for its followers, and answers with one of these if they
#: are late (``GroupMetadataManager.storeOffsets``).
_PERHAPS_COMMITTED = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR}
)


class _Channel:
    """A connection to the group's coordinator, with a thread that sends one request after the other."""

    def __init__(self, settings: CopySettings, control: WorkerControl, known: Metadata | None) -> None:
        self.coordinator = Cluster(settings.source.impatient(), known)
        self.positions = PositionsInThread(GroupPositions(self.coordinator, settings.group, self._membership))
        self._control = control
        self._generation = control.generation
        self._is_given_up = False

    def _membership(self) -> MemberId:
        """Return the member that commits now; in the thread."""
        member = self._control.membership()
        # Read second: if a generation has begun in between, a doubt lasts until the one after it.
        self._generation = self._control.generation
        if self._is_given_up:  # asked last, so that give_up returns the generation of whatever is sent
            raise Stopped("the commit was given up before it was sent")
        return member

    @property
    def generation(self) -> int:
        """The generation of the newest commit that was sent, or may have been."""
        return self._generation

    def give_up(self) -> int:
        """Send no further commit; return the generation of the last one, which may still take effect."""
        self._is_given_up = True
        self.coordinator.abort()
        self.close()
        return self._generation

    def close(self) -> None:
        """Close the connection after the thread's present request."""
        self.positions.end_with(self.coordinator.close)


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
        self._under_way: dict[PartitionCopy, MirrorPosition] = {}
        self._under_way_since = 0.0
        self._outcome: Future[Mapping[TopicPartition, ShoalError]] | None = None
        self._began_at = time.monotonic()
        self._is_last = False
        self._is_waiting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._channel.close()

    def has(self, copy: PartitionCopy) -> bool:
        """Whether all that was copied of a partition is committed."""
        return copy.position is not None and copy.progress.committed == copy.position

    @property
    def is_waited_for(self) -> bool:
        """Whether the worker's thread waits for a commit, which has a time limit; for other threads."""
        return self._is_last or self._is_waiting

    def is_under_way(self, copy: PartitionCopy) -> bool:
        """Whether a commit of the partition is in flight."""
        return copy in self._under_way

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
                self._end(give_up_at=time.monotonic())

    def read_all(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, MirrorPosition], dict[TopicPartition, int]]:
        """Return the positions, and the other offsets; see :class:`.Positions`."""
        return self._channel.positions.read_all(partitions)

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
        return self._end_with()

    # The copying

    def unplanned(self, copies: Iterable[PartitionCopy]) -> list[PartitionCopy]:
        """Return the partitions whose queue the committed maps do not lead to."""
        generation = self._control.generation
        return [copy for copy in copies if copy.state.is_aligned and not copy.progress.is_planned(generation)]

    def plan(self, copies: Sequence[PartitionCopy]) -> None:
        """
        Commit the maps of such partitions, and wait for it as long as a coordinator takes that is well.

        A partition whose map is not committed then waits, and is aligned again.

        Raises:
            ShoalError: The commit failed for good.

        """
        # One at a time; it may have been the one that is wanted.
        if self._await() and (ahead := self.unplanned(copies)):
            self._begin(self._positions_of(ahead))
            self._await()
        unplanned = self.unplanned(copies)
        if any(copy.progress.doubts and not self.is_under_way(copy) for copy in unplanned):
            self._control.begin_generation()
        for copy in unplanned:
            refusal = "the group to refuse an earlier commit of unknown outcome"
            coordinator = "the group's coordinator to take its map"
            copy.lose_track()
            copy.wait(copy.commit_waits_for or (refusal if copy.progress.doubts else coordinator))

    def _await(self) -> bool:
        """
        Wait a little for the commit under way, if there is one; return whether none is any more.

        Its partitions keep an error that time can heal.

        Raises:
            ShoalError: The commit failed for good.

        """
        if self._outcome is None:
            return True
        left_s = self._under_way_since + self._timing.plan_patience_s - time.monotonic()
        if not wait([self._outcome], timeout=max(0.0, left_s)).done:
            return False
        try:
            self._end()
        except ShoalError as error:
            if not can_heal(error):
                raise
        return True

    def now_and_then(self, copies: Iterable[PartitionCopy], now: float) -> None:
        """Commit without waiting for it, at the interval of the settings."""
        # The next commit, or the last, covers one that fails; a group that is
        # lost for good ends the lease.
        with suppress(ShoalError):
            if self._outcome is not None and self._outcome.done():
                self._end()
        if now - self._began_at >= self._timing.commit_interval_s and self._outcome is None:
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

        is_asked_to, patience_s = self._control.stop_requested, self._patience_s
        give_up_at = time.monotonic() + patience_s

        def commit() -> None:
            with suppress(ShoalError):
                self._end(give_up_at)  # if it failed, the next one has its positions, too
            self._begin(self._positions_of(copies))
            self._end(give_up_at)

        self._is_last = True
        try:
            patiently(commit, patience_s=patience_s, pause=pause, can_heal=can_heal)
        except ShoalError as error:
            if not is_asked_to or not can_heal(error):
                raise
        finally:
            self._is_last = False

    @property
    def _patience_s(self) -> float:
        is_asked_to, timing = self._control.stop_requested, self._timing
        return timing.requested_commit_patience_s if is_asked_to else timing.last_commit_patience_s

    def _positions_of(self, copies: Iterable[PartitionCopy]) -> dict[PartitionCopy, MirrorPosition]:
        """Return the positions that are not committed, as milestones of their maps."""
        return {
            copy: position
            for copy in copies
            if not copy.source_is_gone
            # After an interruption, another process may have committed a newer one.
            and (copy.state.is_aligned or copy.progress.committed is not None)
            and (copy.progress.doubts or not self.has(copy))
            and (position := copy.progress.to_commit())
        }

    def _begin(self, positions: Mapping[PartitionCopy, MirrorPosition]) -> None:
        if positions:
            self._under_way = dict(positions)
            self._under_way_since = time.monotonic()
            self._outcome = self._channel.positions.begin_commit(
                {copy.source: position for copy, position in positions.items()}
            )

    def _end(self, give_up_at: float = math.inf) -> None:
        """
        Wait for the outcome of the commit that is under way, if there is one; stop what cannot be committed.

        Raises:
            ShoalError: The commit failed, or that of some partition, and time may heal it.

        """
        copies = {copy.source: copy for copy in self._under_way}
        refused = self._end_with(give_up_at)
        for partition, error in refused.items():
            copy = copies[partition]
            if not is_transient(error) and not copy.state.stopped:
                copy.stop(str(error))
        for error in refused.values():
            if is_transient(error):
                raise error

    def _end_with(self, give_up_at: float = math.inf) -> Mapping[TopicPartition, ShoalError]:
        """
        Wait for the outcome, and keep it in the partitions.

        A commit that is given up may still take effect.

        Returns:
            The partitions whose position was refused, with the error.

        """
        outcome, self._outcome = self._outcome, None
        positions, self._under_way = self._under_way, {}
        if outcome is None:
            return {}
        self._is_waiting = True
        try:
            left_s = max(0.0, give_up_at - time.monotonic())
            refused = outcome.result(timeout=min(left_s, self._timing.last_commit_patience_s))
        except TimeoutError:
            # Another one is not queued behind it, nor sent in another generation.
            given_up, known = self._channel, self._channel.coordinator.known
            self._channel = _Channel(self._settings, self._control, known)
            self._doubt(positions, given_up.give_up())
            raise Disconnected(
                self._settings.source.servers, "the group's coordinator does not answer"
            ) from None
        except ShoalError as error:
            if not isinstance(error, BrokerError | Stopped):
                self._doubt(positions, self._channel.generation)
            for copy in positions:
                copy.commit_waits_for = str(error)
            raise
        finally:
            self._is_waiting = False
        return self._keep(positions, refused)

    def _keep(
        self,
        positions: Mapping[PartitionCopy, MirrorPosition],
        refused: Mapping[TopicPartition, ShoalError],
    ) -> Mapping[TopicPartition, ShoalError]:
        errors: dict[TopicPartition, ShoalError] = {}
        for copy, position in positions.items():
            error = refused.get(copy.source)
            if error is None:
                copy.keep_commit(position)
                continue
            code = error.code if isinstance(error, BrokerError) else None
            if code in _PERHAPS_COMMITTED:
                self._doubt({copy: position}, self._channel.generation)
            elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._is_last:
                copy.lose_source()
                continue
            elif code is ErrorCode.OFFSET_METADATA_TOO_LARGE and len(position.plan) > 1:
                copy.progress.plan_less()
                copy.refetch()
                error = Disconnected(self._settings.source.servers, f"fewer runs fit into a commit: {error}")
            copy.commit_waits_for = str(error)
            errors[copy.source] = error
        return errors

    def _doubt(self, positions: Mapping[PartitionCopy, MirrorPosition], generation: int) -> None:
        """Keep maps whose commit has an unknown outcome."""
        for copy, position in positions.items():
            copy.progress.doubt(position, generation)
            if copy.progress.doubts > _MOST_DOUBTS:
                self._control.begin_generation()


def can_heal(error: ShoalError) -> bool:
    """Whether to retry: transient errors, and errors that the driver resolves by a new rebalance."""
    # A position's commit has a retention time, and so no instance id. If another process has begun as the
    # same mirror, the commit gets UNKNOWN_MEMBER_ID, as after a lost session. A task joins nothing. The
    # driver's Heartbeat has the instance id: it gets FENCED_INSTANCE_ID, and ends the mirror and its lease.
    return is_transient(error) or (isinstance(error, BrokerError) and error.code in JOIN_AGAIN)
