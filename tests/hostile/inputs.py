"""Requests that no client sends, each made from only a seed and its number.

Four kinds: recorded frames whose bytes are damaged; recorded frames with other values, and messages of every
API and version that are well-formed and make no sense; Produce requests with record sets that no client
writes; and bytes that are no request. The codecs that write them are kio's, kafka-python's former one, and
shoal's own if kio refuses to write a wrong value.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_request, encode_request, read_request_header, request_class
from shoal_broker.apis import APIS
from tests import kio_messages, old_messages
from tests.broker.wire import Wire, framed
from tests.fuzz.damage import HUGE_NUMBERS
from tests.vectors import removed_vectors, vectors

from .liar import CANNOT_BE_WRITTEN, change_fields, damaged_bytes
from .record_sets import hostile_records

__all__ = ["TOPICS", "Input", "Kind", "draw_input"]

#: The servers' topics: the names that the generators and the recorded frames use.
TOPICS = ("a", "orders", "topic")

_NEWEST_API = 100
_NEWEST_VERSION = 20
_PRODUCE_BY_NAME = range(3, 13)
_PRODUCE_OF_OLD = range(3)


class Kind(Enum):
    DAMAGED = "recorded frames, damaged"
    OTHER_VALUES = "recorded frames, other values"
    GRAMMAR = "any API and version, hostile values"
    RECORDS = "record sets of magic 0 to 2"
    GARBAGE = "no request"
    BOMB = "bombs"


_SHARES: Mapping[Kind, int] = {
    Kind.DAMAGED: 24,
    Kind.OTHER_VALUES: 20,
    Kind.GRAMMAR: 26,
    Kind.RECORDS: 27,
    Kind.GARBAGE: 3,
}


@dataclass(frozen=True)
class Input:
    """One request.

    Attributes:
        frame: The frame with its size, which is right.
    """

    number: int
    kind: Kind
    frame: bytes

    @property
    def api(self) -> int:
        return int.from_bytes(self.frame[4:6], signed=True)

    def __str__(self) -> str:
        version = int.from_bytes(self.frame[6:8], signed=True)
        return f"input {self.number} ({self.kind.value}), API {self.api} v{version}: {self.frame[:80].hex()}"


def draw_input(seed: int, number: int) -> Input:
    """Return one input of a run; the same for the same two numbers."""
    draw = random.Random(f"{seed}:{number}")
    (kind,) = draw.choices(list(_SHARES), list(_SHARES.values()))
    match kind:
        case Kind.DAMAGED:
            frame = framed(draw.choice(_recorded()))
            frame = damaged_bytes(frame, 0, 0, draw)
        case Kind.OTHER_VALUES:
            frame = _other_values(draw)
        case Kind.GRAMMAR:
            frame = _any_message(draw)
        case Kind.RECORDS:
            frame = _produce(draw)
        case Kind.GARBAGE:
            frame = _garbage(draw)
    return Input(number, kind, frame)


def _other_values(draw: random.Random) -> bytes:
    while True:
        frame = memoryview(draw.choice(_recorded()))
        message = decode_request(read_request_header(frame), frame)
        change_fields(message, draw)
        try:
            return bytes(encode_request(message, 1, "fuzz"))
        except CANNOT_BE_WRITTEN:
            continue


def _any_message(draw: random.Random) -> bytes:
    """Write a message of an API and version that kio or kafka-python's former codec supports."""
    codec, api, version = draw.choice(_versions(only_served=draw.random() < 0.8))
    if codec == "old":
        asked = old_messages.random_message(old_messages.schema(api, version, is_request=True), draw)
        return framed(old_messages.encode_request(asked, 1, "fuzz"))
    message = kio_messages.random_message(kio_messages.request_schema(api, version), draw)
    frame = framed(kio_messages.encode_request(message, 1, draw.choice(("fuzz", None, ""))))
    return damaged_bytes(frame, 0, 0, draw) if draw.random() < 0.3 else frame


def _produce(draw: random.Random) -> bytes:
    topic, acks = draw.choice(TOPICS), draw.choice((-1, -1, 1, 0, 2))
    records = draw.choice((hostile_records(draw), hostile_records(draw), None))
    if draw.random() < 0.5:
        version = draw.choice(_PRODUCE_OF_OLD)
        produce = old_messages.schema(ApiKey.PRODUCE, version, is_request=True)
        asked = produce(acks, 1000, [(topic, [(draw.choice((0, 0, 1, 9)), records or b"")])])
        return framed(old_messages.encode_request(asked, 1, "fuzz"))
    entries = [(topic, draw.choice((0, 0, 1, 9)), records)] * draw.choice((1, 1, 1, 3))
    fields = Wire.produce_fields(entries, acks=acks, transactional_id=draw.choice((None, None, None, "id")))
    message = request_class(ApiKey.PRODUCE)(version=draw.choice(_PRODUCE_BY_NAME), **fields)
    return bytes(encode_request(message, 1, "fuzz"))


def _garbage(draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        body = b"".join(draw.choice((*HUGE_NUMBERS, draw.randbytes(4))) for _ in range(draw.randrange(40)))
        head = struct.pack(">hhih", draw.randrange(-1, 90), draw.randrange(-1, 20), 1, -1)
        return framed(head + body)
    return framed(draw.randbytes(draw.randrange(300)))


@cache
def _recorded() -> tuple[bytes, ...]:
    return tuple(each.frame for each in (*vectors(), *removed_vectors()) if each.direction == "request")


@cache
def _versions(*, only_served: bool) -> tuple[tuple[str, int, int], ...]:
    """Return codec, API and version of all messages that can be written, or that a gateway serves."""
    if only_served:
        # The gateway translates the versions that the broker behind it has not.
        served = {(api.key, version) for api in APIS.values() for version in range(api.newest + 1)}
        return tuple(each for each in _versions(only_served=False) if each[1:] in served)
    every = [(api, version) for api in range(_NEWEST_API) for version in range(_NEWEST_VERSION)]
    kio = {each for each in every if kio_messages.request_schema(*each) is not None}
    old = {each for each in every if old_messages.schema(*each, is_request=True) is not None} - kio
    return tuple(sorted([*(("kio", *each) for each in kio), *(("old", *each) for each in old)]))
