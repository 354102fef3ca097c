"""The driver's part of steering: the topics that no task fetches, and each task's part of the limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from ..model.reports import TaskReport
from ..model.steering import TaskSteering
from .member import Member
from .shared_limit import TaskWork, parts_of

__all__ = ["SteeredTasks"]

#: A part that changes by less is not sent again.
_SAME = 0.02


class SteeredTasks:
    """The steering of all tasks. Not thread-safe: the control server holds its lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing paused or limited."""
        self._clock = clock
        self._looked_at = clock()
        self._paused: frozenset[str] = frozenset()
        self._limit: int | None = None
        self._work: dict[Member, TaskWork] = {}
        self._parts: dict[Member, int] = {}

    def set(self, paused: frozenset[str], limit: int | None) -> None:
        """Replace the steering. A limit that stays as it is keeps its parts."""
        self._paused = paused
        if limit != self._limit:
            self._limit = limit
            self._parts = {} if limit is None else parts_of(limit, self._work)

    def of(self, member: Member) -> TaskSteering:
        """Return the steering of one task."""
        paused = self._paused and self._paused & {each.topic for each in member.partitions}
        if self._limit is None:
            return TaskSteering(paused)
        # A task that has just come, until the next look.
        first_part = max(1, self._limit // max(1, len(self._work)))
        return TaskSteering(paused, self._parts.get(member, first_part))

    def join(self, member: Member) -> None:
        """Add a task."""
        self._work[member] = TaskWork()

    def forget(self, member: Member) -> None:
        """Remove a task that has ended."""
        self._work.pop(member, None)
        self._parts.pop(member, None)

    def count(self, member: Member, report: TaskReport) -> None:
        """Note what a task has fetched."""
        if self._limit is not None and member in self._work:
            self._work[member].count(report.partitions)

    def look(self) -> Collection[Member]:
        """Share the limit out again; return the tasks whose part has changed."""
        now = self._clock()
        elapsed_s, self._looked_at = now - self._looked_at, now
        if self._limit is None:
            return ()
        for member, work in self._work.items():
            work.look(elapsed_s, member.partitions)
        before, self._parts = self._parts, parts_of(self._limit, self._work)
        changed = [each for each, part in self._parts.items() if _differs(part, before.get(each, 0))]
        # The task keeps a part that the driver does not send.
        self._parts |= {each: before[each] for each in self._parts if each not in changed}
        return changed


def _differs(part: int, before: int) -> bool:
    return abs(part - before) > _SAME * part
