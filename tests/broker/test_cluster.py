"""Several embedded brokers as one cluster: leaders, and how they move."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response
from shoal.protocol.fetch import decode_fetch_response
from shoal_broker import BrokerCluster
from tests.batches import batch
from tests.broker.wire import PATIENCE_S, Wire


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


def test_each_node_has_its_own_faults(cluster: BrokerCluster, wires: dict[int, Wire]) -> None:
    cluster.node(1).faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert wires[2].produce("topic", batch(), partition=1).error_code == ErrorCode.NONE
    assert wires[1].produce("topic", batch()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_coordinator_is_the_same_node_for_all(wires: dict[int, Wire]) -> None:
    for group in ("one", "two", "three", "four"):
        answers = set()
        for wire in wires.values():
            wire.send(ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
            frame = wire.receive_frame()
            assert frame is not None
            found = decode_response(ApiKey.FIND_COORDINATOR, 3, memoryview(frame))
            answers.add((found.node_id, found.port))
        assert len(answers) == 1


def test_confluent_kafka_follows_moved_leaders(cluster: BrokerCluster) -> None:
    """An idempotent producer, while each leader moves about and a node stops: all records, once, in order."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(600):
        producer.produce("topic", b"%d" % number, partition=number % 3)
        if number % 100 == 50:
            producer.poll(0)
            cluster.move_leader("topic", number // 100 % 3, 1 + number // 50 % 3)
        if number == 300:
            cluster.stop_node(2)
        if number == 450:
            cluster.start_node(2)
    assert producer.flush(3 * PATIENCE_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("topic", partition, 0) for partition in range(3)])
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    ended = 0
    while ended < 3:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended += 1
        else:
            found[message.partition()].append(int(message.value()))
    consumer.close()
    assert found == {partition: list(range(partition, 600, 3)) for partition in range(3)}
