"""
The driver's part of steering: the topics that no task fetches, and each task's part of the limit.

A fifth of the limit goes to the tasks by their partitions that are behind, and the rest by what they fetched
lately. So a task whose brokers are slower than its part leaves the rest to the others. Tasks that could all
fetch more come to equal shares for each partition within seconds. The parts add up to the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from ...topic_partition import TopicPartition
from ..model.reports import TaskReport
from ..model.steering import TaskSteering

__all__ = ["SteeredTasks"]

#: A part that changes by less is not sent again.
_SAME = 0.02

#: The part of the limit that does not depend on what the tasks fetched, so that each can show its need.
_BY_PARTITIONS = 0.2

#: How much of a task's rate is from before the last look: reports come twice a second, as looks do, and a
#: look may see none or two.
_KEPT = 0.3

#: The weight of a task without a partition that is behind; others weigh so many.
_IDLE_WEIGHT = 0.1

M = TypeVar("M", bound=Hashable)


class _TaskWork:
    """The fetching of one task, by its reports."""

    def __init__(self) -> None:
        self._counted: dict[TopicPartition, tuple[int, int]] = {}
        self._behind: set[TopicPartition] = set()
        self._fetched = 0
        self.bytes_per_s = 0.0

    def count(self, report: TaskReport) -> None:
        """Add a report."""
        for each in report.partitions:
            counters = each.counters
            since, before = self._counted.get(each.partition, (counters.since, counters.bytes_in))
            self._fetched += counters.bytes_in - (before if since == counters.since else 0)
            self._counted[each.partition] = counters.since, counters.bytes_in
            position, end = each.source_offset, each.end_offset
            is_behind = position is None or end is None or position < end
            (self._behind.add if is_behind else self._behind.discard)(each.partition)

    def look(self, elapsed_s: float, held: Collection[TopicPartition]) -> None:
        """Note the rate since the last look; forget partitions that the task does not have any more."""
        rate = self._fetched / max(elapsed_s, 1e-3)
        self.bytes_per_s = _KEPT * self.bytes_per_s + (1 - _KEPT) * rate
        self._fetched = 0
        self._behind.intersection_update(held)
        self._counted = {each: known for each, known in self._counted.items() if each in held}

    @property
    def weight(self) -> float:
        """The number of its partitions that are behind."""
        return len(self._behind) or _IDLE_WEIGHT


class SteeredTasks(Generic[M]):
    """The steering of all tasks. Not thread-safe: the control server holds its lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing paused or limited."""
        self._clock = clock
        self._looked_at = clock()
        self._paused: frozenset[str] = frozenset()
        self._limit: int | None = None
        self._work: dict[M, _TaskWork] = {}
        self._parts: dict[M, int] = {}

    def set(self, paused: frozenset[str], limit: int | None) -> None:
        """Replace the steering. A limit that stays as it is keeps its parts."""
        self._paused = paused
        if limit != self._limit:
            self._limit = limit
            self._parts = {} if limit is None else self._shared(limit)

    def of(self, member: M, topics: Collection[str]) -> TaskSteering:
        """Return the steering of a task with partitions of these topics."""
        paused = self._paused.intersection(topics)
        if self._limit is None:
            return TaskSteering(paused)
        # A task that has just come, until the next look.
        first_part = max(1, self._limit // max(1, len(self._work)))
        return TaskSteering(paused, self._parts.get(member, first_part))

    def join(self, member: M) -> None:
        """Add a task."""
        self._work[member] = _TaskWork()

    def forget(self, member: M) -> None:
        """Remove a task that has ended."""
        self._work.pop(member, None)
        self._parts.pop(member, None)

    def count(self, member: M, report: TaskReport) -> None:
        """Note what a task has fetched."""
        if self._limit is not None and member in self._work:
            self._work[member].count(report)

    def look(self, held: Callable[[M], Collection[TopicPartition]]) -> Collection[M]:
        """Share the limit out again, by the partitions that tasks hold; return those with another part."""
        now = self._clock()
        elapsed_s, self._looked_at = now - self._looked_at, now
        if self._limit is None:
            return ()
        for member, work in self._work.items():
            work.look(elapsed_s, held(member))
        before, self._parts = self._parts, self._shared(self._limit)
        changed = [
            each for each, part in self._parts.items() if abs(part - before.get(each, 0)) > _SAME * part
        ]
        # The task keeps a part that the driver does not send.
        self._parts |= {each: before[each] for each in self._parts if each not in changed}
        return changed

    def _shared(self, limit: int) -> dict[M, int]:
        rates = {each: work.bytes_per_s for each, work in self._work.items()}
        weights = {each: work.weight for each, work in self._work.items()}
        by_rate = _fractions(rates if any(rates.values()) else weights)
        by_weight = _fractions(weights)
        return {
            each: max(
                1, int(limit * (_BY_PARTITIONS * by_weight[each] + (1 - _BY_PARTITIONS) * by_rate[each]))
            )
            for each in self._work
        }


def _fractions(values: Mapping[M, float]) -> dict[M, float]:
    whole = sum(values.values())
    return {each: value / whole for each, value in values.items()}
