"""The steering of a mirror and of each task, as values: the topics that are paused, and the limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...numbers import gauge

__all__ = ["MOST_BYTES_PER_S", "UNSTEERED", "SteeringStatus", "TaskSteering", "rate_text"]

#: The largest limit, in bytes a second: a sum of Python's floats has every byte up to here.
MOST_BYTES_PER_S = 2**50

#: The number of topics that an answer names.
_NAMED = 100


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


@dataclass(frozen=True, slots=True)
class SteeringStatus:
    """
    How a mirror is steered now.

    Attributes:
        paused: The topics that are paused.
        paused_expressions: The expressions that select them.
        limit: The bytes a second of the whole mirror; None for no limit.

    """

    paused: frozenset[str] = gauge("shoal_topics_paused", "Topics that are paused.", initial=frozenset())
    paused_expressions: tuple[str, ...] = ()
    limit: int | None = gauge(
        "shoal_limit_bytes_per_second", "The limit of the bytes that the mirror fetches."
    )

    @property
    def sentences(self) -> list[str]:
        """The steering as sentences without a full stop; empty if nothing is steered."""
        found = []
        if self.paused_expressions:
            names, count = ", ".join(self.paused_expressions), len(self.paused)
            found += [f"paused: {names} ({count:,} topic{'' if count == 1 else 's'})"]
        if self.limit is not None:
            found += [f"limit: {rate_text(self.limit)}"]
        return found

    def to_json_object(self) -> dict[str, Any]:
        """Return the status as JSON; the list of topics names at most a hundred."""
        return {
            "paused": sorted(self.paused)[:_NAMED],
            "paused_count": len(self.paused),
            "paused_expressions": list(self.paused_expressions),
            "limit": self.limit,
            "sentences": self.sentences,
        }


def rate_text(bytes_per_s: int) -> str:
    """Return a rate as ``limit`` reads it: ``50m/s``."""
    for unit, size in (("g", 1024**3), ("m", 1024**2), ("k", 1024)):
        if bytes_per_s % size == 0:
            return f"{bytes_per_s // size}{unit}/s"
    return f"{bytes_per_s}/s"
