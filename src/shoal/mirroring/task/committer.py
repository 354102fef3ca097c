"""
Commits how far a carrier's partitions have come, beside the copying.

A coordinator that does not answer holds up no copying: commits are made in a thread and over connections of
their own, one at a time. Each has all that is acknowledged by then, so that the next one covers one that
failed. One whose outcome is not known may come after the next, as from a coordinator that was paused; so all
is committed again for a while.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Self

from ...client.cluster import Cluster, is_transient, patiently
from ...client.coordinator import JOIN_AGAIN
from ...client.metadata import Metadata
from ...errors import BrokerError, Disconnected, ShoalError
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..control.handover import InheritedPosition
from ..model.copy_options import CopySettings
from ..model.position import MirrorPosition
from ..positions import GroupPositions, PositionsInThread
from .partition import PartitionCopy
from .partition_state import State

__all__ = ["Commits", "can_heal"]

#: How long a commit of unknown outcome may still take effect. A coordinator that is paused for longer than
#: broker.session.timeout.ms, 9 s, is replaced; and no commit of before reaches who has joined the group anew.
_LATE_S = 60.0

#: How long the last commit of a task is tried before Spark has to repeat the task.
_LAST_COMMIT_PATIENCE_S = 60.0

#: And where the mirror ends: nobody should have to wait for a coordinator then.
_REQUESTED_COMMIT_PATIENCE_S = 5.0

#: And where only the slice ends: the next one's tasks know how far all is copied, and commit it.
_SLICE_COMMIT_PATIENCE_S = 1.0


class Commits:
    """
    What is committed of a carrier's partitions.

    A context manager, for one thread.

    Attributes:
        positions: Reads what was committed, in the thread of the commits and over their connections.

    """

    def __init__(self, settings: CopySettings, control: WorkerControl, known: Metadata | None) -> None:
        self._settings = settings
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

    def know(self, copy: PartitionCopy, left: InheritedPosition) -> None:
        """Take over what a former task committed."""
        if left.is_committed:
            self._committed[copy] = left.pair

    def doubt(self, left: InheritedPosition) -> None:
        """Take over that a commit of a former task may come late."""
        unknown_at = time.monotonic() - _LATE_S + left.doubted_for_s
        self.positions.unknown_at = max(self.positions.unknown_at, unknown_at)

    @property
    def doubted_for_s(self) -> float:
        """How long what was committed may still be overtaken by an older commit."""
        return max(0.0, self.positions.unknown_at + _LATE_S - time.monotonic())

    def has(self, copy: PartitionCopy) -> bool:
        """Whether all that was copied of a partition is committed."""
        return copy.pair is not None and self._committed.get(copy) == copy.pair

    @property
    def is_waited_for(self) -> bool:
        """Whether the carrier's thread waits for a commit; for another thread's look. That has an end."""
        return self._is_last or self.positions.is_committing

    def is_under_way(self, copy: PartitionCopy) -> bool:
        return copy in self._under_way

    def now_and_then(self, copies: Iterable[PartitionCopy], now: float) -> None:
        """Commit without waiting for it, as often as the settings say."""
        # The next commit, or the last, covers one that fails; a group that is
        # lost for good ends the lease.
        with suppress(ShoalError):
            if self._outcome is not None and self._outcome.done():
                self._end()
        if (now - self._began_at) * 1000 >= self._settings.commit_interval_ms and self._outcome is None:
            self._begin(copies)
            self._began_at = now

    def the_rest(self, copies: Iterable[PartitionCopy]) -> None:
        """
        Commit all that was acknowledged, and wait for it.

        Where the driver asked for an end, that is tried for a shorter while, and may fail for a reason that
        time can heal: the next slice's tasks commit it, or the next start resumes.

        Raises:
            Stopped: The driver is gone.
            ShoalError: It failed.

        """

        def pause(seconds: float) -> None:
            # Not the control's wait, which returns at once when the driver wants an end.
            self._control.check_lease()
            time.sleep(seconds)

        is_asked_to, patience_s = self._control.stop_requested, self._patience_s
        now = time.monotonic()
        give_up_at = now + patience_s

        def commit() -> None:
            with suppress(ShoalError):
                self._end(give_up_at)  # what it had is in the next, where it failed
            self._begin(copies)
            self._end(give_up_at)

        self._is_last = True
        try:
            if self._outcome is not None and now - self._began_at >= patience_s:
                # It has had its time.
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
            return _LAST_COMMIT_PATIENCE_S
        return _REQUESTED_COMMIT_PATIENCE_S if self._control.mirror_ends else _SLICE_COMMIT_PATIENCE_S

    def _begin(self, copies: Iterable[PartitionCopy]) -> None:
        all_anew = self.doubted_for_s > 0
        pairs = {
            copy: copy.pair
            for copy in copies
            if copy.pair and copy.state.current is not State.HANDED_ON and (all_anew or not self.has(copy))
        }
        if pairs:
            self._under_way = pairs
            self._outcome = self.positions.begin_commit({copy.source: pair for copy, pair in pairs.items()})

    def _end(self, give_up_at: float = math.inf) -> None:
        """
        Wait for the outcome of the commit that is under way, if one is, and keep it.

        One that is given up may still arrive: it is older than the position then, as after a crash.

        """
        outcome, self._outcome = self._outcome, None
        pairs, self._under_way = self._under_way, {}
        if outcome is None:
            return
        try:
            refused = outcome.result(
                timeout=min(max(0.0, give_up_at - time.monotonic()), _LAST_COMMIT_PATIENCE_S)
            )
        except TimeoutError:
            self.positions.unknown_at = time.monotonic()
            self._coordinator.abort()
            raise Disconnected(
                self._settings.source.servers, "the group's coordinator does not answer"
            ) from None
        except ShoalError as error:
            for copy in pairs:
                copy.wait_for_commit(str(error))
            raise
        for copy, pair in pairs.items():
            refusal = refused.get(copy.source)
            if refusal is None:
                self._committed[copy] = pair
                copy.keep_commit(pair.source_offset)
                continue
            copy.wait_for_commit(str(refusal))
            if not is_transient(refusal) and not copy.state.stopped:
                copy.stop(str(refusal))
        for refusal in refused.values():
            if is_transient(refusal):
                raise refusal


def can_heal(error: ShoalError) -> bool:
    """Whether time can heal it; so can the driver, who joins the group again and says so."""
    return is_transient(error) or (isinstance(error, BrokerError) and error.code in JOIN_AGAIN)
