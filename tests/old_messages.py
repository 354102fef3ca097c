"""Messages of the versions that Kafka 4 has removed, by a second codec.

kafka-python's former message classes were written by hand, version for version, when these
versions were current; shoal uses classes that are generated from Kafka's definitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from kafka.protocol.old import types

__all__ = ["encode_request", "encode_response", "random_message", "schema"]

_MODULES = (
    "admin",
    "commit",
    "fetch",
    "group",
    "list_offsets",
    "metadata",
    "offset_for_leader_epoch",
    "produce",
)

_INTEGER_BITS = {types.Int8: 7, types.Int16: 15, types.Int32: 31, types.Int64: 63}


@cache
def _classes() -> dict[tuple[int, int, bool], Any]:
    modules = [vars(import_module(f"kafka.protocol.old.{name}")) for name in _MODULES]
    found: Iterator[Any] = (each for module in modules for each in module.values() if isinstance(each, type))
    return {
        (each.API_KEY, each.API_VERSION, each.is_request()): each
        for each in found
        if isinstance(getattr(each, "API_KEY", None), int)
    }


def schema(api_key: int, version: int, *, is_request: bool) -> Any:
    """Return the class of a message, or None if there is none."""
    return _classes().get((api_key, version, is_request))


def encode_request(message: Any, correlation_id: int, client_id: str) -> bytes:
    """Write a request and its header, without a size."""
    message.with_header(correlation_id, client_id)
    frame: bytes = message.encode(header=True)
    return frame


def encode_response(message: Any, correlation_id: int) -> bytes:
    """Write a response and its header, without a size."""
    message.with_header(correlation_id)
    frame: bytes = message.encode(header=True)
    return frame


def random_message(message_class: Any, draw: random.Random) -> Any:
    """Generate a value for every field."""
    return message_class(*(_value(field, draw) for field in message_class.SCHEMA.fields))


def _value(field: Any, draw: random.Random) -> Any:
    if isinstance(field, types.Schema):
        return tuple(_value(each, draw) for each in field.fields)
    if isinstance(field, types.Array):
        return [_value(field.array_of, draw) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
    if isinstance(field, types.String):
        return draw.choice(["", "a", "orders", "κ"])
    if field is types.Boolean:
        return draw.random() < 0.5
    if field is types.Bytes:
        return draw.randbytes(draw.randrange(10))
    high = 2 ** _INTEGER_BITS[field]
    return draw.choice([0, 1, -1, -high, high - 1, draw.randrange(-high, high)])
