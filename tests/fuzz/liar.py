"""A broker that answers wrongly: real responses, changed on their way to the socket.

Three kinds of lies: damaged bytes; well-formed responses that make no sense
(numbers out of any range, elements that are missing or doubled, other names);
and peers that do not use Kafka's protocol, send nothing or disconnect.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response, encode_response, read_request_header
from shoal_broker import Broker
from shoal_broker.dispatch import CloseConnection
from tests.fuzz.damage import HUGE_NUMBERS

__all__ = [
    "CANNOT_BE_WRITTEN",
    "Lie",
    "change_fields",
    "changed_fields",
    "damaged_bytes",
    "lying",
    "no_kafka",
    "places",
]

#: Maps a response (with its size), the API and the version to the bytes to send in its place.
Lie = Callable[[bytes, ApiKey, int, random.Random], bytes]

#: Errors of the encoder if a value does not fit into its field.
CANNOT_BE_WRITTEN = (struct.error, UnicodeEncodeError, TypeError, AttributeError, AssertionError)

_NUMBERS = (0, 1, -1, 2, 5, 127, -128, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**40)
_NAMES = (
    "",
    "topic",
    "other",
    "x" * 300,
    "\0",
    "127.0.0.1",
    "::1",
    "no such host",
    "é" * 40,
    "-1",
    "1e9",
    "shoal3{",
)


def damaged_bytes(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
    """Change some bytes after the correlation id; the size stays right, so that the client reads on."""
    body = bytearray(answer[8:])
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(body) + 1)
        number = draw.choice(HUGE_NUMBERS)
        match draw.randrange(5):
            case 0 if at < len(body):
                body[at] ^= 1 << draw.randrange(8)
            case 1:
                del body[at:]
            case 2:
                body[at : at + len(number)] = number
            case 3:
                body[at:at] = number
            case _:
                del body[at : at + draw.randint(1, 8)]
    return struct.pack(">i", len(body) + 4) + answer[4:8] + body


def no_kafka(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
    """Send other bytes, or a part of the response, or nothing."""
    return draw.choice(
        (
            b"",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\x15\x03\x03\0\2\2\x46",  # a TLS alert
            b"\0\0\0\0",
            b"\0\0\0\4\0\0\0\0",
            b"\xff\xff\xff\xff",
            b"\x7f\xff\xff\xff",
            answer[: draw.randrange(len(answer))],
            answer[:4] + draw.randbytes(4) + answer[8:],  # the response to another request
            draw.randbytes(draw.randint(1, 100)),
        )
    )


def changed_fields(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
    """Change the values of some fields, anywhere."""
    message = decode_response(api, version, memoryview(answer)[4:])
    change_fields(message, draw)
    try:
        return bytes(encode_response(message, int.from_bytes(answer[4:8])))
    except CANNOT_BE_WRITTEN:
        return answer


def change_fields(message: object, draw: random.Random) -> None:
    """Change the values of some of a message's fields; the encoder may reject the result."""
    found = list(places(message))
    for _ in range(draw.randint(1, 3)):
        if found:
            owner, name, value = draw.choice(found)
            setattr(owner, name, _other(value, draw))


def places(message: object) -> Iterator[tuple[object, str, object]]:
    """Return all fields of a message and of its parts: owner, name, value."""
    for field in message._struct.fields.values():  # type: ignore[attr-defined]
        if not field.for_version_q(message._version):  # type: ignore[attr-defined]
            continue
        value = getattr(message, field.name)
        yield message, field.name, value
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "_struct"):
                yield from places(each)


def _other(value: object, draw: random.Random) -> object:
    match value:
        case bool():
            return not value
        case int():
            return draw.choice((*_NUMBERS, value + 1, value - 1))
        case str():
            return draw.choice((*_NAMES, value + "x", None))
        case bytes():
            at = draw.randrange(len(value) + 1)
            return draw.choice((b"", value[:at], value + value, value[:at] + b"\xff" + value[at + 1 :]))
        case uuid.UUID():
            return draw.choice((None, uuid.UUID(int=0), uuid.UUID(int=draw.getrandbits(128))))
        case list():
            return draw.choice(([], value * 2, value[:-1], value[::-1], value + value[:1], None))
    return draw.choice((None, value))


@contextmanager
def lying(broker: Broker, api: ApiKey, lie: Lie, draw: random.Random, times: int) -> Iterator[None]:
    """Make a broker lie in its next responses to an API; then it answers correctly again."""
    left = times
    honest = broker.server.answer

    def answer(frame: memoryview, host: str, hung_up: Callable[[], bool]) -> Sequence[bytes | memoryview]:
        nonlocal left
        header = read_request_header(frame)
        parts = honest(frame, host, hung_up)
        if header.api_key != api or left <= 0:
            return parts
        left -= 1
        whole = b"".join(parts)
        if not whole:
            return parts
        told = lie(whole, api, header.api_version, draw)
        if lie is no_kafka:
            # The following responses would never be in step again.
            raise CloseConnection("a lie", told)
        return [told]

    broker.server.answer = answer
    try:
        yield
    finally:
        broker.server.answer = honest
