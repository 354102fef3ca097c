"""A listener accepts connections until it is stopped, even if a client or the system fails."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from shoal.net.listener import Admitted, Listener

PATIENCE_S = 120


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[Listener]:
    listener = Listener("127.0.0.1", 0, lambda each: Admitted(partial(serve, each)), "test")
    listener.start()
    try:
        yield listener
    finally:
        listener.stop()


def echo(connected: socket.socket) -> None:
    while data := connected.recv(100):
        connected.sendall(data)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def test_listener_serves_each_connection_in_its_thread() -> None:
    with listening(lambda connected: connected.sendall(b"once")) as listener:
        for _ in range(3):
            with connect(listener.port) as client:
                assert (client.recv(100), client.recv(100)) == (b"once", b"")


def test_refused_connection_is_closed_without_a_thread() -> None:
    threads: list[threading.Thread] = []

    def refuse(_: socket.socket) -> None:
        threads[:] = threading.enumerate()

    listener = Listener("127.0.0.1", 0, refuse, "refusing")
    listener.start()
    for _ in range(3):
        with connect(listener.port) as client:
            assert client.recv(100) == b""
        assert [each.name for each in threads if each.name.startswith("refusing")] == [
            f"refusing-{listener.port}"
        ]
    listener.stop()


def test_place_is_freed_after_the_socket_is_closed() -> None:
    descriptors: list[int] = []
    is_free = threading.Event()

    def admit(connected: socket.socket) -> Admitted:
        def leave() -> None:
            descriptors.append(connected.fileno())
            is_free.set()

        return Admitted(lambda: None, leave)

    listener = Listener("127.0.0.1", 0, admit, "test")
    listener.start()
    with connect(listener.port) as client:
        assert client.recv(100) == b""
    assert is_free.wait(PATIENCE_S)
    assert descriptors == [-1]
    listener.stop()


def test_listener_stop_ends_waits_and_frees_the_port() -> None:
    with listening(echo) as listener, connect(listener.port) as client:
        client.sendall(b"a")
        assert client.recv(100) == b"a"
        listener.stop()
        assert client.recv(100) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(listener.port)
        port = listener.port
        listener.start()
        assert listener.port == port
        with connect(port) as again:
            again.sendall(b"b")
            assert again.recv(100) == b"b"


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE_S)


def test_listener_stop_with_patience_leaves_stuck_threads() -> None:
    ended = threading.Event()
    with listening(lambda _: _wait(ended)) as listener, connect(listener.port):
        listener.stop(patience_s=0.1)
        ended.set()


def test_listener_start_on_taken_port_raises_and_leaves_nothing() -> None:
    with listening(echo) as listener:
        other = Listener("127.0.0.1", listener.port, lambda _: None, "test")
        with pytest.raises(OSError, match="in use"):
            other.start()
        other.stop()


_FEW_FILES = """
import resource, sys
from functools import partial
from shoal.net.listener import Admitted, Listener
def echo(connected):
    while data := connected.recv(100):
        connected.sendall(data)
listener = Listener("127.0.0.1", 0, lambda each: Admitted(partial(echo, each)), "test")
listener.start()
resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
print(listener.port, flush=True)
sys.stdin.read()
"""


def test_listener_without_descriptors_serves_later() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _FEW_FILES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process, ExitStack() as stack:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        early = [stack.enter_context(connect(port)) for _ in range(30)]
        early[0].sendall(b"first")
        assert early[0].recv(100) == b"first"
        late = stack.enter_context(connect(port))
        late.sendall(b"last")
        for each in early:
            each.close()
        assert late.recv(100) == b"last"
        process.kill()
