"""The driver's part of steering: what each task's document says of it, and the rate that workers share."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ..model.json_values import typed
from ..model.steering import MirrorSteering, TaskSteering
from .member import Member
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
        self._shared: SharedRate[tuple[Member, int]] | None = None

    def set(self, steering: MirrorSteering) -> None:
        """Replace the steering. A limit that stays as it is keeps its shares."""
        if steering.limit != self._steering.limit:
            limit = steering.limit
            self._number = None if limit is None else next(self._numbers)
            self._shared = None if limit is None else SharedRate(limit, self._clock())
        self._steering = steering

    def of(self, member: Member) -> TaskSteering:
        """Return the steering of one task."""
        topics = {each.topic for each in member.partitions}
        return TaskSteering(self._steering.paused & topics, self._number)

    def forget(self, member: Member) -> None:
        """Remove a task that has ended."""
        if self._shared is not None:
            for key in self._shared.members():
                if key[0] is member:
                    self._shared.forget(key)

    # The rate

    @property
    def has_limit(self) -> bool:
        """Whether the mirror is limited, so that grants are due again and again."""
        return self._shared is not None

    def ask(self, member: Member, wanted: Sequence[Any]) -> None:
        """
        Let a task's worker ask for bytes.

        Args:
            member: The task.
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
            self._shared.ask((member, worker), partitions, debt, self._clock())

    def grants(self) -> dict[Member, dict[str, Any]]:
        """Return a line for each task that gets bytes now."""
        if self._shared is None:
            return {}
        granted: dict[Member, list[list[int]]] = defaultdict(list)
        for (member, worker), size in self._shared.grants(self._clock()).items():
            granted[member].append([worker, size])
        return {member: {"grants": {"rate": self._number, "to": sizes}} for member, sizes in granted.items()}
