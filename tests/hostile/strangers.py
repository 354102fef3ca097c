"""Clients without credentials of a gateway that requires a login, each on a separate connection.

A SCRAM exchange stops half-way. Requests come before the login; and many clients disconnect before a
response, while the server still works for them.
The gateway must serve none of them, and disconnect each that stays.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum

from shoal.protocol.apis import ApiKey
from tests.broker.wire import framed

from .attackers import HANG_S
from .inputs import Input, draw_input

__all__ = ["PASSWORD", "USER", "Stranger", "Visits", "flood", "log_in", "visit"]

USER, PASSWORD = "alice", "alice-secret"

#: Clients at a time, fewer than a gateway admits; those that do not stay come in addition.
_AT_A_TIME = 24
#: A loopback address other than an honest client's: the address with the most connections makes room.
_FROM = "127.0.0.66"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

#: APIs that a server may answer before the login.
_BEFORE_LOGIN = (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)


class Stranger(Enum):
    WRONG_PASSWORD = "wrong passwords"
    HALF_SCRAM = "half-done SCRAM"
    BEFORE_LOGIN = "requests before the login"
    NO_TOKEN = "tokens that are none"


@dataclass
class Visits:
    """Results of clients without credentials.

    Attributes:
        kinds: Number of clients, by kind.
        problems: Clients that were admitted or left hanging.
    """

    kinds: Counter[Stranger] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def visit(address: tuple[str, int], seed: int, step: int, count: int) -> Visits:
    """Connect this many clients without credentials to a server, and return the results."""
    visits = Visits()
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        come = [
            pool.submit(_come, address, random.Random(f"strangers:{seed}:{step}:{n}")) for n in range(count)
        ]
        for each in come:
            kind, problem = each.result()
            visits.kinds[kind] += 1
            visits.problems += [] if problem is None else [f"{kind.value}: {problem}"]
    return visits


def flood(address: tuple[str, int], seed: int, step: int, count: int) -> None:
    """Send wrong passwords, one connection right after the other, without waiting.

    The first ones have to make room for later ones, before the cluster has checked their passwords.
    """
    draw = random.Random(f"flood:{seed}:{step}")
    with contextlib.ExitStack() as sockets:
        for _ in range(count):
            client = sockets.enter_context(_connected(address))
            with contextlib.suppress(OSError):  # the server closed it to make room
                client.sendall(b"".join(_wrong_login(draw, USER)))


def _connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=HANG_S, source_address=(_FROM, 0))


def log_in(client: socket.socket) -> None:
    """Log in by PLAIN, on a socket with a timeout; AssertionError if that is refused."""
    client.sendall(_handshake(1, "PLAIN") + _authenticate(f"\0{USER}\0{PASSWORD}".encode()))
    shaken, authenticated = _answer(client), _answer(client)
    assert shaken is not None
    assert authenticated is not None
    assert (shaken[4:6], authenticated[4:6]) == (b"\0\0", b"\0\0"), (shaken, authenticated)


def _come(address: tuple[str, int], draw: random.Random) -> tuple[Stranger, str | None]:
    kind = draw.choice(list(Stranger))
    with _connected(address) as client:
        try:
            return kind, _behave(kind, client, draw)
        except TimeoutError:
            return kind, f"it was not hung up on in {HANG_S:.0f} s"
        except OSError:
            return kind, None  # a reset is a refusal, too


def _behave(kind: Stranger, client: socket.socket, draw: random.Random) -> str | None:
    match kind:
        case Stranger.WRONG_PASSWORD:
            user = draw.choice((USER, "nobody", "x" * draw.choice((1, 200))))
            return _refused(client, *_wrong_login(draw, user))
        case Stranger.HALF_SCRAM:
            return _half_scram(client, draw)
        case Stranger.BEFORE_LOGIN:
            return _ask_before_login(client, draw)
        case Stranger.NO_TOKEN:
            token = draw.randbytes(draw.choice((0, 1, 100, 5000)))
            shaken = _handshake(draw.choice((0, 1)), draw.choice(_MECHANISMS))
            return _refused(client, shaken, draw.choice((_authenticate(token), framed(token))))


def _wrong_login(draw: random.Random, user: str) -> tuple[bytes, bytes]:
    token = f"\0{user}\0{draw.random()}".encode()
    version = draw.choice((0, 1))
    return _handshake(version, "PLAIN"), _authenticate(token) if version else framed(token)


def _half_scram(client: socket.socket, draw: random.Random) -> str | None:
    mechanism = draw.choice(_MECHANISMS[1:])
    client.sendall(
        _handshake(1, mechanism) + _authenticate(f"n,,n={draw.choice((USER, 'nobody'))},r=mine".encode())
    )
    shaken, challenge = _answer(client), _answer(client)
    if shaken is None or challenge is None:
        return "no challenge came"
    match draw.choice(("reset", "close", "wrong proof", "another handshake", "a request")):
        case "reset":
            _reset(client)
        case "wrong proof":
            return _refused(client, _authenticate(b"c=biws,r=mine,p=" + b"A" * 43 + b"="))
        case "another handshake":
            return _refused(client, _handshake(1, mechanism))
        case "a request":
            return _ask_before_login(client, draw)
    return None


def _ask_before_login(client: socket.socket, draw: random.Random) -> str | None:
    asked = next(each for each in _drawn(draw) if each.api not in _BEFORE_LOGIN)
    client.sendall(asked.frame)
    answer = _answer(client)
    return None if answer is None else f"it was answered to {asked}"


def _drawn(draw: random.Random) -> Iterator[Input]:
    while True:
        yield draw_input(draw.randrange(1 << 32), 0)


def _refused(client: socket.socket, *frames: bytes) -> str | None:
    """Send a login, and read until the server disconnects; if it reports a success, that is a problem."""
    client.sendall(b"".join(frames))
    last = None
    while (answer := _answer(client)) is not None:
        last = answer
    # After a handshake of v0 a success is an empty frame; otherwise the token's response has error 0 and no
    # bytes.
    if last == b"" or (last is not None and last[:6] == b"\0\0\0\x24\0\0"):
        return f"it was let in: {last!r}"
    return None


def _answer(client: socket.socket) -> bytes | None:
    """Return the next frame without its size; None if the server closed the connection."""
    size = _exactly(client, 4)
    return None if size is None else _exactly(client, int.from_bytes(size))


def _exactly(client: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while len(data) < count:
            received = client.recv(count - len(data))
            if not received:
                return None
            data += received
        return bytes(data)
    return None


def _reset(client: socket.socket) -> None:
    """Make the socket end with a reset, as if its machine had failed."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _handshake(version: int, mechanism: str) -> bytes:
    """Write SaslHandshake; its correlation id is its API's key."""
    name = mechanism.encode()
    return framed(struct.pack(">hhihh", 17, version, 17, -1, len(name)) + name)


def _authenticate(token: bytes) -> bytes:
    """Write SaslAuthenticate v0; likewise."""
    return framed(struct.pack(">hhih", 36, 0, 36, -1) + framed(token))
