"""The steering of a task as a value: the topics that it may not fetch now, and its bytes a second."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MOST_BYTES_PER_S", "UNSTEERED", "TaskSteering"]

#: The largest limit, in bytes a second: a sum of Python's floats has every byte up to here.
MOST_BYTES_PER_S = 2**50


@dataclass(frozen=True, slots=True)
class TaskSteering:
    """
    The steering of one task.

    Attributes:
        paused: The topics that it does not fetch.
        bytes_per_s: Its part of the mirror's limit; None for no limit.

    """

    paused: frozenset[str] = frozenset()
    bytes_per_s: int | None = None

    def __post_init__(self) -> None:
        if self.bytes_per_s is not None and not 0 < self.bytes_per_s <= MOST_BYTES_PER_S:
            raise ValueError(f"{self.bytes_per_s} bytes a second")

    @property
    def is_on(self) -> bool:
        """Whether anything is paused or limited."""
        return bool(self.paused) or self.bytes_per_s is not None


#: Nothing is paused or limited.
UNSTEERED = TaskSteering()
