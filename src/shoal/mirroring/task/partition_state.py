"""
The states of one partition in a task, and everything that changes them.

No other module assigns a state. A change that this order does not have is a defect in shoal, and
:class:`StateMachine` raises::

    WAITING -> ALIGNING -> COPYING -> DONE        any but STOPPED -> WAITING, STOPPED

    WAITING: the destination may hold more than the position says. An aligner has the partition.
    ALIGNING: the aligner asks both clusters for the place where the partition continues.
    COPYING: its log end at the destination is the predicted one. A pair fetches and sends.
    DONE: everything of the range is acknowledged, not necessarily committed.
    STOPPED: nothing more is copied in this task.

After an unknown outcome, a copying or done partition waits, and is aligned before anything else is sent.
A waiting partition is done if its source topic was deleted: nothing is left to copy.

A waiting partition may have a pause: ``waiting_for`` has the reason, and it is aligned at ``retry_at``.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping

from ...client.backoff import Backoff
from ...errors import PartitionStopped
from ...timing import Timing

__all__ = ["PartitionState", "StateMachine"]


class PartitionState(enum.Enum):
    """The progress of one partition; exactly one at a time."""

    WAITING = enum.auto()
    ALIGNING = enum.auto()
    COPYING = enum.auto()
    DONE = enum.auto()
    STOPPED = enum.auto()


#: The states that follow one state alone. The others follow any but STOPPED.
_AFTER: Mapping[PartitionState, PartitionState] = {
    PartitionState.ALIGNING: PartitionState.WAITING,
    PartitionState.COPYING: PartitionState.ALIGNING,
}


class StateMachine:
    """
    The state of one partition, the reason of its stop, and its pauses.

    The thread that has the partition changes it; other threads may read the attributes.

    Attributes:
        current: The state.
        is_aligned: Whether the destination's log end is known; an attribute, since the copying reads it for
            each batch.
        is_over: Whether nothing is left to do: done or stopped.
        stopped: Why the partition stopped; None in all other states.
        waiting_for: The last reason to wait since its position moved; None without one.
        retry_at: When it is due again, on the monotonic clock.

    """

    def __init__(self, timing: Timing) -> None:
        self.stopped: PartitionStopped | None = None
        self.waiting_for: str | None = None
        self.retry_at = 0.0
        self._backoff = Backoff(timing.first_retry_ms, timing.longest_retry_ms)
        self._enter(PartitionState.WAITING)

    def become(self, state: PartitionState) -> None:
        """
        Change the state.

        Raises:
            RuntimeError: The present state does not allow it.

        """
        before = self.current
        if before is PartitionState.STOPPED or before is not _AFTER.get(state, before):
            raise RuntimeError(f"a partition in state {before.name} cannot become {state.name}")
        self._enter(state)

    def _enter(self, state: PartitionState) -> None:
        self.current = state
        self.is_aligned = state in {PartitionState.COPYING, PartitionState.DONE}
        self.is_over = state in {PartitionState.DONE, PartitionState.STOPPED}

    def move(self) -> None:
        """Take note of a new position: the trouble, if there was any, is over."""
        if self._backoff.failures:
            self._backoff.reset()
        self.waiting_for = None

    def stop(self, error: PartitionStopped) -> None:
        """Stop for good, for this reason."""
        self.become(PartitionState.STOPPED)
        # Tracebacks hold frames, and with them the data that was read of both clusters.
        error.__cause__ = error.__context__ = None
        self.stopped = error.with_traceback(None)
        self.waiting_for = None

    # Pauses

    @property
    def is_due(self) -> bool:
        """Whether there is no pause, or it has been long enough."""
        return time.monotonic() >= self.retry_at

    def next_delay_s(self) -> float:
        """Return the length of the next pause: longer each time, until a request is acknowledged."""
        return self._backoff.next_delay_s()

    def wait(self, reason: str, delay_s: float | None = None) -> None:
        """Wait, by default for :meth:`next_delay_s`."""
        self.become(PartitionState.WAITING)
        self.waiting_for = reason
        self.retry_at = time.monotonic() + (self.next_delay_s() if delay_s is None else delay_s)
