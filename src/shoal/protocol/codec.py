"""
Encode and decode messages by the classes of ``kafka.protocol``.

No other module uses the encoding of that library, so that it can be replaced.
The classes are generated from Kafka's own message definitions: an instance has the fields of the definition,
in snake case.

A frame is a message without the four bytes of its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any, NamedTuple

from ..error_codes import ErrorCode
from ..errors import ProtocolError
from .apis import ApiKey
from .primitives import expect_end, read_nullable_string, skip_tagged_fields, unpack

__all__ = [
    "RequestHeader",
    "ValueLimit",
    "decode_fields",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "generate_code",
    "read_correlation_id",
    "read_request_header",
    "request_class",
    "response_class",
]

_REQUEST_HEADER = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")

_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)

#: The largest frame for the compiled decoder: metadata of some 1,500 partitions. The worst input of 64 KiB
#: takes half a second, and one of 1 MiB would take minutes.
LARGEST_FOR_COMPILED = 64 * 1024

#: The types whose null is a length of -1 on the wire.
_NULLABLE_TYPES = frozenset({"string", "bytes", "records"})
_ARRAYS_OF_NULLABLES = frozenset(f"[]{name}" for name in _NULLABLE_TYPES)

#: The library's packages with messages.
_PACKAGES = ("consumer", "producer", "metadata", "admin", "sasl")


@cache
def _message_class(api_key: ApiKey, suffix: str) -> Any:
    # This import comes first, since it loads the others. The library's modules import each other in circles:
    # if two threads began with different ones, they would wait for each other (Python's _DeadlockError).
    import_module("kafka")
    name = "".join(word.capitalize() for word in api_key.name.split("_")) + suffix
    packages = (import_module(f"kafka.protocol.{package}") for package in _PACKAGES)
    return next(getattr(package, name) for package in packages if hasattr(package, name))


def request_class(api_key: ApiKey) -> Any:
    """Return the class of an API's request; nested structures are attributes of it."""
    return _message_class(api_key, "Request")


def response_class(api_key: ApiKey) -> Any:
    """Return the class of an API's response; nested structures are attributes of it."""
    return _message_class(api_key, "Response")


def generate_code(api_key: ApiKey, version: int) -> None:
    """Generate the code for an API's request and response now, not when it is needed first."""
    for message_class in (request_class(api_key), response_class(api_key)):
        flexible = message_class.flexible_version_q(version)
        options = {"compact": flexible, "tagged": flexible}
        if message_class is request_class(api_key):
            message_class._struct.compiled_encode_into(version, **options)
        else:
            message_class._struct.compiled_decode_from(version, **options, data_class=message_class)
            _checked_fields(message_class, version)


class RequestHeader(NamedTuple):
    """The fields of a request's header that every version has."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class ValueLimit(NamedTuple):
    """The most values of a message, and the remedy if a message has more."""

    most: int
    remedy: str


def encode_request(request: Any, correlation_id: int, client_id: str) -> bytes:
    """Encode a request, its header and its size, ready for a socket."""
    request.with_header(correlation_id, client_id)
    frame: bytes = request.encode(header=True, framed=True)
    return frame


def decode_response(
    api_key: ApiKey, version: int, frame: memoryview, values: ValueLimit | None = None
) -> Any:
    """
    Decode a response; byte fields are copies.

    If a broker does not support the version of an ApiVersions request, it answers in version 0 with error 35
    (KIP-511). That response is decoded as version 0.

    Args:
        frame: The response, without its size.
        values: The bound of the values in the response, and so of its memory.

    Raises:
        ProtocolError: The response is incomplete, malformed, longer than its fields, or has too many values.

    """
    message_class = response_class(api_key)
    correlation_id = read_correlation_id(frame)
    position = _CORRELATION_ID.size
    if api_key == ApiKey.API_VERSIONS:  # its header is never flexible
        if frame[position : position + 2] == _UNSUPPORTED_VERSION:
            version = 0
    elif message_class.flexible_version_q(version):
        position = skip_tagged_fields(frame, position)
    response, end = _decode_body(message_class, version, frame, position, values)
    expect_end(frame, end)
    response.with_header(correlation_id)
    return response


def encode_response(response: Any, correlation_id: int, version: int | None = None) -> bytes:
    """
    Encode a response, its header and its size, ready for a socket.

    Args:
        correlation_id: The id of the request.
        version: The version of the request, unless the response has it.

    """
    if version is not None:
        response.API_VERSION = version
    response.with_header(correlation_id)
    frame: bytes = response.encode(header=True, framed=True)
    return frame


def decode_request(header: RequestHeader, frame: memoryview) -> Any:
    """
    Decode a request after :func:`read_request_header`; byte fields are copies.

    Bytes after the last field are ignored, as brokers do: librdkafka sends some with a Metadata request for
    all topics.

    Raises:
        ProtocolError: The request is incomplete or malformed, or its API is not in :class:`ApiKey`.

    """
    try:
        message_class = request_class(ApiKey(header.api_key))
    except ValueError:
        raise ProtocolError(f"a request of API {header.api_key}, which shoal does not support") from None
    position = _read_client_id(frame)[1]
    if message_class.flexible_version_q(header.api_version):
        position = skip_tagged_fields(frame, position)
    request, _ = _decode_body(message_class, header.api_version, frame, position)
    request.with_header(header.correlation_id, header.client_id)
    return request


def read_request_header(frame: memoryview) -> RequestHeader:
    """
    Read the header of a request of any API and version.

    Raises:
        ProtocolError: The header is incomplete, or its client id is not UTF-8.

    """
    api_key, version, correlation_id = unpack(_REQUEST_HEADER, frame, 0)
    return RequestHeader(api_key, version, correlation_id, _read_client_id(frame)[0])


def _read_client_id(frame: memoryview) -> tuple[str | None, int]:
    # Never compact: a broker must read the client id also in versions that it does not support.
    return read_nullable_string(frame, _REQUEST_HEADER.size, compact=False)


def read_correlation_id(frame: memoryview) -> int:
    """
    Read the correlation id, the first field of a response.

    Raises:
        ProtocolError: The frame is shorter than a correlation id.

    """
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    except struct.error as error:
        raise ProtocolError(f"a response of {len(frame)} bytes") from error
    return correlation_id


def decode_fields(message_class: Any, version: int, frame: memoryview, position: int) -> Any:
    """
    Decode the fields of a message from a position on; bytes behind them are ignored.

    Raises:
        ProtocolError: The fields are incomplete or malformed.

    """
    return _decode_body(message_class, version, frame, position)[0]


class _Counted(BytesIO):
    """A frame that counts reads: the library reads each value by itself."""

    def __init__(self, name: str, frame: memoryview, limit: ValueLimit) -> None:
        super().__init__(frame)
        self._message = f"a {name} of {len(frame):,} bytes"
        self._limit = limit
        self._left = limit.most

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ProtocolError(
                f"{self._message} with more than {self._limit.most:,} values. {self._limit.remedy}"
            )
        return super().read(size)


def _decode_body(
    message_class: Any, version: int, frame: memoryview, position: int, values: ValueLimit | None = None
) -> tuple[Any, int]:
    """
    Decode the body of a message; return the message and the position after it.

    The library has two decoders. The compiled one is four times as fast, and trusts its input. It slices
    without a check of the end, so this function checks the position that it returns. Its time is quadratic in
    the length of a varint and in the number of tagged fields. So large frames go to the other decoder, which
    checks each field.
    """
    if not 0 <= version <= message_class.max_version:
        raise ProtocolError(f"{message_class.name} has no version {version}")
    flexible = message_class.flexible_version_q(version)
    layout = message_class._struct
    options = {"compact": flexible, "tagged": flexible, "data_class": message_class}
    try:
        if len(frame) <= LARGEST_FOR_COMPILED:
            message, end = layout.compiled_decode_from(version, **options)(frame, position)
        else:
            body = frame[position:]
            stream = BytesIO(body) if values is None else _Counted(message_class.name, body, values)
            message = layout.decode(stream, version=version, **options)
            end = position + stream.tell()
    except ProtocolError:
        raise  # too many values
    except Exception as error:  # the generated code raises many types on malformed input
        raise ProtocolError(f"malformed {message_class.name}: {error!r}") from error
    if end > len(frame):
        raise ProtocolError(f"a {message_class.name} of {len(frame)} bytes, but its fields end at {end}")
    _refuse_nulls(message_class, message, _checked_fields(message_class, version))
    return message, end


class _Checked(NamedTuple):
    """
    A field that the library may decode as None although the protocol allows no null in it.

    Attributes:
        is_nullable: Whether the field itself may be null.
        is_array: Whether the field is an array, whose elements may not be null.
        fields: The fields to check in the structure, or in each element.

    """

    name: str
    is_nullable: bool
    is_array: bool
    fields: tuple[_Checked, ...]


@cache
def _checked_fields(message_class: Any, version: int) -> tuple[_Checked, ...]:
    return _checked_of(message_class._struct.fields.values(), version)


def _checked_of(fields: Iterable[Any], version: int) -> tuple[_Checked, ...]:
    checked = []
    for field in fields:
        if not field.for_version_q(version):
            continue
        nested = _checked_of((field.fields or {}).values(), version)
        # A structure in a tagged field is None if the message does not have it.
        is_nullable = field.nullable_for_version_q(version) or (field.is_struct() and field.tag is not None)
        has_elements = field.is_array() and bool(nested or field.type_str in _ARRAYS_OF_NULLABLES)
        may_be_null = field.is_array() or field.is_struct() or field.type_str in _NULLABLE_TYPES
        if may_be_null and (nested or has_elements or not is_nullable):
            checked.append(_Checked(field.name, is_nullable, has_elements, nested))
    return tuple(checked)


def _refuse_nulls(message_class: Any, message: Any, fields: Sequence[_Checked]) -> None:
    """
    Refuse null as Kafka's own reader does: "non-nullable field was serialized as null".

    The library returns None for it, but the readers of the message expect a value.
    """
    for name, is_nullable, is_array, nested in fields:
        value = getattr(message, name)
        if value is None:
            if not is_nullable:
                raise ProtocolError(f"malformed {message_class.name}: its {name} is null")
        elif is_array:
            for element in value:
                if nested:
                    _refuse_nulls(message_class, element, nested)
                elif element is None:
                    raise ProtocolError(f"malformed {message_class.name}: null in its {name}")
        elif nested:
            _refuse_nulls(message_class, value, nested)
