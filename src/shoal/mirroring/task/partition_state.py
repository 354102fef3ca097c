"""
The states of one partition in a task, and everything that changes them.

No other module assigns a state: it sends an event, and the table below has the next state.
A missing entry is a defect in shoal, and :class:`StateMachine` raises::

    [*] --> NEW
    NEW --> ALIGNED: align
    NEW --> NEW: lose_track
    NEW --> DONE: reach_end
    ALIGNED --> COPYING: acknowledge
    ALIGNED --> DONE: reach_end
    ALIGNED --> ALIGNED: move_end
    COPYING --> COPYING: acknowledge
    COPYING --> DONE: reach_end
    COPYING --> COPYING: move_end
    DONE --> ALIGNED: move_end
    ALIGNED --> UNALIGNED: lose_track
    COPYING --> UNALIGNED: lose_track
    DONE --> UNALIGNED: lose_track
    UNALIGNED --> UNALIGNED: lose_track
    UNALIGNED --> ALIGNED: align
    UNALIGNED --> DONE: reach_end
    NEW --> HANDED_ON: hand_on
    UNALIGNED --> HANDED_ON: hand_on
    NEW --> STOPPED: stop
    UNALIGNED --> STOPPED: stop
    ALIGNED --> STOPPED: stop
    COPYING --> STOPPED: stop
    DONE --> STOPPED: stop
    ALIGNED --> STOPPING: refuse
    COPYING --> STOPPING: refuse
    STOPPING --> STOPPING: refuse
    STOPPING --> STOPPING: acknowledge
    STOPPING --> ALIGNED: refetch
    STOPPING --> UNALIGNED: lose_track
    STOPPING --> STOPPED: stop

Only an aligned partition fetches and sends: its log end at the destination is the predicted one.
A stopping one is aligned, too. It fetches no more, and stops once everything before the refused batch is
acknowledged.
After an unknown outcome it is unaligned, and the worker asks the destination before anything else.
It reaches the end from there, and from NEW, only if the source topic was deleted: nothing is left to copy.
ALIGNED and COPYING differ by one acknowledged request. Before it, one request is in flight
alone, since a broker that does not know the producer id accepts any sequence.

Waiting is no state. A partition waits in NEW, UNALIGNED, ALIGNED or COPYING, and continues from there.
``waiting_for`` has the reason, and the partition is due again at ``retry_at``.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping

from ...client.backoff import Backoff
from ...errors import PartitionStopped
from ...timing import Timing

__all__ = ["TRANSITIONS", "Event", "PartitionState", "StateMachine"]


class PartitionState(enum.Enum):
    """The progress of one partition; exactly one at a time."""

    #: This process has no position of the partition yet.
    NEW = enum.auto()
    #: There is a position, and the destination may hold more than that.
    UNALIGNED = enum.auto()
    #: The destination's log end is known, and nothing is acknowledged since the partition entered this state.
    ALIGNED = enum.auto()
    #: The destination acknowledged a request since the alignment.
    COPYING = enum.auto()
    #: A fetched batch cannot be mirrored, and batches before it may be on their way.
    STOPPING = enum.auto()
    #: Everything of the range is acknowledged, not necessarily committed.
    DONE = enum.auto()
    #: Nothing more is copied in this task.
    STOPPED = enum.auto()
    #: Another worker of the task copies the partition, as another object: the copy loop of this worker
    #: may still look at this one.
    HANDED_ON = enum.auto()


class Event(enum.Enum):
    """Events of a partition."""

    ALIGN = "align"
    ACKNOWLEDGE = "acknowledge"
    REACH_END = "reach_end"
    #: The range ends elsewhere, since the source's topic is another one, or has lost its tail.
    MOVE_END = "move_end"
    LOSE_TRACK = "lose_track"
    REFUSE = "refuse"
    #: The queue is forgotten, and with it the refused batch: both are fetched again.
    REFETCH = "refetch"
    STOP = "stop"
    HAND_ON = "hand_on"


TRANSITIONS: Mapping[tuple[PartitionState, Event], PartitionState] = {
    (PartitionState.NEW, Event.ALIGN): PartitionState.ALIGNED,
    (PartitionState.NEW, Event.LOSE_TRACK): PartitionState.NEW,
    # A range whose source topic was deleted ends at the position.
    (PartitionState.NEW, Event.REACH_END): PartitionState.DONE,
    (PartitionState.NEW, Event.STOP): PartitionState.STOPPED,
    (PartitionState.NEW, Event.HAND_ON): PartitionState.HANDED_ON,
    (PartitionState.UNALIGNED, Event.ALIGN): PartitionState.ALIGNED,
    (PartitionState.UNALIGNED, Event.LOSE_TRACK): PartitionState.UNALIGNED,
    (PartitionState.UNALIGNED, Event.REACH_END): PartitionState.DONE,
    (PartitionState.UNALIGNED, Event.STOP): PartitionState.STOPPED,
    (PartitionState.UNALIGNED, Event.HAND_ON): PartitionState.HANDED_ON,
    (PartitionState.ALIGNED, Event.ACKNOWLEDGE): PartitionState.COPYING,
    (PartitionState.ALIGNED, Event.REACH_END): PartitionState.DONE,
    (PartitionState.ALIGNED, Event.MOVE_END): PartitionState.ALIGNED,
    (PartitionState.ALIGNED, Event.LOSE_TRACK): PartitionState.UNALIGNED,
    (PartitionState.ALIGNED, Event.REFUSE): PartitionState.STOPPING,
    (PartitionState.ALIGNED, Event.STOP): PartitionState.STOPPED,
    (PartitionState.COPYING, Event.ACKNOWLEDGE): PartitionState.COPYING,
    (PartitionState.COPYING, Event.REACH_END): PartitionState.DONE,
    # A range whose end the source lost.
    (PartitionState.COPYING, Event.MOVE_END): PartitionState.COPYING,
    (PartitionState.COPYING, Event.LOSE_TRACK): PartitionState.UNALIGNED,
    (PartitionState.COPYING, Event.REFUSE): PartitionState.STOPPING,
    (PartitionState.COPYING, Event.STOP): PartitionState.STOPPED,
    (PartitionState.STOPPING, Event.REFUSE): PartitionState.STOPPING,
    (PartitionState.STOPPING, Event.ACKNOWLEDGE): PartitionState.STOPPING,
    (PartitionState.STOPPING, Event.REFETCH): PartitionState.ALIGNED,
    (PartitionState.STOPPING, Event.LOSE_TRACK): PartitionState.UNALIGNED,
    (PartitionState.STOPPING, Event.STOP): PartitionState.STOPPED,
    # A range that was made for a former topic: its end is asked for after the alignment.
    (PartitionState.DONE, Event.MOVE_END): PartitionState.ALIGNED,
    (PartitionState.DONE, Event.LOSE_TRACK): PartitionState.UNALIGNED,
    # The group refuses its position.
    (PartitionState.DONE, Event.STOP): PartitionState.STOPPED,
}


_ALIGNED = frozenset(
    {PartitionState.ALIGNED, PartitionState.COPYING, PartitionState.STOPPING, PartitionState.DONE}
)
_OVER = frozenset({PartitionState.DONE, PartitionState.STOPPED, PartitionState.HANDED_ON})


class StateMachine:
    """
    The state of one partition, the reason of its stop, and its pauses.

    The worker's thread alone changes it; other threads may read the attributes.

    Attributes:
        is_aligned: Whether the destination's log end is known; an attribute, since the copy loop reads it
            for each batch.
        is_over: Whether the worker has nothing left to do: done, stopped, or handed on.
        refusal: Why the partition is about to stop; None in all states but STOPPING.
        stopped: Why the partition stopped; None in all other states.
        waiting_for: The reason of its pause, until a batch is acknowledged or nothing is left that could
            fail; None without one.
        retry_at: When it is due again, on the monotonic clock.

    """

    def __init__(self, timing: Timing, current: PartitionState = PartitionState.NEW) -> None:
        self._timing = timing
        self.refusal: PartitionStopped | None = None
        self.stopped: PartitionStopped | None = None
        self.waiting_for: str | None = None
        self.retry_at = 0.0
        self._backoff = Backoff(timing.first_retry_ms, timing.longest_retry_ms)
        self._enter(current)

    def happens(self, event: Event) -> None:
        """
        Take the transition of an event.

        Raises:
            RuntimeError: The state does not allow the event.

        """
        after = TRANSITIONS.get((self.current, event))
        if after is None:
            raise RuntimeError(f"a partition in state {self.current.name} does not allow {event.value}")
        self._enter(after)

    def _enter(self, state: PartitionState) -> None:
        self.current = state
        self.is_aligned = state in _ALIGNED
        self.is_over = state in _OVER
        if state is not PartitionState.STOPPING:
            self.refusal = None

    def acknowledge(self) -> None:
        """Take note of an acknowledged request: the pause, if there was one, is over."""
        if self.current is not PartitionState.COPYING:
            self.happens(Event.ACKNOWLEDGE)
        if self._backoff.failures:
            self._backoff.reset()
        self.waiting_for = None

    def refuse(self, error: PartitionStopped) -> None:
        """Fetch no more, and stop for this reason once everything before it is acknowledged."""
        self.happens(Event.REFUSE)
        self.refusal = error

    def refetch(self) -> None:
        """Go on with a refused batch, if there is one: it is fetched again."""
        if self.current is PartitionState.STOPPING:
            self.happens(Event.REFETCH)

    def stop(self, error: PartitionStopped) -> None:
        """Stop for good, for this reason."""
        self.happens(Event.STOP)
        # Tracebacks hold frames, and with them the data that was read of both clusters.
        error.__cause__ = error.__context__ = None
        self.stopped = error.with_traceback(None)
        self.waiting_for = None

    def hand_on(self) -> StateMachine:
        """Leave the partition to another worker; return the state that it has there, pause included."""
        successor = StateMachine(self._timing, self.current)
        successor.waiting_for, successor.retry_at, successor._backoff = (
            self.waiting_for,
            self.retry_at,
            self._backoff,
        )
        self.happens(Event.HAND_ON)
        return successor

    # Pauses

    @property
    def is_due(self) -> bool:
        """Whether there is no pause, or it has been long enough."""
        return time.monotonic() >= self.retry_at

    def next_delay_s(self) -> float:
        """Return the length of the next pause: longer each time, until a request is acknowledged."""
        return self._backoff.next_delay_s()

    def wait(self, reason: str, delay_s: float | None = None) -> None:
        """Pause, by default for :meth:`next_delay_s`."""
        self.waiting_for = reason
        self.retry_at = time.monotonic() + (self.next_delay_s() if delay_s is None else delay_s)

    def report_waiting(self, reason: str | None) -> None:
        """Give reports a reason (None: no reason any more), without a pause."""
        self.waiting_for = reason
