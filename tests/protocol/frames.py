"""Frames of every API, version and direction, written by other libraries."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
    request_class,
    response_class,
)
from tests import kio_messages, old_messages

__all__ = ["CASES", "CLIENT_ID", "CORRELATION_ID", "Case"]

CORRELATION_ID = 0x01020304
CLIENT_ID = "client"


class Case(NamedTuple):
    """One API, version and direction, and another library's class for it."""

    api_key: ApiKey
    version: int
    is_request: bool
    schema: Any
    codec: Any = kio_messages

    def __str__(self) -> str:
        return f"{self.api_key.name}-v{self.version}-{self.direction}"

    @property
    def direction(self) -> str:
        return "request" if self.is_request else "response"

    def frame(self, draw: random.Random) -> bytes:
        """Have the other library write a message with something in every field."""
        message = self.codec.random_message(self.schema, draw)
        if self.is_request:
            return bytes(self.codec.encode_request(message, CORRELATION_ID, CLIENT_ID))
        return bytes(self.codec.encode_response(message, CORRELATION_ID))

    def decode(self, frame: bytes) -> Any:
        if self.is_request:
            header = read_request_header(memoryview(frame))
            return decode_request(header, memoryview(frame))
        return decode_response(self.api_key, self.version, memoryview(frame))

    def encode(self, message: Any) -> bytes:
        if self.is_request:
            return encode_request(message, CORRELATION_ID, CLIENT_ID)
        return encode_response(message, CORRELATION_ID)


def _cases() -> list[Case]:
    cases = []
    for api_key in ApiKey:
        for is_request in (True, False):
            ours = (request_class if is_request else response_class)(api_key)
            load = kio_messages.request_schema if is_request else kio_messages.response_schema
            for version in range(ours.min_version, ours.max_version + 1):
                schema = load(api_key, version)
                old_schema = old_messages.schema(api_key, version, is_request=is_request)
                if schema is not None:
                    cases.append(Case(api_key, version, is_request, schema))
                elif old_schema is not None:
                    cases.append(Case(api_key, version, is_request, old_schema, old_messages))
    return cases


#: Each of them is read by kio or, if Kafka 4 has removed it, by kafka-python's former classes.
CASES = _cases()
