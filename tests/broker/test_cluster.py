"""Several embedded brokers as one cluster: leaders, and how they move."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import decode_fetch_response
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.world.batches import batch


@pytest.fixture
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(3) as running:
        running.create_topic("topic", 3)
        yield running


@pytest.fixture
def wires(cluster: BrokerCluster) -> Iterator[dict[int, Wire]]:
    """A connection to each node, by its id."""
    with ExitStack() as stack:
        yield {node.node_id: stack.enter_context(Wire(node.bootstrap)) for node in cluster.nodes}


def leaders_as_told(wire: Wire) -> dict[int, tuple[int, int]]:
    """Return leader and leader epoch of each partition, by Metadata."""
    response = wire.call(ApiKey.METADATA, 12, topics=None)
    (topic,) = response.topics
    return {each.partition_index: (each.leader_id, each.leader_epoch) for each in topic.partitions}


def test_metadata_of_every_node_have_all_nodes_and_the_same_leaders(
    cluster: BrokerCluster, wires: dict[int, Wire]
) -> None:
    for wire in wires.values():
        response = wire.call(ApiKey.METADATA, 12, topics=[])
        assert {node.node_id: node.port for node in response.brokers} == {
            node.node_id: node.port for node in cluster.nodes
        }
        assert (response.cluster_id, response.controller_id) == (cluster.node(1).cluster_id, 1)
        assert leaders_as_told(wire) == {0: (1, 0), 1: (2, 0), 2: (3, 0)}


def test_only_the_leader_serves_a_partition(wires: dict[int, Wire]) -> None:
    for node_id, wire in wires.items():
        for partition in range(3):
            code = ErrorCode.NONE if partition == node_id - 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert wire.produce("topic", batch(), partition=partition).error_code == code
            assert wire.fetch("topic", partition=partition).error_code == code
            assert wire.list_offset("topic", -1, partition=partition).error_code == code


def test_moved_leader_has_the_log_in_a_new_epoch(cluster: BrokerCluster, wires: dict[int, Wire]) -> None:
    wires[1].produce("topic", batch(3))
    cluster.move_leader("topic", 0, 2)
    assert wires[1].produce("topic", batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert wires[2].produce("topic", batch()).base_offset == 3
    assert leaders_as_told(wires[3])[0] == (2, 1)
    assert wires[2].fetch("topic", leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert wires[2].end_of_epoch("topic", 0).end_offset == 3


def test_producer_s_sequences_continue_at_a_new_leader(
    cluster: BrokerCluster, wires: dict[int, Wire]
) -> None:
    sent = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    wires[1].produce("topic", sent)
    cluster.move_leader("topic", 0, 3)
    again = wires[3].produce("topic", sent)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert wires[3].end_offset("topic") == 2


def test_waiting_fetch_is_answered_when_the_leader_moves(
    cluster: BrokerCluster, wires: dict[int, Wire]
) -> None:
    wires[1].send_fetch([("topic", 0, 0)], min_bytes=1, max_wait_ms=600_000)
    moving = threading.Timer(0, cluster.move_leader, ("topic", 0, 2))
    moving.start()
    frame = wires[1].receive_frame()
    moving.join()
    assert frame is not None
    (fetched,) = decode_fetch_response(memoryview(frame), 12).partitions
    assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_stopped_node_s_partitions_move_to_the_others(cluster: BrokerCluster, wires: dict[int, Wire]) -> None:
    wires[2].produce("topic", batch(4), partition=1)
    cluster.stop_node(2)
    assert wires[2].receive_frame() is None
    leader, epoch = leaders_as_told(wires[1])[1]
    assert leader in (1, 3)
    assert epoch == 1
    assert wires[leader].end_offset("topic", partition=1) == 4
    assert leaders_as_told(wires[3])[0] == (1, 0), "the other leaders stay"
    cluster.start_node(2)
    with Wire(cluster.node(2).bootstrap) as back:
        assert leaders_as_told(back)[1] == (leader, 1)


def test_partition_of_a_stopped_leader_has_no_leader(cluster: BrokerCluster, wires: dict[int, Wire]) -> None:
    cluster.stop_node(3)
    cluster.move_leader("topic", 0, 3)
    assert leaders_as_told(wires[1])[0][0] == -1
    assert wires[1].produce("topic", batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_waiting_member_at_a_stopped_node_is_disconnected(
    cluster: BrokerCluster, wires: dict[int, Wire]
) -> None:
    joined = wires[1].join("group", instance="one", rebalance_timeout_ms=600_000)
    assert joined.error_code == ErrorCode.NONE
    wires[2].join("group", instance="two", wait=False)
    cluster.stop_node(2)
    assert wires[2].receive_frame() is None
    heartbeat = wires[1].heartbeat("group", joined.member_id, 1, instance="one")
    assert heartbeat in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), "the group lives on"
