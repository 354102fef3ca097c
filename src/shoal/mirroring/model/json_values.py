"""Values read from JSON, which may be of any type: another program may have written them."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["read_value", "typed", "versioned"]

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


def read_value(kind: Any, value: Any) -> Any:
    """
    Return a value of JSON as a type: a dataclass, named tuple, tuple, mapping, optional or plain one.

    A dataclass is an object with all its fields; names that it does not have are ignored. Its own
    ``__post_init__`` checks the values.

    Raises:
        KeyError: A field is missing.
        TypeError: A value is of another type.
        ValueError: A tuple has another length, or a check failed.

    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (other,) = (each for each in inner if each is not type(None))
        return None if value is None else read_value(other, value)
    if is_dataclass(kind) and isinstance(kind, type):
        found = typed(dict, value)
        return kind(**{name: read_value(hint, found[name]) for name, hint in get_type_hints(kind).items()})
    if origin is tuple and inner[-1] is ...:
        return tuple(read_value(inner[0], each) for each in typed(list, value))
    if origin is tuple:
        return tuple(read_value(*pair) for pair in zip(inner, typed(list, value), strict=True))
    if origin is Mapping:
        return {
            read_value(inner[0], name): read_value(inner[1], each)
            for name, each in typed(dict, value).items()
        }
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = get_type_hints(kind).values()
        return kind(*(read_value(*pair) for pair in zip(hints, typed(list, value), strict=True)))
    return float(value) if kind is float and type(value) is int else typed(kind, value)
