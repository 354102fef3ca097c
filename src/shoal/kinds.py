"""The kinds of options: how a user writes their values, and how these are read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from .declare import Kind
from .errors import ConfigError
from .option_values import (
    check_range,
    parse_bytes,
    parse_choice,
    parse_choices,
    parse_flag,
    parse_key_values,
    parse_listen,
    parse_seconds,
    parse_text,
    parse_whole,
)

__all__ = [
    "ADDRESS",
    "DIRECTORY",
    "FILE",
    "FLAG",
    "SECONDS",
    "SETTINGS",
    "choice",
    "choices",
    "names",
    "seconds",
    "size",
    "text",
    "whole",
]


def _between(
    read: Callable[[str, Any], Any], least: float, most: float, unit: str = ""
) -> Callable[[str, Any], Any]:
    def read_in_range(option: str, value: object) -> Any:
        number = read(option, value)
        check_range(option, number, least, most, unit)
        return number

    return read_in_range


def _parse_settings(option: str, value: Any) -> tuple[tuple[str, str], ...]:
    settings = parse_key_values(option, value)
    for name, _ in settings:
        if not name.startswith("spark."):
            raise ConfigError(f"{option} {name!r} is not a Spark setting. Their names begin with 'spark.'")
    return settings


FLAG = Kind(parse_flag, is_flag=True)
FILE = Kind(parse_text, "FILE", is_path=True)
DIRECTORY = Kind(parse_text, "DIR", is_path=True)
ADDRESS = Kind(parse_listen, "HOST:PORT")
SECONDS = Kind(parse_seconds, "SECONDS")
SETTINGS = Kind(_parse_settings, "KEY=VALUE", is_table=True)


def text(metavar: str, read: Callable[[str, Any], Any] = parse_text) -> Kind:
    """Return the kind of a text that this function reads."""
    return Kind(read, metavar)


def names(metavar: str, read: Callable[[str, Any], Any] = parse_text) -> Kind:
    """Return the kind of several texts, separated by commas."""
    return Kind(read, metavar, is_list=True)


def whole(least: int, most: int, metavar: str = "N") -> Kind:
    """Return the kind of a whole number in this range."""
    return Kind(_between(parse_whole, least, most), metavar)


def seconds(least: float, most: float) -> Kind:
    """Return the kind of a number of seconds in this range."""
    return replace(SECONDS, read=_between(parse_seconds, least, most, "seconds"))


def size(least: int, most: int) -> Kind:
    """Return the kind of a number of bytes in this range."""
    return Kind(_between(parse_bytes, least, most, "bytes"), "BYTES")


def choice(choices: type[enum.Enum]) -> Kind:
    """Return the kind whose values are those of an enum."""
    values = tuple(str(each.value) for each in choices)
    read = lambda option, value: parse_choice(option, value, choices)  # noqa: E731
    return Kind(read, choices=values)


def choices(members: Iterable[enum.Enum]) -> Kind:
    """Return the kind of several of these members of an enum, by their values."""
    return names("KIND[,KIND]", lambda option, value: parse_choices(option, value, members))
