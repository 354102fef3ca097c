"""How a mirror is steered now, for the answer to ``status``, the page and the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SteeringStatus", "rate_text"]

#: The number of topics that an answer names.
_NAMED = 100


@dataclass(frozen=True, slots=True)
class SteeringStatus:
    """
    How a mirror is steered now.

    Attributes:
        paused: The topics that an operator has paused.
        paused_expressions: The expressions of these commands.
        later: The topics that wait for more important ones to catch up.
        limit: The bytes a second of the whole mirror; None for no limit.
        topic_limits: The bytes a second of topics, by expression.
        priority: The expressions of the topics to catch up first, the most important first.
        throttled_by: The reasons why nothing is fetched: an existing flag file, or slow brokers.
        latency_ms: The latency of the last request, by cluster; None if no request has been answered.
        has_set: Whether an operator has changed what the options say.
        is_in_force: Whether all tasks have confirmed it.

    """

    paused: frozenset[str] = frozenset()
    paused_expressions: tuple[str, ...] = ()
    later: frozenset[str] = frozenset()
    limit: int | None = None
    topic_limits: Mapping[str, int] = field(default_factory=dict)
    priority: tuple[str, ...] = ()
    throttled_by: tuple[str, ...] = ()
    latency_ms: Mapping[str, float | None] = field(default_factory=dict)
    has_set: bool = False
    is_in_force: bool = True

    def holds(self, topic: str) -> bool:
        """Whether a topic is not fetched now."""
        return bool(self.throttled_by) or topic in self.paused or topic in self.later

    @property
    def sentences(self) -> list[str]:
        """The steering as sentences without a full stop; empty if nothing is steered."""
        found = [f"throttled: {each}" for each in self.throttled_by]
        if self.paused_expressions:
            names = ", ".join(self.paused_expressions)
            found += [f"paused: {names} ({_count(len(self.paused), 'topic')})"]
        if self.later:
            found += [f"waiting for topics of a higher priority: {_count(len(self.later), 'topic')}"]
        if self.limit is not None:
            found += [f"limit: {rate_text(self.limit)}"]
        found += [f"limit of {name}: {rate_text(limit)}" for name, limit in self.topic_limits.items()]
        if self.priority:
            found += [f"priority: {', '.join(self.priority)}"]
        if found and not self.is_in_force:
            found += ["a task has not confirmed the last change yet"]
        return found

    def to_json_object(self) -> dict[str, Any]:
        """Return the status as JSON; lists of topics name at most a hundred."""
        return {
            "paused": sorted(self.paused)[:_NAMED],
            "paused_count": len(self.paused),
            "paused_expressions": list(self.paused_expressions),
            "later": sorted(self.later)[:_NAMED],
            "later_count": len(self.later),
            "limit": self.limit,
            "topic_limits": dict(self.topic_limits),
            "priority": list(self.priority),
            "throttled_by": list(self.throttled_by),
            "latency_ms": dict(self.latency_ms),
            "has_set": self.has_set,
            "is_in_force": self.is_in_force,
            "sentences": self.sentences,
        }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rate_text(bytes_per_s: int) -> str:
    """Return a rate as ``limit`` reads it: ``50m/s``."""
    for unit, size in (("g", 1024**3), ("m", 1024**2), ("k", 1024)):
        if bytes_per_s % size == 0:
            return f"{bytes_per_s // size}{unit}/s"
    return f"{bytes_per_s}/s"
