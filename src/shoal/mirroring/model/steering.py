"""
The steering of a running mirror, as values: the topics that are copied now, and the bytes a second.

The driver decides (:class:`MirrorSteering`), with the topics' names instead of expressions. Each task
receives the part about its own topics (:class:`TaskSteering`), as one line of JSON on the control connection.

A *rate* is a number of bytes a second that several workers share: one for the whole mirror, and one for each
limit of topics. Its number never means another rate, so an answer to an earlier question does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .json_values import typed

__all__ = ["UNSTEERED", "MirrorSteering", "TaskSteering", "TopicsRate"]


@dataclass(frozen=True, slots=True)
class TopicsRate:
    """The bytes a second that some topics share."""

    bytes_per_s: int
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class MirrorSteering:
    """
    The steering of a whole mirror.

    Attributes:
        is_paused: Whether nothing is fetched.
        paused: The topics that are not fetched.
        limit: The bytes a second of the whole mirror; None for no limit.
        topic_limits: The limits of topics, by the expression that selects them. A topic is in one at most.
        commits: How many commits an operator has requested.

    """

    is_paused: bool = False
    paused: frozenset[str] = frozenset()
    limit: int | None = None
    topic_limits: Mapping[str, TopicsRate] = field(default_factory=dict)
    commits: int = 0


@dataclass(frozen=True, slots=True)
class TaskSteering:
    """
    The steering of one task.

    Attributes:
        is_paused: Whether the task fetches nothing.
        paused: The topics that it does not fetch.
        total: The number of the rate of all its topics; None for no limit.
        rates: The number of a topic's own rate, by topic.
        commits: How many commits an operator has requested. The workers commit at once after a change.

    """

    is_paused: bool = False
    paused: frozenset[str] = frozenset()
    total: int | None = None
    rates: Mapping[str, int] = field(default_factory=dict)
    commits: int = 0

    @property
    def is_on(self) -> bool:
        """Whether anything is paused or limited."""
        return self.is_paused or bool(self.paused) or self.total is not None or bool(self.rates)

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all rates."""
        total = () if self.total is None else (self.total,)
        return frozenset((*self.rates.values(), *total))

    def to_json_object(self) -> dict[str, Any]:
        """Return the steering as JSON."""
        return {
            "is_paused": self.is_paused,
            "paused": sorted(self.paused),
            "total": self.total,
            "rates": dict(self.rates),
            "commits": self.commits,
        }

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> TaskSteering:
        """Read the JSON of :meth:`to_json_object`; raises KeyError or TypeError."""
        total = values["total"]
        return cls(
            typed(bool, values["is_paused"]),
            frozenset(typed(str, each) for each in values["paused"]),
            None if total is None else typed(int, total),
            {typed(str, topic): typed(int, rate) for topic, rate in values["rates"].items()},
            typed(int, values["commits"]),
        )


#: Nothing is paused or limited.
UNSTEERED = TaskSteering()
