"""
Values of options, as users give them: texts, of the command line and of Spark, or Python's own.

Each function reads one kind of value, and raises a :class:`~shoal.errors.ConfigError` that names the option
and the value.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .errors import ConfigError
from .nearest import did_you_mean
from .net.address import Address, parse_bootstrap

__all__ = [
    "MOST_DIGITS",
    "check_range",
    "parse_bytes",
    "parse_choice",
    "parse_choices",
    "parse_flag",
    "parse_key_values",
    "parse_listen",
    "parse_seconds",
    "parse_text",
    "parse_whole",
]

E = TypeVar("E", bound=enum.Enum)

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}

#: No option takes a number with more digits. Python itself refuses to read one with thousands.
MOST_DIGITS = 18


def parse_bytes(option: str, value: object) -> int:
    """Read a number of bytes: ``16777216``, ``16384k`` or ``16m``, as Spark writes sizes."""
    match = re.fullmatch(r"([0-9]+)([kmg]?)b?", str(value).lower())
    if match is None or len(match[1]) > MOST_DIGITS:
        raise ConfigError(f"{option}: invalid size {value!r}. Use a number of bytes, such as 16777216 or 16m")
    return int(match[1]) * _UNITS[match[2]]


def parse_whole(option: str, value: object) -> int:
    """Read a whole number that is not negative."""
    text = str(value)
    if not re.fullmatch(r"[0-9]+", text) or len(text) > MOST_DIGITS:
        raise ConfigError(f"{option} {text!r} is not a whole number from 0 on")
    return int(text)


def parse_seconds(option: str, value: object) -> float:
    """Read a number of seconds."""
    text = str(value)
    try:
        # Python itself also takes 1_0, and digits of other scripts.
        if "_" in text or not text.isascii():
            raise ValueError
        return float(text)
    except ValueError:
        raise ConfigError(f"{option} {value!r} is not a number of seconds") from None


def parse_flag(option: str, value: object) -> bool:
    """Read ``true`` or ``false``."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{option}: {value!r} is not one of true, false")
    return text == "true"


def parse_choice(option: str, value: object, choices: type[E]) -> E:
    """Read the value of an enum's member."""
    if isinstance(value, choices):
        return value
    try:
        return choices(str(value).lower())
    except ValueError:
        raise ConfigError(_not_one_of(option, value, [str(each.value) for each in choices])) from None


def parse_choices(option: str, value: str | Iterable[str | E], choices: Iterable[E]) -> frozenset[E]:
    """Read several of these members of an enum: their values, separated by commas, or themselves."""
    members: dict[object, E] = {each.value: each for each in choices}
    parts = value.split(",") if isinstance(value, str) else value
    found = [each if isinstance(each, enum.Enum) else each.strip().lower() for each in parts]
    for each in found:
        if not isinstance(each, enum.Enum) and each and each not in members:
            raise ConfigError(_not_one_of(option, each, list(map(str, members))))
    return frozenset(each if isinstance(each, enum.Enum) else members[each] for each in found if each)


def _not_one_of(option: str, value: object, values: Sequence[str]) -> str:
    near = did_you_mean(str(value), values)
    return f"{option}: {value!r} is not one of {', '.join(values)}{near}"


def parse_text(option: str, value: object) -> str:
    """Read a text that cannot be empty, such as the name of a file or a group."""
    if not str(value):
        raise ConfigError(f"{option} cannot be empty")
    return str(value)


def parse_listen(option: str, value: object) -> Address:
    """Read the address of a server, ``HOST:PORT``. Port 0 stands for any free port."""
    text = str(value)
    host, _, port = text.rpartition(":")
    if text.startswith(":") and not host:
        port = text if len(text) > 1 else ":PORT"
        raise ConfigError(
            f"{option} {text!r}: the host is missing. Use 127.0.0.1{port} to listen locally, or "
            f"0.0.0.0{port} on all interfaces"  # noqa: S104 a remedy
        )
    try:
        # An address that clients connect to has no port 0, but a server may listen on it.
        (address,) = parse_bootstrap(f"{host}:1" if port == "0" else text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is not HOST:PORT, such as 127.0.0.1:9100 or [::1]:9100"
        ) from None
    return Address(address.host, 0) if port == "0" else address


def parse_key_values(
    option: str, value: Mapping[str, Any] | Iterable[str | tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Read a mapping, pairs, or repeated ``KEY=VALUE``. The last value of a key wins."""
    pairs = value.items() if isinstance(value, Mapping) else value
    values: dict[str, str] = {}
    for each in pairs:
        key, equals, text = each.partition("=") if isinstance(each, str) else (each[0], "=", str(each[1]))
        if not equals or not key.strip():
            raise ConfigError(f"{option} {each!r} is not KEY=VALUE")
        values[key.strip()] = text.strip()
    return tuple(values.items())


def check_range(option: str, value: float, least: float, most: float, unit: str = "") -> None:
    """Check a number against its bounds, both included. Not-a-number is outside of all bounds."""
    if not least <= value <= most:
        shown = f"{value:g}" if isinstance(value, float) else value
        raise ConfigError(f"{option} '{shown}': not between {least} and {most}{unit and f' {unit}'}")
