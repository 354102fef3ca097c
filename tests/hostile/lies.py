"""A cluster that lies in all its responses, in more ways than tests/fuzz/liar.py.

False or unexpected errors, wrong leaders, other topic ids, wrong sizes. Some responses never end, come too
late, or stop in the middle.
"""

from __future__ import annotations

import random
import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response, encode_response, read_request_header
from shoal_broker import Broker
from shoal_broker.dispatch import CloseConnection
from tests.fuzz.liar import CANNOT_BE_WRITTEN, changed_fields, damaged_bytes, no_kafka, places

__all__ = ["LIES", "RECOGNISABLE", "TOO_LATE_S", "Told", "lying_about"]

#: Longer than the victims wait for a response.
TOO_LATE_S = 0.4

#: Parts of a response that no client takes to its end, 4 GiB.
_ENDLESS = [bytes(1 << 16)] * (1 << 16)

#: All of Kafka 4.1's codes, and some others.
_ERROR_CODES = (*range(-1, 130), 999, -999, 2**15 - 1, -(2**15))
_NODES = (-1, 0, 1, 2, 99, 2**31 - 1, -(2**31))
_HOSTS = ("127.0.0.1", "", "no such host", "::1", "0.0.0.0", "\0", "x" * 300)
_PORTS = (0, 1, -1, 65_536, 2**31 - 1)
_EPOCHS = (-1, 0, 1, 2**31 - 1, -(2**31))

Part = bytes | memoryview

#: Maps a response, with its size, to the parts to send in its place. It may delay, or disconnect.
Lie = Callable[[bytes, ApiKey, int, random.Random], Sequence[Part]]


def _damaged(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    return [damaged_bytes(answer, api, version, draw)]


def _no_kafka(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    # The following responses would never be in step again.
    raise CloseConnection("a lie", no_kafka(answer, api, version, draw))


def _other_values(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    return [changed_fields(answer, api, version, draw)]


def _errors(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Refuse a part of the request, or all of it, for any reason."""

    def change(owner: Any, name: str, value: object) -> None:
        if name == "error_code" and draw.random() < 0.7:
            setattr(owner, name, draw.choice(_ERROR_CODES))

    return _rewritten(answer, api, version, change)


def _leaders(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Return other nodes, other addresses, other leader epochs."""

    def change(owner: Any, name: str, value: object) -> None:
        if draw.random() < 0.5:
            return
        if name in ("leader_id", "controller_id", "node_id", "preferred_read_replica"):
            setattr(owner, name, draw.choice(_NODES))
        elif name == "host":
            owner.host = draw.choice(_HOSTS)
        elif name == "port":
            owner.port = draw.choice(_PORTS)
        elif name.endswith("leader_epoch"):
            setattr(owner, name, draw.choice(_EPOCHS))

    return _rewritten(answer, api, version, change)


def _topic_ids(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Give topics other ids, as if each had been recreated."""

    def change(owner: Any, name: str, value: object) -> None:
        if name == "topic_id":
            owner.topic_id = draw.choice((uuid.UUID(int=0), uuid.UUID(int=draw.getrandbits(128))))

    return _rewritten(answer, api, version, change)


def _offsets(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Move all offsets, within the log and far out of it."""

    def change(owner: Any, name: str, value: object) -> None:
        if isinstance(value, int) and ("offset" in name or "watermark" in name) and draw.random() < 0.7:
            moved = value + draw.choice((-3, -1, 1, 2, 1000, 2**40))
            setattr(owner, name, draw.choice((moved, moved, -1, 0, 2**63 - 1, -(2**63))))

    return _rewritten(answer, api, version, change)


def _sizes(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Claim another size, so that the client waits for the rest or gets too many bytes."""
    size = len(answer) - 4
    claimed = draw.choice((0, 3, -1, -(2**31), size - 1, size + 1, size + 4096, 1 << 26, 1 << 30, 2**31 - 1))
    return [struct.pack(">i", claimed) + answer[4:]]


def _endless(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Claim 64 MiB or more, and send without an end."""
    return [struct.pack(">i", draw.choice((1 << 26, 1 << 28, 2**31 - 1))) + answer[4:], *_ENDLESS]


def _late(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    time.sleep(TOO_LATE_S)
    return [answer]


def _stopped(answer: bytes, api: ApiKey, version: int, draw: random.Random) -> Sequence[Part]:
    """Send a part of the response, and disconnect or send nothing more."""
    part = answer[: draw.randrange(len(answer))]
    if draw.random() < 0.5:
        raise CloseConnection("a lie", part)
    return [part]


def _rewritten(
    answer: bytes, api: ApiKey, version: int, change: Callable[[Any, str, object], None]
) -> Sequence[Part]:
    message = decode_response(api, version, memoryview(answer)[4:])
    for owner, name, value in list(places(message)):
        change(owner, name, value)
    try:
        return [bytes(encode_response(message, int.from_bytes(answer[4:8])))]
    except CANNOT_BE_WRITTEN:
        return [answer]


LIES: dict[str, Lie] = {
    "damaged bytes": _damaged,
    "no Kafka": _no_kafka,
    "other values": _other_values,
    "errors": _errors,
    "leaders": _leaders,
    "topic ids": _topic_ids,
    "offsets": _offsets,
    "sizes": _sizes,
    "endless": _endless,
    "late": _late,
    "stopped": _stopped,
}

#: The protocol's format or the time shows these; the others could be true.
RECOGNISABLE = ("no Kafka", "sizes", "endless", "late", "stopped")


class Told(Counter[tuple[str, str]]):
    """Numbers of lies by kind and API; if a lie equals the true response, it does not count.

    Attributes:
        answers: Number of all responses, including true ones.
    """

    answers = 0


@contextmanager
def lying_about(
    about: Collection[ApiKey],
    broker: Broker,
    lies: Sequence[str],
    rate: float,
    most: int,
    draw: random.Random,
    told: Told,
) -> Iterator[None]:
    """Make a broker lie in a share of its responses to some APIs, up to a number of lies."""
    honest = broker.server.answer
    before = told.total()

    def answer(frame: memoryview, host: str, hung_up: Callable[[], bool]) -> Sequence[Part]:
        header = read_request_header(frame)
        parts = honest(frame, host, hung_up)
        whole = b"".join(parts)
        told.answers += 1
        is_spared = header.api_key not in about or told.total() - before >= most
        if not whole or is_spared or draw.random() >= rate:
            return parts
        lie = draw.choice(lies)
        api = ApiKey(header.api_key)
        try:
            said = LIES[lie](whole, api, header.api_version, draw)
        except CloseConnection:
            told[lie, api.name] += 1
            raise
        if lie == "late" or list(said) != [whole]:
            told[lie, api.name] += 1
        return said

    broker.server.answer = answer
    try:
        yield
    finally:
        broker.server.answer = honest
