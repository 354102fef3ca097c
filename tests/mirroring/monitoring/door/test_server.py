"""The HTTP server: its responses, and its limits for slow clients."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.monitoring.door import Answer, Door, Route
from shoal.net.address import Address
from shoal.timing import DEFAULT_TIMING, Timing
from tests.world.waiting import is_let_go, wait_until

LOCAL = Address("127.0.0.1", 0)

#: Connections at the same time.
MOST = 64


def greet() -> Answer:
    return Answer(b"hello", {"Content-Type": "text/plain"})


ROUTES: Mapping[str, Route] = {"/": greet, "/cached": lambda: Answer(b"", {"Cache-Control": "no-cache"})}


@dataclass(frozen=True)
class Serving:
    address: Address


@contextlib.contextmanager
def serving(
    address: Address = LOCAL, timing: Timing = DEFAULT_TIMING, routes: Mapping[str, Route] = ROUTES
) -> Iterator[Serving]:
    door = Door(timing=timing)
    bound = door.listen("look", address, routes)
    with door:
        yield Serving(bound)


@dataclass(frozen=True)
class Answered:
    status: int
    reason: str
    headers: dict[str, str]
    body: bytes


def ask(address: Address, path: str = "/", method: str = "GET", **headers: str) -> Answered:
    connection = HTTPConnection(address.host, address.port, timeout=10)
    try:
        connection.request(
            method, path, headers={key.replace("_", "-"): value for key, value in headers.items()}
        )
        answer = connection.getresponse()
        return Answered(answer.status, answer.reason, dict(answer.headers), answer.read())
    finally:
        connection.close()


# Answers


def test_path_is_answered_by_its_route() -> None:
    with serving() as server:
        answered = ask(server.address)
    assert (answered.status, answered.body) == (200, b"hello")
    del answered.headers["Date"]
    assert answered.headers == {
        "Server": "shoal",
        "Content-Type": "text/plain",
        "Content-Length": "5",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }


@pytest.mark.parametrize("path", ["/cached/", "/cached.html", "/%2e%2e/cached", "/etc/passwd"])
def test_unknown_path_is_404(path: str) -> None:
    with serving() as server:
        answered = ask(server.address, path)
    assert (answered.status, "/cached" in answered.reason) == (404, True)


def test_head_request_has_the_headers_only() -> None:
    with serving() as server:
        answered = ask(server.address, method="HEAD")
        assert (answered.status, answered.headers["Content-Length"], answered.body) == (200, "5", b"")
        assert ask(server.address, "/nowhere", "HEAD").status == 404
        with socket.create_connection(server.address, timeout=10) as connection:
            connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            with connection.makefile("rb") as received:
                assert received.read().endswith(b"\r\n\r\n")


def test_unsafe_methods_are_answered_with_501() -> None:
    with serving() as server:
        for method in ("POST", "PUT", "DELETE"):
            assert ask(server.address, method=method).status == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("attacker.example", 421),
        ("attacker.example:9308", 421),
        ("localhost.attacker.example", 421),
        ("[::1", 421),
        ("", 421),
        ("localhost:9308", 200),
        ("10.1.2.3:80", 200),
        ("[::1]:80", 200),
    ],
)
def test_request_for_another_host_header_is_refused(host: str, status: int) -> None:
    with serving() as server:
        assert ask(server.address, Host=host).status == status


# Addresses


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_server_listens_on_ipv6() -> None:
    with serving(Address("::1", 0)) as server:
        assert str(server.address).startswith("[::1]:")
        assert ask(server.address).status == 200


def test_taken_address_is_refused_with_a_remedy() -> None:
    with serving() as server, pytest.raises(ConfigError) as taken:
        Door().listen("look", server.address, ROUTES)
    assert all(each in str(taken.value) for each in ("--look", str(server.address), "0"))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1", "a" * 64])
def test_foreign_host_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--look.*{host}:9308"):
        Door().listen("look", Address(host, 9308), ROUTES)


def test_two_addresses_have_routes_of_their_own() -> None:
    door = Door()
    first, second = door.listen("look", LOCAL, {"/": greet}), door.listen("see", LOCAL, {"/other": greet})
    with door:
        assert [ask(address, path).status for address in (first, second) for path in ("/", "/other")] == [
            200,
            404,
            404,
            200,
        ]


# Slow clients


def test_silent_client_is_disconnected_after_the_timeout() -> None:
    with (
        serving(timing=Timing(http_peer_s=0.2)) as server,
        socket.create_connection(server.address, timeout=10) as silent,
    ):
        silent.sendall(b"GET / HTT")
        assert silent.recv(1) == b""


def test_request_has_one_deadline() -> None:
    with (
        serving(timing=Timing(http_request_s=0.5)) as server,
        socket.create_connection(server.address, timeout=0.05) as slow,
    ):
        wait_until(lambda: is_let_go(slow, b"G"), 5)


def test_client_that_does_not_read_is_disconnected() -> None:
    answering: list[threading.Thread] = []

    def much() -> Answer:
        answering.append(threading.current_thread())
        return Answer(bytes(50_000_000), {})

    with (
        serving(timing=Timing(http_peer_s=0.2), routes={"/": much}) as server,
        socket.create_connection(server.address, timeout=10) as deaf,
    ):
        deaf.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert deaf.recv(4) == b"HTTP"
        wait_until(lambda: not answering[0].is_alive())


def test_new_connection_is_answered_while_slow_ones_hold_all_slots() -> None:
    with serving() as server, contextlib.ExitStack() as held:
        slow = [
            held.enter_context(socket.create_connection(server.address, timeout=10)) for _ in range(MOST + 10)
        ]
        for each in slow[-MOST:]:
            each.sendall(b"GET / HTTP/1.1\r\nX: ")
        # The oldest ones left for those that came after them, and one leaves for a request that is complete.
        assert [each.recv(1) for each in slow[:10]] == [b""] * 10
        assert ask(server.address).status == 200
        assert slow[10].recv(1) == b""


def test_exhausted_descriptors_evict_the_slowest_connection(monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(listening: socket.socket) -> None:
        monkeypatch.undo()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with (
        serving(timing=Timing(http_peer_s=60)) as server,
        socket.create_connection(server.address, timeout=10) as slow,
    ):
        slow.sendall(b"GET / HTT")
        # Accepted before: the next connection comes after it.
        assert ask(server.address).status == 200
        monkeypatch.setattr(socket.socket, "accept", fail)
        assert ask(server.address).status == 200
        assert slow.recv(1) == b""


def test_disconnected_peer_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    asked, gone = threading.Event(), threading.Event()
    answering: list[threading.Thread] = []

    def late() -> Answer:
        answering.append(threading.current_thread())
        asked.set()
        assert gone.wait(10)
        return Answer(bytes(50_000_000), {})

    with serving(routes={"/": late}) as server:
        peer = socket.create_connection(server.address, timeout=10)
        peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert asked.wait(10)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        gone.set()
        wait_until(lambda: not answering[0].is_alive())
    assert capfd.readouterr() == ("", "")
