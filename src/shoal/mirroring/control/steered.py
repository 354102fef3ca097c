"""
The driver's part of steering: the line for each task, and the rates that the tasks' workers share.

A task receives a line only after it has confirmed the one before, and then the newest. So a task that does
not read delays neither the others nor the leases: at most one line waits in its socket.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ..model.json_values import typed
from ..model.steering import UNSTEERED, MirrorSteering, TaskSteering, TopicsRate
from .attempts import Attempt
from .shared_rate import SharedRate

__all__ = ["SteeredTasks"]

#: No rate is shared by more workers, and no number in a task's line is larger.
_MOST = 2**53


class SteeredTasks:
    """The steering of all tasks. Not thread-safe: the control server holds its lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing paused or limited."""
        self._clock = clock
        self._steering = MirrorSteering()
        self._numbers = itertools.count(1)
        self._total: tuple[int, SharedRate[tuple[Attempt, int]]] | None = None
        self._limits: dict[str, tuple[int, TopicsRate, SharedRate[tuple[Attempt, int]]]] = {}
        #: The last line that a task has not confirmed yet, and the last one that it has.
        self._sent: dict[Attempt, TaskSteering] = {}
        self._known: dict[Attempt, TaskSteering] = {}

    def set(self, steering: MirrorSteering) -> None:
        """Replace the steering. A rate that stays as it is keeps its shares."""
        self._steering = steering
        if steering.limit is None:
            self._total = None
        elif self._total is None or self._total[1].bytes_per_s != steering.limit:
            self._total = (next(self._numbers), SharedRate(steering.limit, self._clock()))
        limits = {}
        for expression, rate in steering.topic_limits.items():
            known = self._limits.get(expression)
            if known is not None and known[1].bytes_per_s == rate.bytes_per_s:
                limits[expression] = (known[0], rate, known[2])
            else:
                shared: SharedRate[tuple[Attempt, int]] = SharedRate(rate.bytes_per_s, self._clock())
                limits[expression] = (next(self._numbers), rate, shared)
        self._limits = limits

    def begin(self, attempt: Attempt) -> dict[str, Any]:
        """Return the entry for the line with a task's partitions; empty if the task is unsteered."""
        steering = self._of(attempt)
        if steering == UNSTEERED:
            return {}
        self._sent[attempt] = steering
        return {"steering": steering.to_json_object()}

    def next_line(self, attempt: Attempt) -> dict[str, Any]:
        """Return the next line for a task; empty if it knows everything, or has a line to confirm."""
        if attempt in self._sent:
            return {}
        steering = self._of(attempt)
        if steering == self._known.get(attempt, UNSTEERED):
            return {}
        self._sent[attempt] = steering
        return {"steering": steering.to_json_object()}

    def confirm(self, attempt: Attempt) -> None:
        """Note that a task has taken its last line over."""
        sent = self._sent.pop(attempt, None)
        if sent is not None:
            self._known[attempt] = sent

    def is_confirmed(self, attempt: Attempt) -> bool:
        """Whether a task is steered as the mirror is now."""
        return attempt not in self._sent and self._of(attempt) == self._known.get(attempt, UNSTEERED)

    def forget(self, attempt: Attempt) -> None:
        """Remove a task that has ended."""
        self._sent.pop(attempt, None)
        self._known.pop(attempt, None)
        for _, shared in self._rates():
            for key in shared.members():
                if key[0] is attempt:
                    shared.forget(key)

    def _of(self, attempt: Attempt) -> TaskSteering:
        topics = {each.topic for each in attempt.partitions}
        return TaskSteering(
            self._steering.is_paused,
            self._steering.paused & topics,
            None if self._total is None else self._total[0],
            {topic: number for number, rate, _ in self._limits.values() for topic in rate.topics & topics},
            self._steering.commits,
        )

    # Rates

    def _rates(self) -> list[tuple[int, SharedRate[tuple[Attempt, int]]]]:
        limits = [(number, shared) for number, _, shared in self._limits.values()]
        return limits if self._total is None else [*limits, self._total]

    @property
    def has_rates(self) -> bool:
        """Whether anything is limited, so that grants are due again and again."""
        return self._total is not None or bool(self._limits)

    def ask(self, attempt: Attempt, worker: int, wanted: Sequence[Sequence[Any]]) -> None:
        """
        Let a task's worker ask for bytes.

        Args:
            attempt: The task.
            worker: The worker's number in the task.
            wanted: For each rate its number, the partitions that have something to copy, and the debt.

        Raises:
            TypeError, ValueError: This is no question of a task.

        """
        shared = dict(self._rates())
        for number, partitions, debt in wanted:
            for each in (number, partitions, debt):
                if not -_MOST < typed(int, each) < _MOST:
                    raise ValueError(f"{each} is out of range")
            if number in shared:  # else its limit has just ended
                shared[number].ask((attempt, typed(int, worker)), partitions, debt, self._clock())

    def grants(self) -> dict[Attempt, dict[str, Any]]:
        """Return a line for each task that gets bytes now."""
        now = self._clock()
        granted: dict[Attempt, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        for number, shared in self._rates():
            for (attempt, worker), size in shared.grants(now).items():
                granted[attempt][worker][number] = size
        return {
            attempt: {
                "grants": [
                    [worker, [[number, size] for number, size in sizes.items()]]
                    for worker, sizes in workers.items()
                ]
            }
            for attempt, workers in granted.items()
        }
