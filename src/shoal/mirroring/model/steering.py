"""The steering of a mirror and of each task: its options, the topics that are paused, and the limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ... import kinds
from ...declare import option
from ...numbers import gauge
from ...option_values import check_range, parse_bytes, parse_text
from .topics import compile_expression, entries_of

__all__ = [
    "MOST_BYTES_PER_S",
    "UNSTEERED",
    "SteeringOptions",
    "SteeringStatus",
    "TaskSteering",
    "check_expression",
    "parse_limit",
    "rate_text",
]

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


def check_expression(option: str, text: str) -> str:
    """
    Return a topic's name or a regular expression, if it can be compiled.

    Raises:
        ConfigError: The text is no expression.

    """
    compile_expression(option, parse_text(option, text))
    return text


def parse_limit(option: str, value: object) -> int:
    """Read a number of bytes a second, such as ``50m``; raises ConfigError."""
    text = str(value).removesuffix("/s")
    found = parse_bytes(option, text)
    check_range(option, found, 1, MOST_BYTES_PER_S, "bytes a second")
    return found


def _parse_pause(option: str, value: str | Iterable[str]) -> tuple[str, ...]:
    entries = entries_of(value) if isinstance(value, str) else list(value)
    return tuple(check_expression(option, each) for each in entries)


@dataclass(frozen=True, kw_only=True)
class SteeringOptions:
    """The options of steering."""

    control: str | None = option(
        kinds.FILE,
        "listen on this unix socket for commands of 'shoal control', which pause, limit and stop the running "
        "mirror (docs/operating.md). A restart forgets what they set: these options hold again",
        default=None,
        group="steering",
    )
    limit: int | None = option(
        replace(kinds.size(1, MOST_BYTES_PER_S), read=parse_limit),
        "fetch at most so many bytes a second, in all tasks together, as 50m",
        default=None,
        group="steering",
    )
    pause: tuple[str, ...] = option(
        kinds.names("TOPICS[,TOPICS]", _parse_pause),
        "names and regular expressions of topics to fetch nothing of, until 'shoal control FILE resume'",
        default=(),
        group="steering",
    )
