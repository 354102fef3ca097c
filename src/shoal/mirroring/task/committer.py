"""
Commits of a worker's positions, beside the copying.

A coordinator that does not answer delays no copying: commits have a thread and connections of their own.
One commit is under way at a time. Each has everything acknowledged by then, so the next one covers one that
failed. A commit of unknown outcome may take effect after the next one, as from a coordinator that was paused.
So for a while after it everything is committed again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Self

from ...client.cluster import Cluster, is_transient, patiently
from ...client.coordinator import JOIN_AGAIN
from ...client.metadata import Metadata
from ...errors import BrokerError, Disconnected, ShoalError
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from ..model.handover import InheritedPosition
from ..model.position import MirrorPosition
from ..positions import GroupPositions, PositionsInThread
from .partition import PartitionCopy
from .partition_state import PartitionState

__all__ = ["Commits", "can_heal"]

#: A commit of unknown outcome may take effect for so long. A coordinator that is paused for longer than
#: broker.session.timeout.ms, 9 s, is replaced, and after a rebalance the group refuses earlier commits.
_LATE_S = 60.0

#: The time for the last commit if only the window ends: the next one's tasks have the positions, and commit
#: them.
_WINDOW_COMMIT_PATIENCE_S = 1.0


class Commits:
    """
    The commits of a worker's positions.

    A context manager, for one thread.

    Attributes:
        positions: Reads committed positions, in the thread of the commits and over their connections.

    """

    def __init__(self, settings: CopySettings, control: WorkerControl, known: Metadata | None) -> None:
        self._settings = settings
        self._timing = settings.timing
        self._control = control
        self._coordinator = Cluster(settings.source.impatient(), known)
        self.positions = PositionsInThread(
            GroupPositions(self._coordinator, settings.group, control.membership)
        )
        self._committed: dict[PartitionCopy, MirrorPosition] = {}
        self._under_way: dict[PartitionCopy, MirrorPosition] = {}
        self._outcome: Future[Mapping[TopicPartition, ShoalError]] | None = None
        self._began_at = time.monotonic()
        self._is_last = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.positions.end_with(self._coordinator.close)

    def inherit(self, copy: PartitionCopy, left: InheritedPosition) -> None:
        """Take over the commit of a former task."""
        if left.is_committed:
            self._committed[copy] = left.position

    def doubt(self, left: InheritedPosition) -> None:
        """Take over the doubt that a commit of a former task may take effect late."""
        unknown_at = time.monotonic() - _LATE_S + left.doubted_for_s
        self.positions.unknown_at = max(self.positions.unknown_at, unknown_at)

    @property
    def doubted_for_s(self) -> float:
        """The seconds for which an older commit may still replace a newer one."""
        return max(0.0, self.positions.unknown_at + _LATE_S - time.monotonic())

    def has(self, copy: PartitionCopy) -> bool:
        """Whether all that was copied of a partition is committed."""
        return copy.position is not None and self._committed.get(copy) == copy.position

    @property
    def is_waited_for(self) -> bool:
        """Whether the worker's thread waits for a commit, which has a time limit; for other threads."""
        return self._is_last or self.positions.is_committing

    def is_under_way(self, copy: PartitionCopy) -> bool:
        """Whether a commit of the partition is in flight."""
        return copy in self._under_way

    def now_and_then(self, copies: Iterable[PartitionCopy], now: float) -> None:
        """Commit without waiting for it, at the interval of the settings."""
        # The next commit, or the last, covers one that fails; a group that is
        # lost for good ends the lease.
        with suppress(ShoalError):
            if self._outcome is not None and self._outcome.done():
                self._end()
        if now - self._began_at >= self._settings.commit_interval_s and self._outcome is None:
            self._begin(copies)
            self._began_at = now

    def hasten(self) -> None:
        """Let the next call of :meth:`now_and_then` commit, whatever the interval."""
        self._began_at = -math.inf

    def the_rest(self, copies: Iterable[PartitionCopy], look: Callable[[], object]) -> None:
        """
        Commit all that was acknowledged, and wait for it.

        If the driver requested the end, the commit has less time, and may fail for a reason that time can
        heal: the next tasks commit the positions, or the next start resumes.

        Args:
            look: Called before each retry, to find topics that are gone, and the group's positions with them.

        Raises:
            Stopped: The driver is gone.
            ShoalError: The commit failed.

        """

        def pause(seconds: float) -> None:
            # Not the control's wait, which returns at once after a request to end.
            self._control.check_lease()
            look()
            time.sleep(seconds)

        is_asked_to, patience_s = self._control.stop_requested, self._patience_s
        now = time.monotonic()
        give_up_at = now + patience_s

        def commit() -> None:
            with suppress(ShoalError):
                self._end(give_up_at)  # if it failed, the next one has its positions, too
            self._begin(copies)
            self._end(give_up_at)

        self._is_last = True
        try:
            if self._outcome is not None and now - self._began_at >= patience_s:
                # The commit under way has had its time.
                with suppress(ShoalError):
                    self._end(give_up_at=now)
                if not self._control.mirror_ends:
                    return
            patiently(commit, patience_s=patience_s, pause=pause, can_heal=can_heal)
        except ShoalError as error:
            if not is_asked_to or not can_heal(error):
                raise
        finally:
            self._is_last = False

    @property
    def _patience_s(self) -> float:
        if not self._control.stop_requested:
            return self._timing.last_commit_patience_s
        if self._control.mirror_ends:
            return self._timing.requested_commit_patience_s
        return _WINDOW_COMMIT_PATIENCE_S

    def _begin(self, copies: Iterable[PartitionCopy]) -> None:
        all_anew = self.doubted_for_s > 0
        positions = {
            copy: position
            for copy in copies
            if copy.state.current is not PartitionState.HANDED_ON
            and not copy.source_is_gone
            and (all_anew or not self.has(copy))
            and (position := copy.mark())
        }
        if positions:
            self._under_way = positions
            self._outcome = self.positions.begin_commit(
                {copy.source: position for copy, position in positions.items()}
            )

    def _end(self, give_up_at: float = math.inf) -> None:
        """
        Wait for the outcome of the commit that is under way, if there is one, and keep it.

        A commit that is given up may still take effect, with an older position, as after a crash.

        """
        outcome, self._outcome = self._outcome, None
        positions, self._under_way = self._under_way, {}
        if outcome is None:
            return
        try:
            left_s = max(0.0, give_up_at - time.monotonic())
            refused = outcome.result(timeout=min(left_s, self._timing.last_commit_patience_s))
        except TimeoutError:
            self.positions.unknown_at = time.monotonic()
            self._coordinator.abort()
            raise Disconnected(
                self._settings.source.servers, "the group's coordinator does not answer"
            ) from None
        except ShoalError as error:
            for copy in positions:
                copy.wait_for_commit(str(error))
            raise
        for copy, position in positions.items():
            refusal = refused.get(copy.source)
            if refusal is None:
                self._committed[copy] = position
                copy.keep_commit(position.source_offset)
                continue
            copy.wait_for_commit(str(refusal))
            if not is_transient(refusal) and not copy.state.stopped:
                copy.stop(str(refusal))
        for refusal in refused.values():
            if is_transient(refusal):
                raise refusal


def can_heal(error: ShoalError) -> bool:
    """Whether to retry: transient errors, and errors that the driver resolves by a new rebalance."""
    # A position's commit has a retention time, and so no instance id. If another process has begun as the
    # same mirror, the commit gets UNKNOWN_MEMBER_ID, as after a lost session. A task joins nothing. The
    # driver's Heartbeat has the instance id: it gets FENCED_INSTANCE_ID, and ends the mirror and its lease.
    return is_transient(error) or (isinstance(error, BrokerError) and error.code in JOIN_AGAIN)
