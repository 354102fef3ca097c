"""
A limit of bytes a second, shared out over the tasks of a mirror.

Each task with a partition that is behind gets a part, in proportion to its partitions that are. So each of
these partitions gets the same. A task whose brokers are slower than its part gets little more than it fetched
lately, and the others get what it leaves (max-min fairness). The parts add up to the limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TypeVar

from ...topic_partition import TopicPartition
from ..model.reports import CopyReport

__all__ = ["TaskWork", "parts_of"]

M = TypeVar("M")

#: A task's reports come twice a second, so that looks may see none or two: the busiest look counts.
_LOOKS = 6

#: A task gets so many times what it fetched in its busiest look, so that it can show that it needs more.
_ROOM = 1.5

#: The part of the limit that each task gets at the least, divided by the number of tasks.
_LEAST_PART = 0.05


class TaskWork:
    """The fetching of one task, by its reports."""

    def __init__(self) -> None:
        self._counted: dict[TopicPartition, tuple[int, int]] = {}
        self._behind: set[TopicPartition] = set()
        self._fetched = 0
        self._looks: deque[float] = deque(maxlen=_LOOKS)

    def count(self, reports: Collection[CopyReport]) -> None:
        """Add a report."""
        for each in reports:
            counters = each.counters
            since, before = self._counted.get(each.partition, (counters.since, counters.bytes_in))
            self._fetched += counters.bytes_in - (before if since == counters.since else 0)
            self._counted[each.partition] = counters.since, counters.bytes_in
            position, end = each.source_offset, each.end_offset
            is_behind = position is None or end is None or position < end
            (self._behind.add if is_behind else self._behind.discard)(each.partition)

    def look(self, elapsed_s: float, held: Collection[TopicPartition]) -> None:
        """Note the rate since the last look; forget partitions that the task does not have any more."""
        self._looks.append(self._fetched / max(elapsed_s, 1e-3))
        self._fetched = 0
        self._behind.intersection_update(held)
        self._counted = {each: known for each, known in self._counted.items() if each in held}

    @property
    def weight(self) -> int:
        """The number of its partitions that are behind, at least 1."""
        return max(1, len(self._behind))

    def most(self, limit: int, tasks: int) -> float:
        """Return the largest part that is of use to it."""
        if len(self._looks) < _LOOKS:
            return limit
        return max(self._looks) * _ROOM + limit * _LEAST_PART / tasks


def parts_of(limit: int, work: Mapping[M, TaskWork]) -> dict[M, int]:
    """Share a limit out; return each task's bytes a second."""
    most = {task: each.most(limit, len(work)) for task, each in work.items()}
    parts: dict[M, float] = {}
    hungry, left = dict.fromkeys(work), float(limit)
    while hungry:
        whole = sum(work[each].weight for each in hungry)
        sated = [each for each in hungry if most[each] < left * work[each].weight / whole]
        if not sated:
            parts |= {each: left * work[each].weight / whole for each in hungry}
            break
        for each in sated:
            parts[each] = most[each]
            del hungry[each]
        left -= sum(most[each] for each in sated)
    return {task: max(1, int(part)) for task, part in parts.items()}
