"""Well-formed messages by kio, a codec that shares no code with the one under test.

If a length is malformed, kio may abort the process: pass it only well-formed bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from functools import cache
from typing import Any

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

__all__ = ["encode_request", "encode_response", "random_message", "request_schema", "response_schema"]

_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_ERROR_CODES = tuple(ErrorCode)
_TEXTS = ("", "a", "orders", "κ\N{FISH}")


def request_schema(api_key: int, version: int) -> Any:
    """Return kio's class of a request, or None if it has no such version."""
    try:
        return load_request_schema(api_key, version)
    except KioIndexError:
        return None


def response_schema(api_key: int, version: int) -> Any:
    """Return kio's class of a response, or None if it has no such version."""
    try:
        return load_response_schema(api_key, version)
    except KioIndexError:
        return None


def encode_request(message: Any, correlation_id: int, client_id: str | None) -> bytes:
    """Write a request and its header, without a size."""
    header = message.__header_schema__(
        request_api_key=message.__api_key__,
        request_api_version=message.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _written(header, message)


def encode_response(message: Any, correlation_id: int) -> bytes:
    """Write a response and its header, without a size."""
    return _written(message.__header_schema__(correlation_id=correlation_id), message)


def _written(*entities: Any) -> bytes:
    out = io.BytesIO()
    for entity in entities:
        entity_writer(type(entity))(out, entity)
    return out.getvalue()


def random_message(schema: Any, draw: random.Random) -> Any:
    """Generate a value for every field, including those that have a default."""
    hints = _hints(schema)
    return schema(
        **{
            field.name: _value(hints[field.name], field.metadata.get("kafka_type"), draw)
            for field in dataclasses.fields(schema)
        }
    )


@cache
def _hints(schema: Any) -> dict[str, Any]:
    return typing.get_type_hints(schema)


def _value(hint: Any, kafka_type: str | None, draw: random.Random) -> Any:
    if isinstance(hint, types.UnionType):
        if draw.random() < 0.25:
            return None
        (hint,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        return tuple(_value(element, kafka_type, draw) for _ in range(draw.choice([0, 1, 1, 2, 3])))
    if dataclasses.is_dataclass(hint):
        return random_message(hint, draw)
    assert kafka_type is not None
    return _primitive(kafka_type, draw)


def _primitive(kafka_type: str, draw: random.Random) -> Any:
    match kafka_type:
        case "bool":
            return draw.random() < 0.5
        case "int8" | "int16" | "int32" | "int64":
            return _integer(int(kafka_type[3:]) - 1, draw)
        case "uint16":
            return draw.randrange(2**16)
        case "float64":
            return draw.choice([0.0, -1.5, 1e300])
        case "string":
            return "x" * draw.randrange(120, 300) if _rarely(draw) else draw.choice(_TEXTS)
        case "bytes" | "records":
            return draw.randbytes(draw.randrange(120, 300) if _rarely(draw) else draw.randrange(10))
        case "uuid":
            return uuid.UUID(bytes=draw.randbytes(16))
        case "error_code":
            return draw.choice(_ERROR_CODES)
        case "timedelta_i32":
            return _integer(31, draw) * _MILLISECOND
        case "timedelta_i64":
            return draw.randrange(2**45) * _MILLISECOND
        case "datetime_i64":
            return _EPOCH + draw.randrange(2**45) * _MILLISECOND
    raise NotImplementedError(kafka_type)


def _rarely(draw: random.Random) -> bool:
    """Draw long values rarely, so that a test can quickly cut a frame at each of its bytes."""
    return draw.random() < 0.03


def _integer(bits: int, draw: random.Random) -> int:
    high: int = 2**bits
    low = -high
    return draw.choice([0, 1, -1, low, high - 1, draw.randrange(low, high)])
