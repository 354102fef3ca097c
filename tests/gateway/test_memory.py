"""A client takes at most one buffer and one chunk of the gateway's memory, with any request."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from shoal.gateway import rewriting
from shoal.gateway import upstream as upstream_module
from shoal.gateway.converting import CORES
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.records.down_conversion import DownConversion
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, append, gateway_before, messages, wait_until
from tests.world.batches import batch

BUFFER_BYTES = 256 * 1024
CHUNK_BYTES = 16 * 1024
SLACK_BYTES = 4 * 1024

#: Of each client's topic: much more than the buffer.
BATCHES = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(3) as running:
        yield running


class Alive:
    """Objects that are alive, and the most that there were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By id, since a bytearray has no hash.
        self._objects: weakref.WeakValueDictionary[int, Watched] = weakref.WeakValueDictionary()
        self.most = 0
        self.largest = 0
        self.total = 0

    def add(self, each: Watched, size: int) -> None:
        with self._lock:
            self._objects[id(each)] = each
            self.total += 1
            self.most = max(self.most, len(self._objects))
            self.largest = max(self.largest, size)

    @property
    def now(self) -> int:
        return len(self._objects)


class Watched(bytearray):
    """A bytearray that one can see the end of."""


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> Alive:
    """The answers that are held."""
    alive = Alive()

    class Memory:
        @staticmethod
        def mmap(descriptor: int, size: int) -> Watched:
            made = Watched(size)
            alive.add(made, size)
            return made

    monkeypatch.setattr(upstream_module, "mmap", Memory)
    return alive


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Alive:
    """The chunks that were converted and are not sent."""
    alive = Alive()

    def watched(conversion: DownConversion) -> Iterator[bytearray]:
        for chunk in original(conversion):
            seen = Watched(chunk)
            alive.add(seen, len(seen))
            del chunk
            yield seen
            del seen

    original = DownConversion.chunks
    monkeypatch.setattr(DownConversion, "chunks", watched)
    return alive


@pytest.fixture
def limited(cluster: BrokerCluster) -> Iterator[Behind]:
    with gateway_before(cluster, buffer_bytes=BUFFER_BYTES, chunk_bytes=CHUNK_BYTES) as behind:
        yield behind


@pytest.fixture
def busy_topic(limited: Behind) -> str:
    topic = limited.new_topic()
    append(limited, topic, *[batch([bytes([number % 7]) * 4_000]) for number in range(BATCHES)])
    return topic


def ask_for_much(wire: Wire, topic: str, version: int) -> None:
    wire.send_fetch([(topic, 0, 0)], version=version, max_bytes=50 << 20, partition_max_bytes=50 << 20)


@pytest.mark.parametrize("version", [0, 3])
def test_large_fetch_is_sent_in_chunks_of_the_buffer(
    limited: Behind, busy_topic: str, buffers: Alive, chunks: Alive, version: int
) -> None:
    with Wire(limited.address(busy_topic)) as wire:
        ask_for_much(wire, busy_topic, version)
        frame = wire.receive_frame()
    assert frame is not None
    assert BUFFER_BYTES // 2 < len(frame) <= BUFFER_BYTES + SLACK_BYTES
    assert (buffers.total, buffers.largest <= BUFFER_BYTES + SLACK_BYTES) == (1, True)
    assert chunks.total > 5
    assert chunks.most <= 2  # the one that is made, and this test's copy of the one before
    assert chunks.largest <= CHUNK_BYTES + SLACK_BYTES
    wait_until(lambda: bool(gc.collect() is not None and buffers.now == 0), "the buffer is still held")


def test_clients_that_do_not_read_hold_one_buffer_each(
    limited: Behind, busy_topic: str, buffers: Alive, chunks: Alive
) -> None:
    clients = 20
    with _Slow(limited.address(busy_topic), clients) as slow:
        for wire in slow.wires:
            ask_for_much(wire, busy_topic, 1)
            ask_for_much(wire, busy_topic, 1)
        wait_until(lambda: buffers.total >= clients, "not everybody is served")
        # Meanwhile another client is served without delay.
        with Wire(limited.address(busy_topic)) as quick:
            assert len(messages(quick.fetch(busy_topic, version=1).record_set)) > 10
        assert buffers.most <= clients + 1
        assert buffers.largest <= BUFFER_BYTES + SLACK_BYTES
        assert chunks.most <= 2 * (clients + 1)
        for wire in slow.wires:
            for _ in range(2):
                frame = wire.receive_frame()
                assert frame is not None
                assert len(frame) > BUFFER_BYTES // 2
    wait_until(lambda: limited.gateway.connections == 0, "threads are left")


def test_rewritten_response_takes_a_turn(limited: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def rewrite_brokers(*arguments: Any) -> None:
        held.append(CORES.held)
        original(*arguments)

    original = rewriting.rewrite_brokers
    monkeypatch.setattr(rewriting, "rewrite_brokers", rewrite_brokers)
    with Wire(limited.address()) as wire:
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
    assert held == [1]


def test_response_of_many_partitions_holds_one_first_batch(
    limited: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[DownConversion] = []
    held: list[int] = []

    def make(conversion: DownConversion, *arguments: Any, **options: Any) -> None:
        original(conversion, *arguments, **options)
        made.append(conversion)
        held.append(sum(bool(each.held_bytes) for each in made))

    original = DownConversion.__init__
    monkeypatch.setattr(DownConversion, "__init__", make)
    topic = limited.new_topic(5)
    for partition in range(5):
        limited.cluster.move_leader(topic, partition, 1)
        append(limited, topic, batch(20, codec=Codec.GZIP), partition=partition)
    with Wire(limited.address(topic)) as wire:
        answer = wire.fetch_all([(topic, partition, 0) for partition in range(5)], version=1)
    assert [len(messages(each.record_set)) for each in answer.partitions] == [20] * 5
    assert held == [1, 2, 2, 2, 2]  # the one that is made, and the first


class _Slow:
    """Clients whose system buffers few unread bytes."""

    def __init__(self, address: str, count: int) -> None:
        self.wires: Sequence[Wire] = [_with_small_window(address) for _ in range(count)]

    def __enter__(self) -> _Slow:
        return self

    def __exit__(self, *error: object) -> None:
        for wire in self.wires:
            wire.close()


def _with_small_window(address: str) -> Wire:
    wire = Wire(address)
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    return wire
