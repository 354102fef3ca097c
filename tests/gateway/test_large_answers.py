"""Large responses with addresses are decoded one at a time, and share memory."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.gateway import rewriting
from shoal.gateway.client_connection import Client
from shoal.gateway.converting import LARGE
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


def ask_for_many(behind: Behind, connect: Connect) -> Wire:
    wire = connect(behind.address())
    wire.send_bytes(old_request(ApiKey.METADATA, 1, MANY))
    return wire


def waiting() -> int:
    return LARGE.waiting


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


def test_client_that_hung_up_does_not_wait_to_be_decoded(
    behind: Behind, connect: Connect, held: threading.Event
) -> None:
    first = ask_for_many(behind, connect)
    wait_until(lambda: LARGE.held == 1, "nothing is decoded")
    leaving = ask_for_many(behind, connect)
    wait_until(lambda: waiting() == 1, "it does not wait")
    leaving.close()
    wait_until(lambda: waiting() == 0, "it waits still")
    held.set()
    assert first.receive_frame() is not None


def test_large_answer_waits_at_the_broker_for_its_memory(
    cluster: BrokerCluster, connect: Connect, held: threading.Event
) -> None:
    with gateway_before(cluster, bytes_in_flight=300_000) as behind:
        clients = [ask_for_many(behind, connect) for _ in range(4)]
        memory = behind.gateway.memory
        wait_until(lambda: memory.held + memory.waiting == len(clients), "some take no memory")
        assert memory.held == 2
        held.set()
        for each in clients:
            assert each.receive_frame() is not None
        wait_until(lambda: memory.held == 0, "memory is not given back")


def test_client_that_does_not_read_its_response_yields_its_memory(
    cluster: BrokerCluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_send_buffers(monkeypatch)
    names = [f"{number:05}" + "x" * 240 for number in range(4_000)]
    with gateway_before(cluster, bytes_in_flight=1024 * 1024, timing=Timing(memory_patience_s=0.2)) as behind:
        slow = connect(behind.address())
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        slow.send_bytes(old_request(ApiKey.METADATA, 1, names))
        answers = behind.gateway.memory
        wait_until(lambda: answers.held == 1, "nothing is sent")
        with Wire(behind.address()) as other:
            other.send_bytes(old_request(ApiKey.METADATA, 1, names))
            frame = other.receive_frame()
            assert frame is not None
            assert len(frame) > 900_000
        assert slow.receive_frame() is None
        wait_until(lambda: answers.held == 0, "memory is not given back")


def shrink_send_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(client: Client, connected: socket.socket, *rest: Any) -> None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        original(client, connected, *rest)

    original = Client.__init__
    monkeypatch.setattr(Client, "__init__", begin)
