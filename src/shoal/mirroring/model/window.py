"""
Slices of time: what a mirror without an end is cut into.

In a slice the tasks copy whatever comes, until the driver's clock says that it
is over. Its end is the occasion to deal the partitions anew: to count in new
ones, and those whose leaders moved. For a moment nothing is copied then, so a
slice in which nothing happens goes on; and so does one in which a partition is
aligned, which would have to begin anew, and may never come to its end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...topic_partition import TopicPartition

__all__ = ["WindowClock", "WindowPlan"]

#: While there is nothing to deal anew a slice lasts up to so many times its length.
_LONGEST_QUIET = 8

#: A slice that was asked to end early lasts at least so long: partitions in trouble must not stop the others.
_SHORTEST_S = 3.0


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """
    What the driver wants to be copied in the next slice.

    Attributes:
        topics: For each source topic its name at the destination, and how
            many partitions are ready there.
        excluded: Source partitions that are stopped.
        weights: How much a source partition had to copy of late; those that
            had nothing are left out.
        share: The source partitions that are this mirror's, where it shares
            its group with others; None for all.
        streams: Into how many tasks to deal them, if there are so many and
            so many can run at a time; None for no more than are worth having.

    """

    topics: Mapping[str, tuple[str, int]]
    excluded: frozenset[TopicPartition] = frozenset()
    weights: Mapping[TopicPartition, int] = field(default_factory=dict)
    share: frozenset[TopicPartition] | None = None
    streams: int | None = None

    def to_json_object(self) -> dict[str, Any]:
        return {
            "share": None if self.share is None else sorted(self.share),
            "streams": self.streams,
            "topics": dict(self.topics),
            "excluded": sorted(self.excluded),
            "weights": [[*partition, weight] for partition, weight in self.weights.items()],
        }

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> WindowPlan:
        return cls(
            {topic: (name, count) for topic, (name, count) in values["topics"].items()},
            frozenset(TopicPartition(*each) for each in values["excluded"]),
            {TopicPartition(topic, number): weight for topic, number, weight in values["weights"]},
            None if values["share"] is None else frozenset(TopicPartition(*each) for each in values["share"]),
            values["streams"],
        )

    def wants(self, partition: TopicPartition) -> bool:
        """Whether a source partition is to be copied, if it is there."""
        return partition not in self.excluded and (self.share is None or partition in self.share)


class WindowClock:
    """
    When the slice under way is over; kept by the driver. Not for several threads at once.

    A slice begins with its first task, and not when it is planned: Spark takes its time in between.

    """

    def __init__(self, length_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._length_s = length_s
        self._now = now
        self._began_at: float | None = None
        self._ends_at = 0.0
        self._stale = False

    def plan(self) -> None:
        """A next slice is planned: what was known until now is in the plan."""
        self._began_at = None
        self._stale = False

    def begin(self) -> None:
        """A task begins; the first one begins the slice."""
        if self._began_at is None:
            self._began_at = self._now()
            self._ends_at = self._began_at + (self._shortest_s if self._stale else self._length_s)

    @property
    def _shortest_s(self) -> float:
        return min(_SHORTEST_S, self._length_s)

    @property
    def remaining_s(self) -> float:
        """How long tasks go on."""
        return self._length_s if self._began_at is None else max(0.0, self._ends_at - self._now())

    def end(self, *, at_once: bool = False) -> bool:
        """
        There is something to deal anew: end the slice, or the planned one; return whether that is news.

        Args:
            at_once: Also where it has just begun: somebody waits for it.

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
        Let the slice go on for its length from now; return whether it does.

        Args:
            for_ever: It may be done again and again, and not only while nothing happens.

        """
        if self._stale or self._began_at is None or self._now() >= self._ends_at:
            return False
        limit = math.inf if for_ever else self._began_at + _LONGEST_QUIET * self._length_s
        ends_at = min(limit, self._now() + self._length_s)
        changed, self._ends_at = ends_at > self._ends_at, max(ends_at, self._ends_at)
        return changed
