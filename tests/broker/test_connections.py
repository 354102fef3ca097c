"""Clients that leave while they wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal_broker import Broker
from tests.broker.wire import Wire
from tests.world.batches import batch
from tests.world.waiting import wait_until

_LONG_MS = 2**31 - 1
_DESCRIPTORS = Path("/proc/self/fd")


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
    wait_until(lambda: broker.purgatory.waiting == len(wires))
    for wire in wires:
        wire.close()
    wait_until(lambda: broker.server.connections == 0)
    assert broker.purgatory.waiting == 0
    assert len(list(_DESCRIPTORS.iterdir())) <= before


def test_clients_that_leave_a_join_are_removed(broker: Broker) -> None:
    with Wire(broker.bootstrap) as leader:
        send_join(leader)
        assert leader.receive_frame() is not None
        wires = [Wire(broker.bootstrap) for _ in range(5)]
        for wire in wires:
            send_join(wire)  # it waits for the leader, which does not join again
        wait_until(lambda: broker.groups.read("group", lambda group: len(group.members)) == 1 + len(wires))
        for wire in wires:
            wire.close()
        wait_until(lambda: broker.server.connections == 1)


def test_requests_before_a_hang_up_are_served(broker: Broker) -> None:
    wire = Wire(broker.bootstrap)
    send_long_fetch(wire)
    wire.send(ApiKey.PRODUCE, 7, **wire.produce_fields([("topic", 0, batch())], acks=0))
    wire.close()
    wait_until(lambda: broker.log("topic").log_end_offset > 0)
