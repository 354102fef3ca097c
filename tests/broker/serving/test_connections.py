"""Clients that leave while they wait, say nothing, or are too many; and requests that are too large."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal_broker import Broker
from tests.batches import batch
from tests.broker.wire import PATIENCE_S, Wire
from tests.two_brokers import wait_until

_LONG_MS = 2**31 - 1
_DESCRIPTORS = Path("/proc/self/fd")


def connections(broker: Broker) -> int:
    return len(broker._server._listener._sockets) - 1  # the one that listens


def send_long_fetch(wire: Wire) -> None:
    wire.send_fetch([("topic", 0, 0)], version=4, min_bytes=1, max_wait_ms=_LONG_MS)


def send_join(wire: Wire) -> None:
    protocol = request_class(ApiKey.JOIN_GROUP).JoinGroupRequestProtocol
    wire.send(
        ApiKey.JOIN_GROUP,
        2,
        group_id="group",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=_LONG_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol(name="range", metadata=b"")],
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One whose connections are the test's own."""
    with Broker() as running:
        running.create_topic("topic")
        yield running


def test_clients_that_leave_a_long_fetch_leave_no_threads_or_descriptors(broker: Broker) -> None:
    before = len(list(_DESCRIPTORS.iterdir()))
    wires = [Wire(broker.bootstrap) for _ in range(50)]
    for wire in wires:
        send_long_fetch(wire)
    wait_until(lambda: len(broker.purgatory._waiting) == len(wires))
    for wire in wires:
        wire.close()
    wait_until(lambda: connections(broker) == 0)
    assert not broker.purgatory._waiting
    assert len(list(_DESCRIPTORS.iterdir())) <= before


def test_clients_that_leave_a_join_are_removed(broker: Broker) -> None:
    with Wire(broker.bootstrap) as leader:
        send_join(leader)
        assert leader.receive_frame() is not None
        wires = [Wire(broker.bootstrap) for _ in range(5)]
        for wire in wires:
            send_join(wire)  # it waits for the leader, which does not join again
        group = broker.groups._groups["group"]
        wait_until(lambda: len(group.members) == 1 + len(wires))
        for wire in wires:
            wire.close()
        wait_until(lambda: connections(broker) == 1)


def test_requests_before_a_hang_up_are_served(broker: Broker) -> None:
    wire = Wire(broker.bootstrap)
    send_long_fetch(wire)
    wire.send(ApiKey.PRODUCE, 7, **wire.produce_fields([("topic", 0, batch())], acks=0))
    wire.close()
    wait_until(lambda: broker.log("topic").log_end_offset > 0)


@pytest.mark.parametrize("data", [b"", b"\0\0", struct.pack(">i", 100) + b"half"])
def test_silent_client_is_disconnected(data: bytes) -> None:
    with Broker(config={"connections.max.idle.ms": "200"}) as broker, Wire(broker.bootstrap) as wire:
        wire.send_bytes(data)
        assert wire.receive_frame() is None


def test_fetch_longer_than_the_idle_limit_is_answered() -> None:
    with Broker(config={"connections.max.idle.ms": "200"}) as broker, Wire(broker.bootstrap) as wire:
        broker.create_topic("topic")
        assert wire.fetch("topic", max_wait_ms=700, min_bytes=1).error_code == ErrorCode.NONE


def test_client_that_does_not_read_its_response_is_disconnected(tmp_path: Path) -> None:
    sent = batch([os.urandom(900_000)])
    config = {"connections.max.idle.ms": "2000"}
    with Broker(config=config, data=tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:
        broker.create_topic("topic")
        for _ in range(40):
            wire.produce("topic", sent)
        limit = 1 << 26
        wire.send_fetch([("topic", 0, 0)], partition_max_bytes=limit, max_bytes=limit)
        wait_until(lambda: connections(broker) == 0)


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_connection_beyond_the_limit_is_closed_until_one_ends(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(config={name: "2"}) as broker:
        first, second = Wire(broker.bootstrap), Wire(broker.bootstrap)
        for wire in (first, second):
            assert wire.call(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.NONE
        for _ in range(3):
            with Wire(broker.bootstrap) as third:
                assert third.receive_frame() is None
        assert caplog.text.count(f"are refused: {name} is 2") == 1
        first.close()
        wait_until(lambda: connections(broker) == 1)
        with Wire(broker.bootstrap) as third:
            assert third.call(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.NONE
        assert second.call(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.NONE
        second.close()


def large_fetch(partitions: int, max_wait_ms: int = _LONG_MS) -> bytes:
    """Return a Fetch v4 of that many partitions, all of which but the first do not exist."""
    head = struct.pack(">hhih", ApiKey.FETCH, 4, 1, -1) + struct.pack(
        ">iiiib", -1, max_wait_ms, 1, 1 << 20, 0
    )
    topic = struct.pack(">ih", 1, 5) + b"topic" + struct.pack(">i", partitions)
    frame = head + topic + b"".join(struct.pack(">iqi", number, 0, 1) for number in range(partitions))
    return struct.pack(">i", len(frame)) + frame


def test_memory_of_a_large_waiting_request_is_freed(broker: Broker, wire: Wire) -> None:
    wire.send_bytes(large_fetch(20_000))
    answer = wire.receive_frame()
    assert answer is not None
    assert len(answer) > 20_000 * 30


def test_large_requests_are_served_one_at_a_time(broker: Broker, wire: Wire) -> None:
    with broker.large_requests.turn("somebody"), Wire(broker.bootstrap) as other:
        wire.send_bytes(large_fetch(20_000))
        # Small ones are served meanwhile.
        assert other.call(ApiKey.METADATA, 1, topics=[]).brokers
        wire._socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            wire._socket.recv(1)
    wire._socket.settimeout(PATIENCE_S)
    assert wire.receive_frame() is not None


def test_request_of_more_than_8_mib_without_records_closes_the_connection(wire: Wire) -> None:
    wire.send_bytes(large_fetch(600_000))
    assert wire.receive_frame() is None
