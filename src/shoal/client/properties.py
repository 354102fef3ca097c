"""
Tables of properties by Java's names, for the raw consumer and producer.

A table says which properties there are, what each may be, and its default.
What is in no table is refused, with the nearest name that there is: a typing
error must not become a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..nearest import did_you_mean
from .config import KNOWN_PROPERTIES

__all__ = [
    "MOST_DECOMPRESSED",
    "Property",
    "boolean",
    "by_property",
    "bytes_only",
    "integer",
    "names",
    "one_of",
    "read_properties",
    "text",
]

#: The option that bounds what has to be opened, as the mirror's ``--max-decompressed-bytes`` does.
MOST_DECOMPRESSED = "shoal.max.decompressed.bytes"

#: The same, in the sentences of those that open batches.
_MIRROR_S_OPTION = "--max-decompressed-bytes"

_INT32_MAX = 2**31 - 1


def by_property(reason: str) -> str:
    """Return why a batch cannot be opened with the property named in place of the mirror's option."""
    return reason.replace(_MIRROR_S_OPTION, MOST_DECOMPRESSED)


@dataclass(frozen=True, slots=True)
class Property:
    """
    One property.

    Attributes:
        default: As it would be written; None where it is not set.
        read: Makes a value of the text; raises ValueError with a phrase that says what it must be.

    """

    default: str | None
    read: Callable[[str], Any]


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value.lower() == "true"


def integer(smallest: int = 0, largest: int = _INT32_MAX) -> Callable[[str], int]:
    def read(value: str) -> int:
        digits = value.removeprefix("-")
        # The digits first: Python itself refuses to read a number of thousands of them.
        if not digits.isdecimal() or len(digits) > 19 or not smallest <= int(value) <= largest:
            raise ValueError(f"is no number from {smallest} to {largest}")
        return int(value)

    return read


def one_of(*values: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(f"is none of {', '.join(values)}")
        return value.lower()

    return read


def bytes_only(java_class: str) -> Callable[[str], str]:
    """Take Java's serializer or deserializer of bytes, and no other: keys and values are bytes here."""

    def read(value: str) -> str:
        if value != java_class:
            raise ValueError(
                f"cannot be honoured: keys and values are bytes here; remove it, or say {java_class}"
            )
        return value

    return read


def names(value: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in value.split(","))))


def read_properties(
    properties: Mapping[str, object], table: Mapping[str, Property], where: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Read properties by a table.

    Args:
        properties: By Java's names; values as text, or as Python's own: True, 500, ["range"].
        table: Those that mean something to the caller.
        where: What errors call them.

    Returns:
        The value of each property of the table, and all properties as text, for
        :meth:`~.config.ClientConfig.from_properties`.

    Raises:
        ConfigError: A name that is not known, or a value that makes no sense.

    """
    if not isinstance(properties, Mapping):
        raise ConfigError(f"{where} is a dict of properties, not of type {type(properties).__name__}")
    known = table.keys() | KNOWN_PROPERTIES
    for name in properties:
        if name not in known:
            near = did_you_mean(str(name), known)
            raise ConfigError(f"{where}: there is no property {name!r}{near}")
    written = {name: _as_text(value) for name, value in properties.items() if value is not None}
    values: dict[str, Any] = {}
    for name, known_property in table.items():
        value = written.get(name, known_property.default)
        try:
            values[name] = None if value is None else known_property.read(value.strip())
        except ValueError as error:
            raise ConfigError(f"{where}: {name}={value} {error}") from None
    return values, written


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
