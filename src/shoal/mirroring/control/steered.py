"""
The driver's part of steering: the line for each task, and the rate that the tasks' workers share.

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
from ..model.steering import UNSTEERED, MirrorSteering, TaskSteering
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
        self._number: int | None = None
        self._shared: SharedRate[tuple[Attempt, int]] | None = None
        #: The last line that a task has not confirmed yet, and the last one that it has.
        self._sent: dict[Attempt, TaskSteering] = {}
        self._known: dict[Attempt, TaskSteering] = {}

    def set(self, steering: MirrorSteering) -> None:
        """Replace the steering. A limit that stays as it is keeps its shares."""
        if steering.limit != self._steering.limit:
            limit = steering.limit
            self._number = None if limit is None else next(self._numbers)
            self._shared = None if limit is None else SharedRate(limit, self._clock())
        self._steering = steering

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
        if self._shared is not None:
            for key in self._shared.members():
                if key[0] is attempt:
                    self._shared.forget(key)

    def _of(self, attempt: Attempt) -> TaskSteering:
        topics = {each.topic for each in attempt.partitions}
        return TaskSteering(self._steering.paused & topics, self._number)

    # The rate

    @property
    def has_limit(self) -> bool:
        """Whether the mirror is limited, so that grants are due again and again."""
        return self._shared is not None

    def ask(self, attempt: Attempt, wanted: Sequence[Any]) -> None:
        """
        Let a task's worker ask for bytes.

        Args:
            attempt: The task.
            wanted: The number of the rate, the worker's number in the task, the partitions that have
                something to copy, and the debt.

        Raises:
            TypeError, ValueError: This is no question of a task.

        """
        number, worker, partitions, debt = wanted
        for each in (number, worker, partitions, debt):
            if not -_MOST < typed(int, each) < _MOST:
                raise ValueError(f"{each} is out of range")
        if self._shared is not None and number == self._number:  # else its limit has just ended
            self._shared.ask((attempt, worker), partitions, debt, self._clock())

    def grants(self) -> dict[Attempt, dict[str, Any]]:
        """Return a line for each task that gets bytes now."""
        if self._shared is None:
            return {}
        granted: dict[Attempt, list[list[int]]] = defaultdict(list)
        for (attempt, worker), size in self._shared.grants(self._clock()).items():
            granted[attempt].append([worker, size])
        return {
            attempt: {"grants": {"rate": self._number, "to": sizes}} for attempt, sizes in granted.items()
        }
