"""Large responses with addresses are handled one at a time, and dropped if the client has left."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.gateway import rewriting, working
from shoal.gateway import upstream as upstream_module
from shoal.gateway.client_connection import Client
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal_broker import BrokerCluster
from tests.broker.wire import PATIENCE_S, Wire
from tests.gateway.behind import Behind, gateway_before, old_request, wait_until

Connect = Callable[[str], Wire]

#: So many unknown topics make an answer large; their names are in it.
MANY = [f"no-such-topic-{number:05}" for number in range(5_000)]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold decoded large responses until this event is set."""
    go_on = threading.Event()

    def rewrite_brokers(answer: Any, *rest: Any) -> None:
        if len(answer.topics) == len(MANY):
            assert go_on.wait(PATIENCE_S)
        original(answer, *rest)

    original = rewriting.rewrite_brokers
    monkeypatch.setattr(rewriting, "rewrite_brokers", rewrite_brokers)
    yield go_on
    go_on.set()


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of large answers that were received."""
    sizes: list[int] = []

    class Memory:
        @staticmethod
        def mmap(descriptor: int, size: int) -> bytearray:
            sizes.append(size)
            return bytearray(size)

    monkeypatch.setattr(upstream_module, "mmap", Memory)
    return sizes


def ask_for_many(behind: Behind, connect: Connect) -> Wire:
    wire = connect(behind.address())
    wire.send_bytes(old_request(ApiKey.METADATA, 1, MANY))
    return wire


def waiting() -> int:
    return working.LARGE_TURNS.waiting


def test_small_answer_does_not_wait_for_large_ones(
    behind: Behind, connect: Connect, held: threading.Event
) -> None:
    large = [ask_for_many(behind, connect) for _ in range((os.cpu_count() or 1) + 1)]
    wait_until(lambda: waiting() == len(large) - 1, "they do not wait")
    with Wire(behind.address()) as small:
        small.socket.settimeout(PATIENCE_S / 3)
        assert small.call(ApiKey.METADATA, 1, topics=[]).brokers
    held.set()
    for each in large:
        frame = each.receive_frame()
        assert frame is not None
        assert len(frame) > 64 * 1024


def test_large_answers_are_received_one_at_a_time(
    behind: Behind, connect: Connect, held: threading.Event, received: list[int]
) -> None:
    clients = [ask_for_many(behind, connect) for _ in range(4)]
    wait_until(lambda: waiting() == len(clients) - 1, "they do not wait")
    assert len(received) == 1
    held.set()
    for each in clients:
        assert each.receive_frame() is not None
    assert len(received) == len(clients)


def test_large_response_of_a_disconnected_client_is_not_received(
    behind: Behind, connect: Connect, held: threading.Event, received: list[int]
) -> None:
    first = ask_for_many(behind, connect)
    wait_until(lambda: len(received) == 1, "nothing is received")
    leaving = ask_for_many(behind, connect)
    wait_until(lambda: waiting() == 1, "it does not wait")
    leaving.close()
    wait_until(lambda: waiting() == 0, "it waits still")
    held.set()
    assert first.receive_frame() is not None
    assert len(received) == 1


def test_client_that_does_not_read_its_response_yields_its_turn(
    cluster: BrokerCluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.gateway.message_memory.ANSWERS_BYTES", 1024 * 1024)
    shrink_send_buffers(monkeypatch)
    names = [f"{number:05}" + "x" * 240 for number in range(4_000)]
    with gateway_before(cluster, timing=Timing(memory_patience_s=0.2)) as behind:
        slow = connect(behind.address())
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        slow.send_bytes(old_request(ApiKey.METADATA, 1, names))
        answers = behind.gateway.memory.answers
        wait_until(lambda: answers.held == 1, "nothing is sent")
        with Wire(behind.address()) as other:
            other.send_bytes(old_request(ApiKey.METADATA, 1, names))
            frame = other.receive_frame()
            assert frame is not None
            assert len(frame) > 900_000
        assert slow.receive_frame() is None
        wait_until(lambda: answers.held == 0, "memory is not given back")


def shrink_send_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(client: Client, connected: socket.socket, idle_s: float) -> None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        original(client, connected, idle_s)

    original = Client.__init__
    monkeypatch.setattr(Client, "__init__", begin)
