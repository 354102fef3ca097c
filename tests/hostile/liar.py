"""A cluster that lies: real responses of a broker, changed on their way to the socket.

Damaged bytes; well-formed responses that make no sense; errors, leaders, topic ids and offsets that could be
true; wrong sizes; responses that never end, come too late, or stop in the middle; and peers that do not use
Kafka's protocol at all.
"""

from __future__ import annotations

import random
import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response, encode_response, read_request_header
from shoal_broker import Broker
from shoal_broker.dispatch import CloseConnection
from tests.fuzz.damage import HUGE_NUMBERS

__all__ = [
    "CANNOT_BE_WRITTEN",
    "LIES",
    "RECOGNISABLE",
    "Lie",
    "change_fields",
    "changed_fields",
    "damaged_bytes",
    "lying",
    "no_kafka",
    "saying",
]

Part = bytes | memoryview

#: Maps a response (with its size), the API and the version to what is sent in its place. It may delay, or
#: disconnect.
Lie = Callable[[bytes, ApiKey, int, random.Random], bytes | Sequence[Part]]

#: Errors of the encoder if a value does not fit into its field.
CANNOT_BE_WRITTEN = (struct.error, UnicodeEncodeError, TypeError, AttributeError, AssertionError)

#: Longer than the victims wait for a response.
_TOO_LATE_S = 0.4
#: Parts of a response that no client takes to its end, 4 GiB.
_ENDLESS = [bytes(1 << 16)] * (1 << 16)

_NUMBERS = (0, 1, -1, 2, 5, 127, -128, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**40)
_NAMES = (
    *("", "topic", "other", "x" * 300, "\0", "127.0.0.1", "::1", "no such host", "é" * 40, "-1", "1e9"),
    "shoal4{",
)
#: All of Kafka 4.1's codes, and some others.
_ERROR_CODES = (*range(-1, 130), 999, -999, 2**15 - 1, -(2**15))
_NODES = (-1, 0, 1, 2, 99, 2**31 - 1, -(2**31))
_HOSTS = ("127.0.0.1", "", "no such host", "::1", "0.0.0.0", "\0", "x" * 300)
_PORTS = (0, 1, -1, 65_536, 2**31 - 1)
_EPOCHS = (-1, 0, 1, 2**31 - 1, -(2**31))


def damaged_bytes(answer: bytes, api: int, version: int, draw: random.Random) -> bytes:
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
    """Send other bytes, or a part of the response, or nothing, and disconnect."""
    said = draw.choice(
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
    # The following responses would never be in step again.
    raise CloseConnection("a lie", said)


def changed_fields(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
    """Change the values of some fields, anywhere."""
    message = decode_response(api, version, memoryview(answer)[4:])
    change_fields(message, draw)
    return _written(message, answer)


def change_fields(message: object, draw: random.Random) -> None:
    """Change the values of some of a message's fields; the encoder may reject the result."""
    found = list(_places(message))
    for _ in range(draw.randint(1, 3)):
        if found:
            owner, name, value = draw.choice(found)
            setattr(owner, name, _other(value, draw))


def _written(message: Any, answer: bytes) -> bytes:
    """Encode a changed response; if that cannot be, return the true one."""
    try:
        return bytes(encode_response(message, int.from_bytes(answer[4:8])))
    except CANNOT_BE_WRITTEN:
        return answer


def _places(message: object) -> Iterator[tuple[object, str, object]]:
    """Return all fields of a message and of its parts: owner, name, value."""
    for field in message.fields.values():  # type: ignore[attr-defined]
        if not field.for_version_q(message.version):  # type: ignore[attr-defined]
            continue
        value = getattr(message, field.name)
        yield message, field.name, value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(getattr(each, "fields", None), dict):  # a part of a message; an UUID has a tuple
                yield from _places(each)


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


def _error(name: str, value: object, draw: random.Random) -> object:
    """Refuse a part of the request, or all of it, for any reason."""
    return draw.choice(_ERROR_CODES) if name == "error_code" and draw.random() < 0.7 else value


def _leader(name: str, value: object, draw: random.Random) -> object:
    """Return another node, another address, another leader epoch."""
    if draw.random() < 0.5:
        return value
    match name:
        case "leader_id" | "controller_id" | "node_id" | "preferred_read_replica":
            return draw.choice(_NODES)
        case "host":
            return draw.choice(_HOSTS)
        case "port":
            return draw.choice(_PORTS)
    return draw.choice(_EPOCHS) if name.endswith("leader_epoch") else value


def _topic_id(name: str, value: object, draw: random.Random) -> object:
    """Give the topic another id, as if it had been recreated."""
    if name != "topic_id":
        return value
    return draw.choice((uuid.UUID(int=0), uuid.UUID(int=draw.getrandbits(128))))


def _offset(name: str, value: object, draw: random.Random) -> object:
    """Move an offset, within the log and far out of it."""
    if not isinstance(value, int) or not ("offset" in name or "watermark" in name) or draw.random() >= 0.7:
        return value
    moved = value + draw.choice((-3, -1, 1, 2, 1000, 2**40))
    return draw.choice((moved, moved, -1, 0, 2**63 - 1, -(2**63)))


def _each_field(change: Callable[[str, object, random.Random], object]) -> Lie:
    """Return a lie that offers each field's name and value for a change."""

    def lie(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
        message = decode_response(api, version, memoryview(answer)[4:])
        for owner, name, value in list(_places(message)):
            setattr(owner, name, change(name, value, draw))
        return _written(message, answer)

    return lie


def _sizes(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
    """Claim another size, so that the client waits for the rest or gets too many bytes."""
    size = len(answer) - 4
    claimed = draw.choice((0, 3, -1, -(2**31), size - 1, size + 1, size + 4096, 1 << 26, 1 << 30, 2**31 - 1))
    return struct.pack(">i", claimed) + answer[4:]


def _endless(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Claim 64 MiB or more, and send without an end."""
    return [struct.pack(">i", draw.choice((1 << 26, 1 << 28, 2**31 - 1))) + answer[4:], *_ENDLESS]


def _late(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    time.sleep(_TOO_LATE_S)
    return [answer[:4], answer[4:]]


def _stopped(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
    """Send a part of the response, and disconnect or send nothing more."""
    part = answer[: draw.randrange(len(answer))]
    if draw.random() < 0.5:
        raise CloseConnection("a lie", part)
    return part


LIES: Mapping[str, Lie] = {
    "damaged bytes": damaged_bytes,
    "no Kafka": no_kafka,
    "other values": changed_fields,
    "errors": _each_field(_error),
    "leaders": _each_field(_leader),
    "topic ids": _each_field(_topic_id),
    "offsets": _each_field(_offset),
    "sizes": _sizes,
    "endless": _endless,
    "late": _late,
    "stopped": _stopped,
}

#: The protocol's format or the time shows these; the others could be true.
RECOGNISABLE = ("no Kafka", "sizes", "endless", "late", "stopped")


@contextmanager
def lying(
    broker: Broker,
    about: Collection[ApiKey],
    lies: Sequence[Lie],
    draw: random.Random,
    *,
    most: int = 1000,
    rate: float = 1.0,
) -> Iterator[Counter[str]]:
    """
    Make a broker lie in a share of its responses to some APIs, up to a number of lies.

    Yields:
        The lies so far by API; if a lie equals the true response, it does not count.
    """
    honest = broker.server.answer
    told: Counter[str] = Counter()

    def answer(frame: memoryview, host: str, hung_up: Callable[[], bool]) -> Sequence[Part]:
        header = read_request_header(frame)
        parts = honest(frame, host, hung_up)
        whole = b"".join(parts)
        is_spared = header.api_key not in about or told.total() >= most
        if not whole or is_spared or draw.random() >= rate:
            return parts
        api = ApiKey(header.api_key)
        try:
            said = draw.choice(lies)(whole, api, header.api_version, draw)
        except CloseConnection:
            told[api.name] += 1
            raise
        told[api.name] += said != whole
        return [said] if isinstance(said, bytes) else said

    broker.server.answer = answer
    try:
        yield told
    finally:
        broker.server.answer = honest


def saying(
    broker: Broker, api: ApiKey, change: Callable[[Any], object]
) -> AbstractContextManager[Counter[str]]:
    """Make a broker send a well-formed change in all its responses to an API."""

    def lie(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> bytes:
        message = decode_response(api, version, memoryview(answer)[4:])
        change(message)
        return bytes(encode_response(message, int.from_bytes(answer[4:8])))

    return lying(broker, [api], [lie], random.Random(0))
