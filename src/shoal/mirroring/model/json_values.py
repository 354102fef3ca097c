"""Values read from JSON, which may be of any type: another program may have written them."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["typed"]

T = TypeVar("T")


def typed(kind: type[T], value: Any) -> T:
    """Return a value if it is exactly of this kind; raises TypeError."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value
