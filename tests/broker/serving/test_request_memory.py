"""The memory of requests while they arrive, while they are served, and afterwards."""

from __future__ import annotations

import gc
import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.net import memory_budget
from shoal.net.memory_budget import MemoryBudget
from shoal.records import Codec
from shoal_broker import Broker
from shoal_broker.serving import server
from tests.batches import batch, compressed, message, raw_batch
from tests.broker.wire import Wire
from tests.two_brokers import wait_until

MIB = 1024 * 1024
CLAIMED = 20 * MIB
BUDGET = 2 * CLAIMED


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage, which a process of many objects does rarely: nothing may wait for it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def traced() -> Iterator[None]:
    """Trace allocations, without garbage collection."""
    with without_collections():
        tracemalloc.start()
        yield
        tracemalloc.stop()


def held() -> int:
    """Return the bytes that the broker's connections have allocated; the client's encoder keeps some, too."""
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, server.__file__)])
    return sum(each.size for each in snapshot.statistics("filename"))


@pytest.fixture
def small() -> Iterator[Broker]:
    """One with room for two requests of the largest size."""
    config = {"socket.request.max.bytes": str(CLAIMED), "queued.max.request.bytes": str(BUDGET)}
    with Broker(config=config) as running:
        running.create_topic("topic", config={"max.message.bytes": str(CLAIMED)})
        yield running


def begin(wire: Wire, sent: int) -> None:
    """Send so many bytes of a request that claims to have the largest size."""
    wire.send_bytes(struct.pack(">i", CLAIMED) + bytes(sent))


@pytest.mark.usefixtures("traced")
def test_connections_idle_after_a_large_request_keep_a_megabyte_each() -> None:
    with Broker() as broker, ExitStack() as stack:
        record_set = bytes(4 * MIB)
        for _ in range(5):
            wire = stack.enter_context(Wire(broker.bootstrap))
            assert wire.produce("unknown", record_set).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wait_until(lambda: held() < 5 * 1.5 * MIB)


@pytest.mark.parametrize(
    "record_set",
    [
        raw_batch(compressed(bytes(8 * MIB), Codec.ZSTD), attributes=Codec.ZSTD),
        raw_batch(compressed(bytes(8 * MIB), Codec.GZIP), attributes=Codec.GZIP),
        raw_batch(b"no gzip", attributes=Codec.GZIP),
        raw_batch(b"no gzip", attributes=Codec.GZIP) * 2,
        message(1, b"no gzip", attributes=Codec.GZIP),
    ],
    ids=["zstd", "gzip", "damaged", "several", "message set"],
)
def test_refused_records_are_freed_without_garbage_collection(record_set: bytes) -> None:
    with Broker(config={"shoal.old.versions": "true"}) as broker, Wire(broker.bootstrap) as wire:
        wire.create_topic("topic")
        with without_collections():
            before = exceptions_alive()
            for version in (2, 9):
                assert wire.produce("topic", record_set, version=version).error_code != ErrorCode.NONE
            wait_until(lambda: exceptions_alive() == before)


def exceptions_alive() -> int:
    """Count exceptions: their tracebacks hold frames, and with them requests and decompressed bytes."""
    return sum(isinstance(each, Exception) for each in gc.get_objects())


@pytest.mark.usefixtures("traced")
def test_half_sent_requests_stay_in_the_budget_and_small_ones_are_served(small: Broker) -> None:
    with ExitStack() as stack:
        senders = []
        for _ in range(5):
            wire = stack.enter_context(Wire(small.bootstrap))
            sender = threading.Thread(target=send_most, args=(wire,), daemon=True)
            sender.start()
            senders.append(sender)
        wait_until(lambda: sum(not sender.is_alive() for sender in senders) >= 2)
        with Wire(small.bootstrap) as other:
            assert other.produce("topic", batch()).error_code == ErrorCode.NONE
        # In addition to the budget: each connection's own memory, and a copy while a buffer grows.
        wait_until(lambda: held() < BUDGET + 5 * 2 * MIB)


_MOST_OF_IT = struct.pack(">i", CLAIMED) + bytes(CLAIMED - 1)


def send_most(wire: Wire) -> None:
    with suppress(OSError):  # at the end of the test
        wire.send_bytes(_MOST_OF_IT)


def test_large_request_is_served_while_half_sent_ones_hold_the_budget(
    small: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_budget, "_PATIENCE_S", 0.2)
    with Wire(small.bootstrap) as oldest, Wire(small.bootstrap) as younger, Wire(small.bootstrap) as honest:
        for number, wire in enumerate((oldest, younger), 1):
            begin(wire, 2 * MIB)
            wait_until(lambda number=number: len(small._server._memory._taken) == number)  # type: ignore[misc]
        assert honest.produce("topic", batch([bytes(3 * MIB)])).error_code == ErrorCode.NONE
        assert oldest.receive_frame() is None
        assert len(small._server._memory._taken) == 1
    assert "a request of 20971520 bytes from 127.0.0.1 was not received while others waited" in caplog.text


def test_large_requests_that_wait_for_memory_are_served_in_turn(small: Broker) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(small.bootstrap)) for _ in range(6)]
        errors = []

        def produce(wire: Wire) -> None:
            errors.append(wire.produce("topic", batch([bytes(15 * MIB)])).error_code)

        threads = [threading.Thread(target=produce, args=(wire,)) for wire in wires]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == [ErrorCode.NONE] * 6
        assert not small._server._memory._taken


def test_broker_stops_while_requests_wait_for_memory(small: Broker) -> None:
    with ExitStack() as stack:
        for _ in range(3):
            begin(stack.enter_context(Wire(small.bootstrap)), 2 * MIB)
        wait_until(lambda: len(small._server._memory._waiting) == 1)
        small.stop()
        assert not small._server._memory._taken


def test_requests_without_bound_do_not_wait() -> None:
    with Broker(config={"queued.max.request.bytes": "-1"}) as broker, ExitStack() as stack:
        for number in range(1, 5):
            wire = stack.enter_context(Wire(broker.bootstrap))
            wire.send_bytes(struct.pack(">i", 100 * MIB) + bytes(2 * MIB))
            wait_until(lambda number=number: len(broker._server._memory._taken) == number)  # type: ignore[misc]


def test_bound_below_the_largest_request_is_refused_as_in_kafka() -> None:
    with pytest.raises(
        ConfigError, match=r"queued.max.request.bytes is 1048576, and socket.request.max.bytes"
    ):
        Broker(config={"queued.max.request.bytes": str(MIB)})


@pytest.mark.parametrize("value", ["0", "-2"])
def test_invalid_bound_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes"):
        Broker(config={"queued.max.request.bytes": value})


def test_requests_have_a_bound_by_default() -> None:
    assert int(Broker().config["queued.max.request.bytes"]) == 256 * MIB


def test_client_with_the_least_memory_is_admitted_first() -> None:
    ends = [socket.create_server(("127.0.0.1", 0))]
    budget = MemoryBudget(2, lambda sentence: None, "")
    order: list[str] = []

    def connected(host: str) -> socket.socket:
        """The server's end of a connection from this address."""
        ends.append(socket.create_connection(ends[0].getsockname(), source_address=(host, 0)))
        ends.append(ends[0].accept()[0])
        return ends[-1]

    def take(sock: socket.socket, host: str) -> None:
        with budget.share(sock, 2):
            order.append(host)

    with budget.share(connected("127.0.0.1"), 1), budget.share(connected("127.0.0.2"), 1):
        threads = []
        for number, host in enumerate(("127.0.0.1", "127.0.0.1", "127.0.0.3"), 1):
            threads.append(threading.Thread(target=take, args=(connected(host), host)))
            threads[-1].start()
            wait_until(lambda number=number: len(budget._waiting) == number)  # type: ignore[misc]
        assert budget._is_first(budget._waiting[2])
    for thread in threads:
        thread.join()
    assert sorted(order) == ["127.0.0.1", "127.0.0.1", "127.0.0.3"]
    for each in ends:
        each.close()


def test_request_larger_than_the_budget_is_admitted_alone() -> None:
    budget = MemoryBudget(1, lambda sentence: None, "")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        budget.share(client, 5),
    ):
        assert len(budget._taken) == 1
