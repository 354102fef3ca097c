"""
Windows of time, into which a mirror without an end is divided.

In a window the tasks copy all new records, until the driver's clock ends it. Between two windows the driver
assigns the partitions again, with new ones and those whose leaders moved. The driver *prepares* the next
window while one lasts: tasks of both run for some seconds, and partitions are handed from one to the other.
If a window ends early because of news, its successor has to be planned with the news: nothing is copied while
Spark starts its tasks, some tenths of a second.

The driver prolongs a window without traffic. It also prolongs a window while a task aligns a partition: the
alignment would have to start again, and might never finish.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition

__all__ = ["WindowClock", "WindowPlan"]

#: The next window is prepared so long before the end of one. On a quiet machine Spark needs a second or two
#: to start a job and its Python processes. The window ends once the tasks are ready, and lasts longer if they
#: are not: at most another length.
_LEAD_S = 10.0

#: The same as a part of a window's length, for short windows.
_LEAD_PART = 1 / 4

#: A window ends so long after the tasks of the next one are ready: a fetch that waits is answered until then.
_HANDOVER_S = 0.5


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """
    The driver's plan for the next window.

    Attributes:
        topics: For each source topic its name at the destination, and the number of partitions there.
        excluded: Source partitions that are stopped.
        weights: The recent amount of work of each source partition that had any.
        share: The source partitions of this mirror, if it shares its group with others; None for all.
        streams: The number of tasks, at most those that can run at a time; None for as many as are of use.

    """

    topics: Mapping[str, tuple[str, int]]
    excluded: frozenset[TopicPartition] = frozenset()
    weights: Mapping[TopicPartition, int] = field(default_factory=dict)
    share: frozenset[TopicPartition] | None = None
    streams: int | None = None

    def includes(self, partition: TopicPartition) -> bool:
        """Whether the plan has a source partition, if the partition exists."""
        return partition not in self.excluded and (self.share is None or partition in self.share)


class WindowClock:
    """
    The driver's clock for the current window, and the number of the next one. Not thread-safe.

    A window begins with its first task, not with its plan: Spark needs time in between.

    Attributes:
        planned: The number of the window that was planned last. Numbers only grow.
        current: The number of the current window.
        lead_s: The time before the end of a window at which the next one is prepared.

    """

    def __init__(
        self, length_s: float, now: Callable[[], float] = time.monotonic, timing: Timing = DEFAULT_TIMING
    ) -> None:
        self._length_s = length_s
        self._timing = timing
        self._now = now
        self._began_at: float | None = None
        self._ends_at = 0.0
        self._stale = False
        #: The next window, while the current one lasts; and the end of the current one if there was no next.
        self._prepared: int | None = None
        self._ends_alone_at = 0.0
        self._was_prepared = False
        self.planned = self.current = 0
        self.lead_s = min(_LEAD_S, length_s * _LEAD_PART)

    def plan(self) -> None:
        """Plan a window after the end of the current one, with all news until now."""
        self.planned += 1
        self._become(self.planned)
        self._stale = False

    def _become(self, number: int) -> None:
        self.current, self._prepared = number, None
        self._began_at = None
        self._was_prepared = False

    def begin(self) -> None:
        """Begin a task of the current window. The first one begins the window."""
        if self._began_at is None:
            self._began_at = self._now()
            self._ends_at = self._began_at + (self._shortest_s if self._stale else self._length_s)

    @property
    def has_begun(self) -> bool:
        """Whether the current window has had a task."""
        return self._began_at is not None

    @property
    def _shortest_s(self) -> float:
        return min(self._timing.shortest_window_s, self._length_s)

    @property
    def remaining_s(self) -> float:
        """The time until the end of the window."""
        return self._length_s if self._began_at is None else max(0.0, self._ends_at - self._now())

    def remaining_of(self, number: int) -> float:
        """Return the time until the end of any window; 0 if it is over, or will never begin."""
        if number == self.current:
            return self.remaining_s
        return self._length_s if number == self._prepared else 0.0

    def end(self, *, at_once: bool = False) -> bool:
        """
        End the window early, to assign partitions again; return whether anything changed.

        The successor is dismissed, since its plan lacks the reason. A window that is planned, and has not
        begun, becomes a short one.

        Args:
            at_once: Whether to end it also if it has just begun.

        """
        is_dismissed = self.dismiss()
        self._stale = True
        if self._began_at is None:
            return is_dismissed
        least_s = 0.0 if at_once else self._shortest_s
        ends_at = min(self._ends_at, max(self._now(), self._began_at + least_s))
        changed, self._ends_at = ends_at < self._ends_at, ends_at
        return changed or is_dismissed

    def prolong(self, *, for_ever: bool = False) -> bool:
        """
        Prolong the window by its length from now; return whether its end changed.

        Args:
            for_ever: Whether the window may be prolonged without a limit, and also if its successor is
                prepared, which is dismissed then.

        """
        if self._stale or self._began_at is None or self._now() >= self._ends_at:
            return False
        if self._prepared is not None and not for_ever:
            return False
        is_dismissed = self.dismiss()
        longest_s = math.inf if for_ever else self._timing.quiet_window_lengths * self._length_s
        ends_at = min(self._began_at + longest_s, self._now() + self._length_s)
        changed, self._ends_at = ends_at > self._ends_at, max(ends_at, self._ends_at)
        self._was_prepared &= not changed
        return changed or is_dismissed

    # The next window

    @property
    def is_next_due(self) -> bool:
        """Whether it is time to prepare the next window, for the first time or after a prolongation."""
        if self._stale or self._began_at is None or self._was_prepared:
            return False
        return 0 < self.remaining_s <= self.lead_s

    def prepare(self) -> bool:
        """
        Plan the next window while the current one lasts; return False if it does not.

        The current one lasts until :meth:`hasten`, at most twice its length: its tasks copy meanwhile.

        """
        if not self.is_next_due:
            return False
        self.planned += 1
        self._prepared = self.planned
        self._was_prepared = True
        self._ends_alone_at = self._ends_at
        self._ends_at += self._length_s
        return True

    def hasten(self) -> None:
        """End the window soon, since the tasks of the next one are ready."""
        if self._prepared is not None:
            self._ends_at = min(self._ends_at, self._now() + _HANDOVER_S)

    def is_prepared(self, number: int) -> bool:
        """Whether a window is the next one, and the current one lasts."""
        return number == self._prepared

    def dismiss(self) -> bool:
        """Give up the window that is prepared, if there is one; return whether there was."""
        if self._prepared is None:
            return False
        self._prepared = None
        self._ends_at = min(self._ends_at, self._ends_alone_at)
        return True

    def advance(self, over: int = -1) -> None:
        """
        Let the window that is prepared follow the current one, if that is over.

        Args:
            over: The number of a window whose tasks have all ended, maybe before their time.

        """
        if self._prepared is not None and (self.remaining_s <= 0 or over == self.current):
            self._become(self._prepared)
