"""The options that steer a mirror."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError
from .option_values import check_range, parse_bytes, parse_fields, parse_text, read_by
from .topics import compile_expression, entries_of, is_legal_name

__all__ = ["NOT_STEERED", "SteeringOptions", "check_expression", "parse_limit"]

#: The largest limit, in bytes a second: a sum of Python's floats has every byte up to here.
_MOST_BYTES_PER_S = 2**50

#: The longest expression: a topic's name has at most 249 characters.
_LONGEST_EXPRESSION = 1_000


def check_expression(option: str, text: str) -> str:
    """
    Return a topic's name or a regular expression, if it can be compiled.

    Raises:
        ConfigError: The text is no expression, or is too long.

    """
    parse_text(option, text)
    if len(text) > _LONGEST_EXPRESSION:
        raise ConfigError(
            f"{option}: the expression has {len(text)} characters, and at most {_LONGEST_EXPRESSION} are "
            "allowed. Use a shorter one"
        )
    if not is_legal_name(text):
        try:
            compile_expression(option, text)
        except (RecursionError, OverflowError, MemoryError):
            raise ConfigError(f"{option} '{text}' is too large an expression. Use a simpler one") from None
    return text


def parse_limit(option: str, value: object) -> int:
    """Read a number of bytes a second, such as ``50m``; raises ConfigError."""
    text = str(value).removesuffix("/s")
    found = parse_bytes(option, text)
    check_range(option, found, 1, _MOST_BYTES_PER_S, "bytes a second")
    return found


def _parse_pause(option: str, value: str | Iterable[str]) -> tuple[str, ...]:
    entries = entries_of(value) if isinstance(value, str) else list(value)
    return tuple(check_expression(option, each) for each in entries)


@dataclass(frozen=True, slots=True)
class SteeringOptions:
    """
    The options of steering.

    Attributes:
        control: The path of the unix socket that takes commands; None for none.
        limit: The bytes a second of the whole mirror; None for no limit.
        pause: The topics that are not fetched, as expressions.

    """

    control: str | None = field(default=None, metadata=read_by(parse_text))
    limit: int | None = field(default=None, metadata=read_by(parse_limit))
    pause: tuple[str, ...] = field(default=(), metadata=read_by(_parse_pause))

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> SteeringOptions:
        """
        Read the options that a user gave, by their fields' names.

        Raises:
            ConfigError: A value cannot be used.

        """
        return cls(**parse_fields(cls, given))

    @property
    def is_wanted(self) -> bool:
        """Whether any of these options was given."""
        return self != NOT_STEERED


#: No option of steering.
NOT_STEERED = SteeringOptions()
