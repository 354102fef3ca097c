"""
Windows of time, into which a mirror without an end is divided.

In a window the tasks copy all new records, until the driver's clock ends it. Between two windows the driver
assigns the partitions again, with new ones and those whose leaders moved. Tasks copy nothing for that moment,
so the driver prolongs a window without news. It also prolongs a window while a task aligns a partition: the
alignment would have to start again, and might never finish.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...topic_partition import TopicPartition

__all__ = ["WindowClock", "WindowPlan"]

#: Without news, a window lasts at most this multiple of its length.
_LONGEST_QUIET = 8

#: The shortest window that ends early: partitions in trouble must not stop the others.
_SHORTEST_S = 3.0


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

    def wants(self, partition: TopicPartition) -> bool:
        """Whether the plan has a source partition, if the partition exists."""
        return partition not in self.excluded and (self.share is None or partition in self.share)


class WindowClock:
    """
    The driver's clock for the end of the current window. Not thread-safe.

    A window begins with its first task, not with its plan: Spark needs time in between.

    """

    def __init__(self, length_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._length_s = length_s
        self._now = now
        self._began_at: float | None = None
        self._ends_at = 0.0
        self._stale = False

    def plan(self) -> None:
        """Plan the next window, with all news until now."""
        self._began_at = None
        self._stale = False

    def begin(self) -> None:
        """Begin a task. The first one begins the window."""
        if self._began_at is None:
            self._began_at = self._now()
            self._ends_at = self._began_at + (self._shortest_s if self._stale else self._length_s)

    @property
    def _shortest_s(self) -> float:
        return min(_SHORTEST_S, self._length_s)

    @property
    def remaining_s(self) -> float:
        """The time until the end of the window."""
        return self._length_s if self._began_at is None else max(0.0, self._ends_at - self._now())

    def end(self, *, at_once: bool = False) -> bool:
        """
        End the window early, or the planned one, to assign partitions again; return whether its end changed.

        Args:
            at_once: Whether to end it also if it has just begun.

        """
        self._stale = True
        if self._began_at is None:
            return False
        least_s = 0.0 if at_once else self._shortest_s
        ends_at = min(self._ends_at, max(self._now(), self._began_at + least_s))
        changed, self._ends_at = ends_at < self._ends_at, ends_at
        return changed

    def prolong(self, *, for_ever: bool = False) -> bool:
        """
        Prolong the window by its length from now; return whether its end changed.

        Args:
            for_ever: Whether the window may be prolonged without a limit.

        """
        if self._stale or self._began_at is None or self._now() >= self._ends_at:
            return False
        limit = math.inf if for_ever else self._began_at + _LONGEST_QUIET * self._length_s
        ends_at = min(limit, self._now() + self._length_s)
        changed, self._ends_at = ends_at > self._ends_at, max(ends_at, self._ends_at)
        return changed
