"""Values read from JSON, which may be of any type: another program may have written them."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["typed", "versioned"]

T = TypeVar("T")


def typed(kind: type[T], value: Any) -> T:
    """Return a value if it is exactly of this kind; raises TypeError."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def versioned(values: Any, kind: str, version: int) -> dict[str, Any]:
    """
    Return an object of a file if its ``type`` is ``kind`` and its ``version`` at most ``version``.

    Raises:
        ValueError: The object has another type, or a later version.
        KeyError: The object lacks type or version.
        TypeError: The value is no object.

    """
    found: dict[str, Any] = typed(dict, values)
    if found["type"] != kind:
        raise ValueError(f"its type is {found['type']!r}")
    if typed(int, found["version"]) > version:
        raise ValueError(
            f"it has version {found['version']}, and this shoal reads {version}. Use a later one"
        )
    return found
