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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from shoal.protocol.apis import ApiKey
from tests.broker.wire import framed

from .attackers import HANG_S, read_exactly
from .inputs import Input, draw_input

__all__ = ["PASSWORD", "USER", "flood", "log_in", "visit"]

USER, PASSWORD = "alice", "alice-secret"

#: Clients at a time, fewer than a gateway admits; those that do not stay come in addition.
_AT_A_TIME = 24
#: A loopback address other than an honest client's: the address with the most connections makes room.
_FROM = "127.0.0.66"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

#: APIs that a server may answer before the login.
_BEFORE_LOGIN = (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)


def visit(address: tuple[str, int], draws: list[random.Random]) -> list[str]:
    """Connect a client without credentials for each draw; return those that were admitted or left hanging."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return [problem for problem in pool.map(lambda draw: _come(address, draw), draws) if problem]


def flood(address: tuple[str, int], draw: random.Random, count: int) -> None:
    """Send wrong passwords, one connection right after the other, without waiting.

    The first ones have to make room for later ones, before the cluster has checked their passwords.
    """
    with contextlib.ExitStack() as sockets:
        for _ in range(count):
            client = sockets.enter_context(_connected(address))
            with contextlib.suppress(OSError):  # the server closed it to make room
                client.sendall(b"".join(_wrong_login(draw, USER)))


def log_in(client: socket.socket) -> None:
    """Log in by PLAIN, on a socket with a timeout; AssertionError if that is refused."""
    client.sendall(_handshake(1, "PLAIN") + _authenticate(f"\0{USER}\0{PASSWORD}".encode()))
    codes = [frame[4:6] for frame in (_answer(client), _answer(client)) if frame is not None]
    assert codes == [b"\0\0", b"\0\0"], codes


def _connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=HANG_S, source_address=(_FROM, 0))


def _come(address: tuple[str, int], draw: random.Random) -> str | None:
    behave = draw.choice((_send_wrong_password, _begin_scram, _ask_before_login, _send_no_token))
    with _connected(address) as client:
        try:
            problem = behave(client, draw)
        except TimeoutError:
            problem = f"it was not hung up on in {HANG_S:.0f} s"
        except OSError:
            return None  # a reset is a refusal, too
    return problem and f"{behave.__name__}: {problem}"


def _send_wrong_password(client: socket.socket, draw: random.Random) -> str | None:
    user = draw.choice((USER, "nobody", "x" * draw.choice((1, 200))))
    return _refused(client, *_wrong_login(draw, user))


def _wrong_login(draw: random.Random, user: str) -> tuple[bytes, bytes]:
    token = f"\0{user}\0{draw.random()}".encode()
    version = draw.choice((0, 1))
    return _handshake(version, "PLAIN"), _authenticate(token) if version else framed(token)


def _send_no_token(client: socket.socket, draw: random.Random) -> str | None:
    token = draw.randbytes(draw.choice((0, 1, 100, 5000)))
    shaken = _handshake(draw.choice((0, 1)), draw.choice(_MECHANISMS))
    return _refused(client, shaken, draw.choice((_authenticate(token), framed(token))))


def _begin_scram(client: socket.socket, draw: random.Random) -> str | None:
    mechanism = draw.choice(_MECHANISMS[1:])
    first = f"n,,n={draw.choice((USER, 'nobody'))},r=mine".encode()
    client.sendall(_handshake(1, mechanism) + _authenticate(first))
    if _answer(client) is None or _answer(client) is None:
        return "no challenge came"
    match draw.choice(("reset", "close", "wrong proof", "another handshake", "a request")):
        case "reset":
            # As if its machine had failed.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
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
    return None if _answer(client) is None else f"it was answered to {asked}"


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
    is_success = last == b"" or (last is not None and last[:6] == b"\0\0\0\x24\0\0")
    return f"it was let in: {last!r}" if is_success else None


def _answer(client: socket.socket) -> bytes | None:
    """Return the next frame without its size; None if the server closed the connection."""
    with contextlib.suppress(ConnectionError):
        return read_exactly(client, int.from_bytes(read_exactly(client, 4)))
    return None


def _handshake(version: int, mechanism: str) -> bytes:
    """Write SaslHandshake; its correlation id is its API's key."""
    name = mechanism.encode()
    return framed(struct.pack(">hhihh", 17, version, 17, -1, len(name)) + name)


def _authenticate(token: bytes) -> bytes:
    """Write SaslAuthenticate v0; likewise."""
    return framed(struct.pack(">hhih", 36, 0, 36, -1) + framed(token))
