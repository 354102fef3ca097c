"""The options that steer a mirror."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ... import kinds
from ...declare import option
from ...errors import ConfigError
from ...option_values import check_range, parse_bytes, parse_text
from .steering import MOST_BYTES_PER_S
from .topics import compile_expression, entries_of, is_legal_name

__all__ = ["SteeringOptions", "check_expression", "parse_limit"]

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
        kinds.text("BYTES", parse_limit),
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

    @property
    def is_steered(self) -> bool:
        """Whether any of these options was given."""
        return self.control is not None or self.limit is not None or bool(self.pause)
