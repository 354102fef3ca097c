"""
Tables of properties by Java's names, for the raw consumer and producer.

A table has the reader and the default of each property.
A property in no table is refused, with the most similar name: a typing error must not become a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, ExpandsTooFar, UnsupportedBatch
from ..nearest import did_you_mean
from ..records.compression import DEFAULT_LIMIT_BYTES
from .config import KNOWN_PROPERTIES

__all__ = [
    "DECOMPRESSED_LIMIT",
    "MOST_DECOMPRESSED",
    "Property",
    "boolean",
    "bytes_only",
    "integer",
    "names",
    "one_of",
    "read_properties",
    "reason_with_property",
    "text",
]

#: The property for the largest decompressed batch.
MOST_DECOMPRESSED = "shoal.max.decompressed.bytes"

_INT32_MAX = 2**31 - 1


def reason_with_property(error: UnsupportedBatch) -> str:
    """Return an error's reason, with the property that sets the limit if the batch is above it."""
    return f"{error.reason} ({MOST_DECOMPRESSED})" if isinstance(error, ExpandsTooFar) else error.reason


@dataclass(frozen=True, slots=True)
class Property:
    """
    One property.

    Attributes:
        default: The default as text; None if there is none.
        read: Converts the text; raises ValueError with a phrase about the problem.

    """

    default: str | None
    read: Callable[[str], Any]


def text(value: str) -> str:
    """Read any text."""
    return value


def boolean(value: str) -> bool:
    """Read true or false."""
    if value.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false. Set one of them")
    return value.lower() == "true"


def integer(smallest: int = 0, largest: int = _INT32_MAX) -> Callable[[str], int]:
    """Return a reader of whole numbers within bounds."""

    def read(value: str) -> int:
        digits = value.removeprefix("-")
        # Digits are checked first: Python itself refuses to read a number with thousands of them.
        if not digits.isdecimal() or len(digits) > 19 or not smallest <= int(value) <= largest:
            raise ValueError(f"is not a number from {smallest} to {largest}")
        return int(value)

    return read


#: The limit of :data:`MOST_DECOMPRESSED`.
DECOMPRESSED_LIMIT = Property(str(DEFAULT_LIMIT_BYTES), integer(1, 2**40))


def one_of(*values: str) -> Callable[[str], str]:
    """Return a reader of some words, in any case."""

    def read(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(f"is none of {', '.join(values)}")
        return value.lower()

    return read


def bytes_only(java_class: str) -> Callable[[str], str]:
    """Accept only Java's serializer or deserializer of bytes: keys and values are bytes here."""

    def read(value: str) -> str:
        if value != java_class:
            raise ValueError(
                f"is not supported: keys and values are bytes here. Remove it, or set it to {java_class}"
            )
        return value

    return read


def names(value: str) -> tuple[str, ...]:
    """Read a list of names with commas between them."""
    return tuple(filter(None, (each.strip() for each in value.split(","))))


def read_properties(
    properties: Mapping[str, object], table: Mapping[str, Property], where: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Read properties by a table.

    Args:
        properties: The properties by Java's names; values are texts or Python's own: True, 500, ["range"].
        table: The properties that the caller supports.
        where: Their source in errors.

    Returns:
        The value of each property of the table, and all properties as text, for
        :meth:`~.config.ClientConfig.from_properties`.

    Raises:
        ConfigError: A name is unknown, or a value is invalid.

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
