"""Reports as values of JSON, from their fields."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

from .topic_partition import TopicPartition

__all__ = ["as_json"]


def as_json(value: object) -> Any:
    """Return a value of a report for JSON: enums by their values, dataclasses by their fields."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, TopicPartition):
        return str(value)
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(as_json(name)): as_json(each) for name, each in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(as_json, value))
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value
