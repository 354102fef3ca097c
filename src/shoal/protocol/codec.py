"""
Frames to messages and back, on ``kafka.protocol``'s message classes.

The only module that touches that library's encoding, so that it can be
replaced. The classes are generated from Kafka's own message definitions;
an instance has the fields of the definition, in snake case.

A frame here is what follows the four bytes of its size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import ProtocolError
from .apis import ApiKey

__all__ = [
    "RequestHeader",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "read_correlation_id",
    "read_request_header",
    "request_class",
    "response_class",
]

_REQUEST_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")

#: Where the library keeps an API's messages.
_MODULES = {
    ApiKey.PRODUCE: "producer.produce",
    ApiKey.FETCH: "consumer.fetch",
    ApiKey.LIST_OFFSETS: "consumer.offsets",
    ApiKey.METADATA: "metadata.metadata",
    ApiKey.OFFSET_COMMIT: "consumer.group",
    ApiKey.OFFSET_FETCH: "consumer.group",
    ApiKey.FIND_COORDINATOR: "metadata.find_coordinator",
    ApiKey.JOIN_GROUP: "consumer.group",
    ApiKey.HEARTBEAT: "consumer.group",
    ApiKey.LEAVE_GROUP: "consumer.group",
    ApiKey.SYNC_GROUP: "consumer.group",
    ApiKey.DESCRIBE_GROUPS: "admin.groups",
    ApiKey.LIST_GROUPS: "admin.groups",
    ApiKey.SASL_HANDSHAKE: "sasl",
    ApiKey.SASL_AUTHENTICATE: "sasl",
    ApiKey.API_VERSIONS: "metadata.api_versions",
    ApiKey.CREATE_TOPICS: "admin.topics",
    ApiKey.DELETE_TOPICS: "admin.topics",
    ApiKey.CREATE_PARTITIONS: "admin.topics",
    ApiKey.DELETE_RECORDS: "admin.topics",
    ApiKey.INIT_PRODUCER_ID: "producer.transaction",
    ApiKey.ADD_PARTITIONS_TO_TXN: "producer.transaction",
    ApiKey.ADD_OFFSETS_TO_TXN: "producer.transaction",
    ApiKey.END_TXN: "producer.transaction",
    ApiKey.WRITE_TXN_MARKERS: "producer.transaction",
    ApiKey.TXN_OFFSET_COMMIT: "producer.transaction",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "consumer.offsets",
    ApiKey.DESCRIBE_CONFIGS: "admin.configs",
    ApiKey.ALTER_CONFIGS: "admin.configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "admin.configs",
    ApiKey.DELETE_GROUPS: "admin.groups",
    ApiKey.DESCRIBE_PRODUCERS: "admin.transactions",
    ApiKey.DESCRIBE_CLUSTER: "admin.cluster",
}


@cache
def _message_class(api_key: ApiKey, suffix: str) -> Any:
    name = "".join(word.capitalize() for word in api_key.name.split("_")) + suffix
    return getattr(import_module(f"kafka.protocol.{_MODULES[api_key]}"), name)


def request_class(api_key: ApiKey) -> Any:
    """Return the class of an API's request; nested structures are attributes of it."""
    return _message_class(api_key, "Request")


def response_class(api_key: ApiKey) -> Any:
    """Return the class of an API's response; nested structures are attributes of it."""
    return _message_class(api_key, "Response")


class RequestHeader(NamedTuple):
    """The part of a request's header that every version has."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(request: Any, correlation_id: int, client_id: str) -> bytes:
    """Encode a request, its header and its size, ready for a socket."""
    request.with_header(correlation_id, client_id)
    frame: bytes = request.encode(header=True, framed=True)
    return frame


def decode_response(api_key: ApiKey, version: int, frame: memoryview) -> Any:
    """
    Decode a response; byte fields are copies.

    Raises:
        ProtocolError: It is cut short or malformed.

    """
    return _decoded(lambda: response_class(api_key).decode(frame, version=version, header=True), api_key)


def encode_response(response: Any, correlation_id: int) -> bytes:
    """Encode a response, its header and its size, ready for a socket."""
    response.with_header(correlation_id)
    frame: bytes = response.encode(header=True, framed=True)
    return frame


def decode_request(header: RequestHeader, frame: memoryview) -> Any:
    """
    Decode the request of a frame whose header was read before.

    Raises:
        ProtocolError: It is cut short or malformed.

    """
    api_key = ApiKey(header.api_key)
    return _decoded(
        lambda: request_class(api_key).decode(frame, version=header.api_version, header=True), api_key
    )


def read_request_header(frame: memoryview) -> RequestHeader:
    """
    Read a request's header, whatever its API and version.

    Raises:
        ProtocolError: It is cut short or its client id is no UTF-8.

    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        start = _REQUEST_HEADER.size
        client_id = None if length < 0 else str(frame[start : start + length], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"no request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id)


def read_correlation_id(frame: memoryview) -> int:
    """
    Read the first field of a response.

    Raises:
        ProtocolError: The frame has not even that.

    """
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    except struct.error as error:
        raise ProtocolError(f"a response of {len(frame)} bytes") from error
    return correlation_id


def _decoded(decode: Callable[[], Any], api_key: ApiKey) -> Any:
    try:
        return decode()
    # Malformed input surfaces from generated code as one of these.
    except (
        struct.error,
        IndexError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        EOFError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ProtocolError(f"malformed {api_key.name} message: {error!r}") from error
