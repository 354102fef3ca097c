"""Values as JSON, and read from JSON, which may be of any type: another program may have written it."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["read_value", "to_json", "typed", "versioned"]

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


def to_json(value: Any) -> Any:
    """Return a value as JSON, so that :func:`read_value` reads it."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        return {each.name: to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        pairs = [[to_json(name), to_json(each)] for name, each in value.items()]
        return dict(pairs) if all(isinstance(name, str) for name in value) else pairs
    if isinstance(value, tuple | list | frozenset):
        return [to_json(each) for each in value]
    return value


_hints = cache(get_type_hints)


def read_value(kind: Any, value: Any) -> Any:
    """
    Return a value of JSON as a type: a dataclass, tuple, list, set, mapping, enum, optional or plain one.

    A dataclass is an object with all its fields; names that it does not have are ignored. Of several
    dataclasses, the value is of the one with the same fields. Its own ``__post_init__`` checks the values. A
    mapping by other keys than texts is a list of pairs. A class may have a form of its own, by ``as_json``
    and ``of_json``.

    Raises:
        KeyError: A field is missing.
        TypeError: A value is of another type.
        ValueError: A tuple has another length, or a check failed.

    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        kinds = [each for each in inner if each is not type(None)]
        if value is None and len(kinds) < len(inner):
            return None
        if len(kinds) > 1:
            names = typed(dict, value).keys()
            kinds = [each for each in kinds if _hints(each).keys() == names]
        (other,) = kinds
        return read_value(other, value)
    if hasattr(kind, "of_json"):
        return kind.of_json(value)
    if is_dataclass(kind) and isinstance(kind, type):
        found = typed(dict, value)
        return kind(**{name: read_value(hint, found[name]) for name, hint in _hints(kind).items()})
    if origin is Sequence:
        return [read_value(inner[0], each) for each in typed(list, value)]
    if origin is frozenset or (origin is tuple and inner[-1] is ...):
        return origin(read_value(inner[0], each) for each in typed(list, value))
    if origin is tuple:
        return tuple(read_value(*pair) for pair in zip(inner, typed(list, value), strict=True))
    if origin is Mapping:
        pairs = typed(dict, value).items() if value == {} or inner[0] is str else typed(list, value)
        return {read_value(inner[0], name): read_value(inner[1], each) for name, each in pairs}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return kind(
            *(read_value(*pair) for pair in zip(_hints(kind).values(), typed(list, value), strict=True))
        )
    return float(value) if kind is float and type(value) is int else typed(kind, value)
