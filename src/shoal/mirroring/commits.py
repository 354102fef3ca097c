"""
Commits how far a carrier's partitions have come, beside the copying.

A coordinator that does not answer holds up no copying: commits are made in a thread and over connections of
their own, one at a time. Each has all that is acknowledged by then, so that the next one covers one that
failed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Self

from ..client.cluster import Cluster, is_transient, patiently
from ..client.groups import JOIN_AGAIN
from ..client.metadata import Metadata, TopicPartition
from ..errors import BrokerError, Disconnected, ShoalError
from .control import CarrierControl
from .pair import Pair
from .partition_copy import PartitionCopy
from .positions import GroupPositions, PositionsInThread
from .settings import CopySettings

__all__ = ["Commits", "can_heal"]

#: How long the last commit of a task is tried before Spark has to repeat the task.
_LAST_COMMIT_PATIENCE_S = 60.0

#: And where the mirror ends: nobody should have to wait for a coordinator then.
_REQUESTED_COMMIT_PATIENCE_S = 5.0

#: And where only the slice ends: the next one's tasks know how far all is copied, and commit it.
_SLICE_COMMIT_PATIENCE_S = 1.0


class Commits:
    """
    What is committed of a carrier's partitions.

    A context manager, for one thread; only :attr:`coordinator` may be aborted from others.

    Attributes:
        coordinator: The connections of the commits.
        positions: Reads what was committed, in the same thread and over the same connections.

    """

    def __init__(self, settings: CopySettings, control: CarrierControl, known: Metadata | None) -> None:
        self._settings = settings
        self._control = control
        self.coordinator = Cluster(settings.source.impatient(), known)
        self.positions = PositionsInThread(
            GroupPositions(self.coordinator, settings.group, control.membership)
        )
        self._committed: dict[PartitionCopy, Pair] = {}
        self._under_way: dict[PartitionCopy, Pair] = {}
        self._outcome: Future[Mapping[TopicPartition, ShoalError]] | None = None
        self._began_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.positions.end_with(self.coordinator.close)

    def know(self, copy: PartitionCopy, pair: Pair) -> None:
        """Take over what a former task committed."""
        self._committed[copy] = pair

    def has(self, copy: PartitionCopy) -> bool:
        """Whether all that was copied of a partition is committed."""
        return copy.pair is not None and self._committed.get(copy) == copy.pair

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
        time can heal: the next slice's tasks commit it, or the next start realigns.

        Raises:
            Stopped: The driver is gone.
            ShoalError: It failed.

        """

        def pause(seconds: float) -> None:
            # Not the control's wait, which returns at once when the driver wants an end.
            self._control.check_lease()
            time.sleep(seconds)

        is_asked_to, patience_s = self._control.stop_requested, self._patience_s
        # One that has been under way for so long has had its time.
        give_up_at = (time.monotonic() if self._outcome is None else self._began_at) + patience_s

        def commit() -> None:
            with suppress(ShoalError):
                self._end(give_up_at)  # what it had is in the next, where it failed
            self._begin(copies)
            self._end(give_up_at)

        try:
            patiently(commit, patience_s=patience_s, pause=pause, can_heal=can_heal)
        except ShoalError as error:
            if not is_asked_to or not can_heal(error):
                raise

    @property
    def _patience_s(self) -> float:
        if not self._control.stop_requested:
            return _LAST_COMMIT_PATIENCE_S
        return _REQUESTED_COMMIT_PATIENCE_S if self._control.mirror_ends else _SLICE_COMMIT_PATIENCE_S

    def _begin(self, copies: Iterable[PartitionCopy]) -> None:
        pairs = {copy: copy.pair for copy in copies if copy.pair and not copy.departed and not self.has(copy)}
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
            self.coordinator.abort()
            raise Disconnected(
                self._settings.source.servers, "the group's coordinator does not answer"
            ) from None
        for copy, pair in pairs.items():
            error = refused.get(copy.source)
            if error is None:
                self._committed[copy] = pair
                copy.committed_offset = pair.source_offset
            elif not is_transient(error) and not copy.stopped:
                copy.stop(str(error))
        for error in refused.values():
            if is_transient(error):
                raise error


def can_heal(error: ShoalError) -> bool:
    """Whether time can heal it; so can the driver, who joins the group again and says so."""
    return is_transient(error) or (isinstance(error, BrokerError) and error.code in JOIN_AGAIN)
