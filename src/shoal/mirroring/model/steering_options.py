"""The options that steer a mirror, and what an operator has set since on its control socket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import OptionError
from .json_values import typed
from .option_values import check_range, parse_bytes, parse_fields, parse_text, read_by
from .topics import compile_expression, entries_of, is_legal_name

__all__ = ["NOTHING_SET", "NOT_STEERED", "SetSteering", "SteeringOptions", "check_expression", "parse_limit"]

#: The largest limit, in bytes a second: a sum of Python's floats has every byte up to here.
_MOST_BYTES_PER_S = 2**50

#: The longest expression: a topic's name has at most 249 characters.
_LONGEST_EXPRESSION = 1_000

#: A bound for a request's latency, in milliseconds.
_LEAST_NICE_MS, _MOST_NICE_MS = 1, 60_000


def check_expression(option: str, text: str) -> str:
    """
    Return a topic's name or a regular expression, if it can be compiled.

    Raises:
        OptionError: The text is no expression, or is too long.

    """
    parse_text(option, text)
    if len(text) > _LONGEST_EXPRESSION:
        raise OptionError(
            "{option}: the expression has {length} characters, and at most {most} are allowed. Use a shorter "
            "one",
            option=option,
            length=len(text),
            most=_LONGEST_EXPRESSION,
        )
    if not is_legal_name(text):
        try:
            compile_expression(option, text)
        except (RecursionError, OverflowError, MemoryError):
            raise OptionError(
                "{option} '{value}' is too large an expression. Use a simpler one", option=option, value=text
            ) from None
    return text


def parse_limit(option: str, value: object) -> int:
    """Read a number of bytes a second, such as ``50m``; raises OptionError."""
    text = str(value).removesuffix("/s")
    found = parse_bytes(option, text)
    check_range(option, found, 1, _MOST_BYTES_PER_S, "bytes a second")
    return found


def _parse_topic_limits(
    option: str, value: Mapping[str, object] | Iterable[str]
) -> tuple[tuple[str, int], ...]:
    """Read ``REGEX=BYTES``, as often as it is given, or a mapping. The first that matches a topic counts."""
    pairs: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        pairs += value.items()
    else:
        for text in value:
            # The last "=": a topic's name cannot have one, but an expression can.
            expression, equals, limit = text.rpartition("=")
            if not equals:
                raise OptionError("{option} '{value}' is not REGEX=BYTES", option=option, value=text)
            pairs.append((expression, limit))
    return tuple(
        (check_expression(option, expression), parse_limit(option, limit)) for expression, limit in pairs
    )


def _parse_priority(option: str, value: str | Iterable[str]) -> tuple[str, ...]:
    entries = entries_of(value) if isinstance(value, str) else list(value)
    return tuple(check_expression(option, each) for each in entries)


@dataclass(frozen=True, slots=True)
class SteeringOptions:
    """
    The options of steering.

    Attributes:
        control: The path of the unix socket that takes commands; None for none.
        limit: The bytes a second of the whole mirror; None for no limit.
        limit_topic: The limits of topics, as pairs of an expression and bytes a second.
        priority: The topics to catch up first, as expressions, the most important first.
        throttle_flag_file: The file that pauses the mirror as long as it exists; None for none.
        nice: The latency of requests, in seconds, above which the mirror backs off; None for none.

    """

    control: str | None = field(default=None, metadata=read_by(parse_text))
    limit: int | None = field(default=None, metadata=read_by(parse_limit))
    limit_topic: tuple[tuple[str, int], ...] = field(default=(), metadata=read_by(_parse_topic_limits))
    priority: tuple[str, ...] = field(default=(), metadata=read_by(_parse_priority))
    throttle_flag_file: str | None = field(default=None, metadata=read_by(parse_text))
    nice: float | None = field(
        default=None, metadata=read_by(lambda option, value: _parse_nice(option, value))
    )

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> SteeringOptions:
        """
        Read the options that a user gave, by their fields' names.

        Raises:
            OptionError: A value cannot be used.

        """
        return cls(**parse_fields(cls, given))

    @property
    def is_wanted(self) -> bool:
        """Whether any of these options was given."""
        return self != NOT_STEERED


#: No option of steering.
NOT_STEERED = SteeringOptions()


def _parse_nice(option: str, value: object) -> float:
    try:
        milliseconds = float(str(value).removesuffix("ms"))
    except ValueError:
        raise OptionError(
            "{option} {value!r} is not a number of milliseconds", option=option, value=value
        ) from None
    check_range(option, milliseconds, _LEAST_NICE_MS, _MOST_NICE_MS, "milliseconds")
    return milliseconds / 1000


@dataclass(frozen=True, slots=True)
class SetSteering:
    """
    The settings of an operator, which take precedence over the options, also after a restart.

    Attributes:
        paused: The paused topics, as expressions, in the order of the commands.
        limits: The limit of the whole mirror and those of topics; None if no command has changed them.
        priority: The topics to catch up first; None if no command has changed them.

    """

    paused: tuple[str, ...] = ()
    limits: tuple[int | None, tuple[tuple[str, int], ...]] | None = None
    priority: tuple[str, ...] | None = None

    def limits_over(self, options: SteeringOptions) -> tuple[int | None, tuple[tuple[str, int], ...]]:
        """Return the limits that hold: of the whole mirror, and of topics."""
        return (options.limit, options.limit_topic) if self.limits is None else self.limits

    def priority_over(self, options: SteeringOptions) -> tuple[str, ...]:
        """Return the priority that holds."""
        return options.priority if self.priority is None else self.priority

    def pausing(self, expression: str) -> SetSteering:
        """Return this with one more paused expression."""
        return replace(self, paused=(*(each for each in self.paused if each != expression), expression))

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON; only what was set has an entry."""
        found: dict[str, Any] = {"paused": list(self.paused)} if self.paused else {}
        if self.limits is not None:
            found |= {"limit": self.limits[0], "topic_limits": [list(each) for each in self.limits[1]]}
        if self.priority is not None:
            found["priority"] = list(self.priority)
        return found

    @classmethod
    def from_json_object(cls, values: Mapping[str, Any]) -> SetSteering:
        """Read the JSON of :meth:`to_json_object`; raises TypeError, ValueError, KeyError or OptionError."""
        limits = None
        if "limit" in values:
            limit = values["limit"]
            topics = tuple(
                (check_expression("limit", typed(str, expression)), parse_limit("limit", typed(int, size)))
                for expression, size in values["topic_limits"]
            )
            limits = (None if limit is None else parse_limit("limit", typed(int, limit)), topics)
        priority = values.get("priority")
        return cls(
            tuple(check_expression("pause", typed(str, each)) for each in values.get("paused", ())),
            limits,
            None
            if priority is None
            else tuple(check_expression("priority", typed(str, x)) for x in priority),
        )


NOTHING_SET = SetSteering()
