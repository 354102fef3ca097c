"""Brokers that move leadership, go away, come back, and come new."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import psutil
import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, append, free_ports, gateway_before, messages, read_all, wait_until
from tests.world.batches import batch

Connect = Callable[[str], Wire]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """One of this module's own: its nodes are stopped and started."""
    with BrokerCluster(3) as running:
        yield running


def leader_told(wire: Wire, topic: str) -> tuple[int, str]:
    """Return a partition's leader and its address, as in the metadata for a client of 0.9."""
    answer = wire.call(
        ApiKey.METADATA, 0, topics=[request_class(ApiKey.METADATA).MetadataRequestTopic(name=topic)]
    )
    leader = answer.topics[0].partitions[0].leader_id
    return leader, next(f"{each.host}:{each.port}" for each in answer.brokers if each.node_id == leader)


@pytest.mark.parametrize("version", [1, 3, 12])
def test_client_finds_a_moved_leader(behind: Behind, topic: str, connect: Connect, version: int) -> None:
    append(behind, topic, batch([b"first"]))
    before = connect(behind.address(topic))
    assert before.fetch(topic, version=version).error_code == ErrorCode.NONE
    behind.cluster.move_leader(topic, 0, behind.cluster.leader_of(topic) % 3 + 1)
    assert before.fetch(topic, version=version).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader, address = leader_told(before, topic)
    assert leader == behind.cluster.leader_of(topic)
    assert connect(address).fetch(topic, version=version).error_code == ErrorCode.NONE


def test_stopped_broker_disconnects_only_its_clients(behind: Behind, topic: str, connect: Connect) -> None:
    append(behind, topic, batch([b"kept"]))
    leader = behind.cluster.leader_of(topic)
    waiting, idle = connect(behind.address(topic)), connect(behind.address(topic))
    other = connect(str(behind.gateway.brokers[leader % 3 + 1]))
    for each in (idle, other):
        each.call(ApiKey.METADATA, 1, topics=[])
    waiting.send_fetch([(topic, 0, 1)], version=1, min_bytes=1, max_wait_ms=60_000)
    behind.cluster.stop_node(leader)
    try:
        # A broker that stops leads nothing: it may say so to a client that waits, before it hangs up.
        assert waiting.receive_frame() is None or waiting.receive_frame() is None
        assert idle.receive_frame() is None
        # A new client is disconnected, too: no client waits for a broker that is down.
        late = connect(str(behind.gateway.brokers[leader]))
        late.send_fetch([(topic, 0, 0)], version=1)
        assert late.receive_frame() is None
        new_leader, address = leader_told(other, topic)
        assert new_leader != leader
        assert read_all(connect(address), topic, 1, count=1)[0].value == b"kept"
    finally:
        behind.cluster.start_node(leader)
    assert read_all(connect(behind.address(topic)), topic, 1, count=1)[0].value == b"kept"


def test_bootstrap_works_while_brokers_are_down(behind: Behind, connect: Connect) -> None:
    for node_id in (1, 2):
        behind.cluster.stop_node(node_id)
    try:
        for _ in range(4):
            answer = connect(behind.address()).call(ApiKey.METADATA, 1, topics=[])
            assert [each.node_id for each in answer.brokers] == [3]
    finally:
        for node_id in (1, 2):
            behind.cluster.start_node(node_id)


def test_new_broker_gets_a_listener(cluster: BrokerCluster, connect: Connect) -> None:
    cluster.stop_node(3)
    with gateway_before(cluster) as behind:
        assert set(behind.gateway.brokers) == {1, 2}
        wire = connect(behind.address())
        cluster.start_node(3)
        told = wire.call(ApiKey.METADATA, 1, topics=[])
        (address,) = [f"{each.host}:{each.port}" for each in told.brokers if each.node_id == 3]
        assert address == str(behind.gateway.brokers[3])
        topic = behind.new_topic()
        cluster.move_leader(topic, 0, 3)
        append(behind, topic, batch([b"here"]))
        assert messages(connect(address).fetch(topic, version=0).record_set)[0].value == b"here"


def test_unknown_coordinator_gets_a_listener(cluster: BrokerCluster, connect: Connect) -> None:
    cluster.stop_node(3)
    with gateway_before(cluster) as behind:
        wire = connect(behind.address())
        cluster.start_node(3)
        found = {}
        for number in range(20):
            answer = wire.call(ApiKey.FIND_COORDINATOR, 0, key=f"group {number}")
            found[answer.node_id] = answer.port
        assert found[3] == behind.gateway.brokers[3].port


#: From a bootstrap listener's to that of broker 3.
PORTS = 5


def test_used_port_of_a_later_broker_omits_it_alone(
    cluster: BrokerCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_ports(PORTS)
    cluster.stop_node(3)
    with gateway_before(cluster, port=port) as behind, socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 4))
        taken.listen()
        cluster.start_node(3)
        wire = connect(behind.address())
        for _ in range(3):
            answer = wire.call(ApiKey.METADATA, 1, topics=[])
            assert {each.node_id for each in answer.brokers} == {1, 2}
        assert caplog.text.count(f"cannot listen on 127.0.0.1:{port + 4}") == 1
        taken.close()
        answer = wire.call(ApiKey.METADATA, 1, topics=[])
        assert {each.node_id for each in answer.brokers} == {1, 2, 3}


# Clients that go away


@pytest.mark.parametrize("version", [1, 12])
def test_response_is_dropped_if_its_client_hung_up(
    behind: Behind, topic: str, connect: Connect, version: int
) -> None:
    wait_until(lambda: behind.gateway.connections == 0, "clients of other tests are still there")
    wire = connect(behind.address(topic))
    wire.send_fetch([(topic, 0, 0)], version=version, min_bytes=1, max_wait_ms=2**31 - 1)
    wait_until(lambda: behind.gateway.connections == 1, "the client is not served")
    wire.close()
    wait_until(lambda: behind.gateway.connections == 0, "its thread waits for the broker")


def test_clients_that_hang_up_leave_no_threads_or_descriptors(
    behind: Behind, topic: str, connect: Connect
) -> None:
    def come_and_go() -> None:
        wire = connect(behind.address(topic))
        wire.fetch(topic, version=1)
        wire.close()

    come_and_go()  # opens the connections that the gateway keeps
    wait_until(lambda: behind.gateway.connections == 0, "clients of other tests are still there")
    process = psutil.Process()
    files, threads = process.num_fds(), process.num_threads()
    for _ in range(20):
        come_and_go()
    wait_until(lambda: process.num_fds() <= files, "sockets are left")
    wait_until(lambda: process.num_threads() <= threads, "threads are left")


def test_truncated_response_closes_the_connection(behind: Behind, topic: str, connect: Connect) -> None:
    append(behind, topic, batch([b"x" * 100_000]))
    leader = behind.cluster.node(behind.cluster.leader_of(topic))
    for version in (1, 12):
        leader.faults.add(ApiKey.FETCH, topic=topic, drop="within")
        wire = connect(behind.address(topic))
        wire.send_fetch([(topic, 0, 0)], version=version)
        assert wire.receive_frame() is None


def test_stop_does_not_wait_for_clients_or_brokers(cluster: BrokerCluster, connect: Connect) -> None:
    with gateway_before(cluster) as behind:
        topic = behind.new_topic()
        wires = [connect(behind.address(topic)) for _ in range(3)]
        wires[0].send_fetch([(topic, 0, 0)], version=1, min_bytes=1, max_wait_ms=2**31 - 1)
        wires[1].send_fetch([(topic, 0, 0)], version=12, min_bytes=1, max_wait_ms=2**31 - 1)
        wait_until(lambda: behind.gateway.connections == 3, "the clients are not served")
        behind.gateway.stop()
        assert behind.gateway.connections == 0
        for wire in wires:
            assert wire.receive_frame() is None
