"""The delaying proxy holds bytes for its delay, in both directions, and loses none."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.far import serve

DELAY_S = 0.1


@pytest.fixture
def through_proxy() -> Iterator[socket.socket]:
    """Connect through the proxy to a server that sends back all that it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as proxy:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data)

        behind = server.getsockname()[1]
        for target in (echo, lambda: serve(proxy, behind, DELAY_S)):
            threading.Thread(target=target, daemon=True).start()
        with socket.create_connection(proxy.getsockname(), timeout=30) as client:
            yield client


def test_round_trip_takes_twice_the_delay(through_proxy: socket.socket) -> None:
    began = time.monotonic()
    through_proxy.sendall(b"ping")
    assert through_proxy.recv(4) == b"ping"
    assert time.monotonic() - began >= 2 * DELAY_S


def test_many_bytes_in_flight_arrive_in_order_and_end(through_proxy: socket.socket) -> None:
    sent = bytes(range(256)) * 4096 * 8

    def send() -> None:
        through_proxy.sendall(sent)
        through_proxy.shutdown(socket.SHUT_WR)

    threading.Thread(target=send).start()
    received = bytearray()
    while data := through_proxy.recv(1 << 20):
        received += data
    assert received == sent
