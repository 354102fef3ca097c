"""The steering of a task as a value: the topics that it may not fetch now, and its bytes a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .json_values import typed

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

    @property
    def is_on(self) -> bool:
        """Whether anything is paused or limited."""
        return bool(self.paused) or self.bytes_per_s is not None

    def to_json_object(self) -> dict[str, Any]:
        """Return the steering as JSON."""
        return {"paused": sorted(self.paused), "bytes_per_s": self.bytes_per_s}

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> TaskSteering:
        """Read the JSON of :meth:`to_json_object`; raises KeyError, TypeError or ValueError."""
        bytes_per_s = values["bytes_per_s"]
        if bytes_per_s is not None and not 0 < typed(int, bytes_per_s) <= MOST_BYTES_PER_S:
            raise ValueError(f"{bytes_per_s} bytes a second")
        return cls(frozenset(typed(str, each) for each in values["paused"]), bytes_per_s)


#: Nothing is paused or limited.
UNSTEERED = TaskSteering()
