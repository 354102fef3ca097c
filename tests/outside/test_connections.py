"""A server holds the connections that its limit allows and not more, however many clients connect at a time.

Each bound is computed from the server's own limit: a connection has one thread and one socket, and, if a
gateway forwards it, one more socket to the broker. Each listener may have one more that it has just accepted,
until it admits or closes it. If a connection took the place of another one, the thread of that one has
closed its socket, and may need a moment to exit.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rig import wait_until
from rig.shoal import Shoal, serve_broker, serve_gateway
from tests.broker.wire import PATIENCE_S, framed
from tests.held import Held, Watch, held
from tests.login_front import locked_cluster

MOST = 10
CLIENTS = 500

#: The gateway asks the broker for its versions before it answers this, and waits for a login then.
ASK_VERSIONS = framed(struct.pack(">hhih", 18, 0, 7, -1))
SILENCE = b""


def wrong_login(number: int) -> bytes:
    token = f"\0alice\0wrong {number}".encode()
    handshake = struct.pack(">hhihh", 17, 1, 7, -1, 5) + b"PLAIN"
    return framed(handshake) + framed(struct.pack(">hhih", 36, 0, 8, -1) + framed(token))


@contextmanager
def started(name: str, room: Path) -> Iterator[Shoal]:
    """Start a server whose limit is `MOST` connections."""
    limit = ("--max-connections", str(MOST))
    with ExitStack() as stack:
        behind = stack.enter_context(serve_broker()).address
        options: tuple[str, ...] = ()
        if name != "gateway":
            behind = stack.enter_context(locked_cluster(behind, {"alice": "alice-secret"})).bootstrap
            config = room / "upstream.properties"
            config.write_text("security.protocol=SASL_PLAINTEXT\n")
            options = ("--sasl-pass-through", "--broker-ids", "1", "--upstream-config", str(config))
        yield stack.enter_context(serve_gateway(behind, *limit, *options))


def at_rest(server: Shoal) -> Held:
    """Return what the server holds without clients; its sockets are its listeners."""
    at_last = held(server.process_id)

    def rests() -> bool:
        nonlocal at_last
        before, at_last = at_last, held(server.process_id)
        return before == at_last

    wait_until(rests, "the server's start to end", interval_s=0.5)
    return at_last


class Crowd:
    """Clients that connect one right after the other, send what they have, and stay."""

    def __init__(self, server: Shoal) -> None:
        host, port = server.address.rsplit(":", 1)
        self._address = (host, int(port))
        self._stack = ExitStack()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def come(self, words: bytes) -> None:
        client = self._stack.enter_context(socket.create_connection(self._address, PATIENCE_S))
        try:
            client.sendall(words)
        except ConnectionError:
            return  # the server has closed it already
        client.setblocking(False)
        self._open.append(client)

    def served(self) -> int:
        """Return the number of clients on which the server has not hung up."""
        self._open = [each for each in self._open if _is_open(each)]
        return len(self._open)


def _is_open(client: socket.socket) -> bool:
    try:
        while client.recv(4096):
            pass  # an answer
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


@pytest.mark.parametrize(
    ("name", "words", "sockets_of_each"),
    [("gateway", SILENCE, 1), ("gateway that passes logins", ASK_VERSIONS, 2)],
)
def test_server_holds_as_many_connections_as_its_limit(
    name: str, words: bytes, sockets_of_each: int, tmp_path: Path
) -> None:
    with started(name, tmp_path) as server:
        rest = at_rest(server)
        full = Held(rest.threads + MOST, rest.sockets + MOST * sockets_of_each)
        accepted = rest.sockets  # one for each listener
        with Watch(server.process_id) as watch, Crowd(server) as crowd:
            for _ in range(CLIENTS):
                crowd.come(words)
            wait_until(lambda: crowd.served() == MOST, f"{MOST} clients to be left")
            wait_until(lambda: held(server.process_id) == full, f"the server to hold {full}")
        assert full.threads <= watch.most.threads <= full.threads + MOST
        assert full.sockets <= watch.most.sockets <= full.sockets + accepted
        wait_until(lambda: held(server.process_id) == rest, f"the server to hold {rest} again")


def test_flood_of_wrong_passwords_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    with started("gateway that passes logins", tmp_path) as server:
        rest = at_rest(server)
        with Watch(server.process_id) as watch, Crowd(server) as crowd:
            for number in range(CLIENTS):
                crowd.come(wrong_login(number))
            wait_until(lambda: crowd.served() == 0, "the server to refuse all")
        assert watch.most.threads <= rest.threads + 2 * MOST
        assert watch.most.sockets <= rest.sockets + 2 * MOST + rest.sockets
        wait_until(lambda: held(server.process_id) == rest, f"the server to hold {rest} again")
