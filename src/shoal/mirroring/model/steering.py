"""
The steering of a running mirror, as values: the topics that are copied now, and the bytes a second.

The driver decides (:class:`MirrorSteering`), with the topics' names instead of expressions. Each task
receives the part about its own topics (:class:`TaskSteering`), as one line of JSON on the control connection.

The *rate* is the number of bytes a second that all workers share. Its number never means another rate, so an
answer to an earlier question does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .json_values import typed

__all__ = ["UNSTEERED", "MirrorSteering", "TaskSteering"]


@dataclass(frozen=True, slots=True)
class MirrorSteering:
    """
    The steering of a whole mirror.

    Attributes:
        paused: The topics that are not fetched.
        limit: The bytes a second of the whole mirror; None for no limit.

    """

    paused: frozenset[str] = frozenset()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TaskSteering:
    """
    The steering of one task.

    Attributes:
        paused: The topics that it does not fetch.
        rate: The number of the rate that holds for it; None for no limit.

    """

    paused: frozenset[str] = frozenset()
    rate: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything is paused or limited."""
        return bool(self.paused) or self.rate is not None

    def to_json_object(self) -> dict[str, Any]:
        """Return the steering as JSON."""
        return {"paused": sorted(self.paused), "rate": self.rate}

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> TaskSteering:
        """Read the JSON of :meth:`to_json_object`; raises KeyError or TypeError."""
        rate = values["rate"]
        return cls(
            frozenset(typed(str, each) for each in values["paused"]),
            None if rate is None else typed(int, rate),
        )


#: Nothing is paused or limited.
UNSTEERED = TaskSteering()
