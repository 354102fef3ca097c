"""Requests that Kafka 4 refuses, asked of the gateway before brokers that refuse them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import Codec
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, append, ask, gateway_before, messages, read_all, wait_until
from tests.world.batches import TIMESTAMP, TRANSACTIONAL, batch, message, wrapper

Connect = Callable[[str], Wire]


def abort(behind: Behind, topic: str, *sent: Sequence[bytes]) -> None:
    """Produce batches in a transaction that is aborted."""
    _transaction(behind, topic, sent, committed=False).close()


def commit(behind: Behind, topic: str, *sent: Sequence[bytes]) -> None:
    _transaction(behind, topic, sent, committed=True).close()


def _transaction(behind: Behind, topic: str, sent: Sequence[Sequence[bytes]], committed: bool | None) -> Wire:
    name = f"writer of {topic}"
    wire = Wire(behind.direct(topic))
    identity = wire.init_producer_id(name)
    added = request_class(ApiKey.ADD_PARTITIONS_TO_TXN).AddPartitionsToTxnTopic
    wire.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[added(name=topic, partitions=[0])],
    )
    sequence = 0
    for values in sent:
        written = batch(
            values,
            flags=TRANSACTIONAL,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )
        sequence += len(values)
        assert wire.produce(topic, written, transactional_id=name).error_code == ErrorCode.NONE
    if committed is not None:
        ended = wire.call(
            ApiKey.END_TXN,
            3,
            transactional_id=name,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=committed,
        )
        assert ended.error_code == ErrorCode.NONE
    return wire


def values(record_set: memoryview | bytes) -> list[bytes | None]:
    return [each.value for each in messages(record_set)]


# Fetch


def test_batch_that_cannot_be_converted_is_warned_of_once(
    behind: Behind, topic: str, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    append(behind, topic, batch(3, codec=Codec.ZSTD))
    for _ in range(3):
        wire.fetch(topic, version=1)
    assert caplog.text.count(f"{topic}-0: no conversion") == 1
    assert "zstd" in caplog.text


def test_batch_beyond_the_decompression_limit_is_refused(cluster: BrokerCluster) -> None:
    large = [b"x" * 200_000]
    for allowed, code in ((100_000, ErrorCode.MESSAGE_TOO_LARGE), (300_000, ErrorCode.NONE)):
        with gateway_before(cluster, bytes_in_flight=4 * allowed) as behind:
            topic = behind.new_topic()
            append(behind, topic, batch(large, codec=Codec.GZIP))
            with Wire(behind.address(topic)) as wire:
                assert wire.fetch(topic, version=2).error_code == code


def test_produced_set_of_too_many_messages_is_refused(cluster: BrokerCluster) -> None:
    with gateway_before(cluster, largest_produced_bytes=64 * 1024) as behind:
        topic = behind.new_topic()
        with Wire(behind.address(topic)) as wire:
            for count, code in ((1025, ErrorCode.MESSAGE_TOO_LARGE), (1024, ErrorCode.NONE)):
                bomb = wrapper(0, Codec.GZIP, [bytes(message(0, None)) * count])
                assert wire.produce(topic, bomb, version=0).error_code == code


def test_set_is_limited_after_decompression(cluster: BrokerCluster) -> None:
    with gateway_before(cluster, largest_produced_bytes=64 * 1024) as behind:
        topic = behind.new_topic()
        with Wire(behind.address(topic)) as wire:
            for count, code in ((80, ErrorCode.MESSAGE_TOO_LARGE), (50, ErrorCode.NONE)):
                inner = [bytes(message(0, b"\0" * 1000, offset=each)) for each in range(count)]
                expanding = wrapper(0, Codec.GZIP, inner, offset=count - 1)
                assert wire.produce(topic, expanding, version=0).error_code == code


def test_error_of_one_partition_leaves_the_others(behind: Behind, topic: str, wire: Wire) -> None:
    append(behind, topic, batch(1))
    answer = wire.fetch_all([("no such topic", 0, 0), (topic, 0, 0), (topic, 9, 0)], version=1)
    assert {(each.topic, each.partition): each.error_code for each in answer.partitions} == {
        ("no such topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic, 0): ErrorCode.NONE,
        (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert wire.fetch(topic, 7, version=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_error_unknown_to_old_clients_is_translated(
    behind: Behind, topic: str, wire: Wire, code: ErrorCode, told: ErrorCode
) -> None:
    leader = behind.cluster.node(behind.cluster.leader_of(topic))
    leader.faults.add(ApiKey.FETCH, topic=topic, error=code)
    leader.faults.add(ApiKey.PRODUCE, topic=topic, error=code)
    assert wire.fetch(topic, version=2).error_code == told
    assert wire.produce(topic, message(1), version=2).error_code == told


def test_batch_too_large_for_the_gateway_closes_the_connection(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with gateway_before(cluster, buffer_bytes=64 * 1024, bytes_in_flight=512 * 1024) as behind:
        topic = behind.new_topic(max_message_bytes="10000000")
        append(behind, topic, batch([b"x" * 3_000_000]))
        with Wire(behind.address(topic)) as wire:
            wire.send_fetch([(topic, 0, 0)], version=0)
            assert wire.receive_frame() is None
    assert re.search(r"answer.*300", caplog.text)


@pytest.mark.parametrize("version", [0, 2])
def test_partitions_take_turns_if_the_client_keeps_their_order(cluster: BrokerCluster, version: int) -> None:
    with gateway_before(cluster, buffer_bytes=64 * 1024) as behind:
        topic = behind.new_topic(6)
        for partition in range(6):
            behind.cluster.move_leader(topic, partition, 1)
            append(behind, topic, *[batch([b"x" * 30_000])] * 4, partition=partition)
        positions = dict.fromkeys(range(6), 0)
        with Wire(behind.address(topic)) as wire:
            for _ in range(12):
                wanted = [(topic, partition, offset) for partition, offset in positions.items()]
                for fetched in wire.fetch_all(wanted, version=version).partitions:
                    positions[fetched.partition] += len(messages(fetched.record_set))
    assert set(positions.values()) == {4}


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("what", ["zstd", "damaged", "aborted"])
def test_partition_without_visible_records_does_not_block_others(
    cluster: BrokerCluster, version: int, what: str
) -> None:
    with gateway_before(cluster, buffer_bytes=64 * 1024) as behind:
        topic = behind.new_topic(2)
        for partition in range(2):
            behind.cluster.move_leader(topic, partition, 1)
        large = [random.Random(0).randbytes(100_000)]  # the buffer is full with one batch
        if what == "zstd":
            append(behind, topic, batch(large, codec=Codec.ZSTD))
        elif what == "aborted":
            abort(behind, topic, *[large] * 3)
        else:
            log = behind.cluster.node(1).log(topic, 0)
            damaged = batch(large)
            damaged[-1] ^= 1
            log.store(bytes(damaged))
        append(behind, topic, batch([b"mine"]), partition=1)
        found: list[bytes | None] = []
        with Wire(behind.address(topic)) as wire:
            for _ in range(2):
                for fetched in wire.fetch_all([(topic, 0, 0), (topic, 1, 0)], version=version).partitions:
                    found += values(fetched.record_set)
        assert b"mine" in found


# Transactions


def test_aborted_records_are_dropped(behind: Behind, topic: str, wire: Wire) -> None:
    append(behind, topic, batch([b"before"]))
    abort(behind, topic, [b"never", b"never"])
    commit(behind, topic, [b"committed"])
    append(behind, topic, batch([b"after"]))
    found = read_all(wire, topic, 1, count=3)
    assert [(each.offset, each.value) for each in found] == [(0, b"before"), (4, b"committed"), (6, b"after")]


def test_fetch_before_the_last_marker_waits_for_records(behind: Behind, topic: str, wire: Wire) -> None:
    commit(behind, topic, [b"first"])
    leader = behind.cluster.node(behind.cluster.leader_of(topic))
    fetches = leader.faults.add(ApiKey.FETCH, times=None)
    fetched = wire.fetch(topic, 1, version=1, min_bytes=1, max_wait_ms=100)
    assert (fetched.error_code, len(fetched.record_set)) == (ErrorCode.NONE, 0)
    asked = fetches.hits
    wire.send_fetch([(topic, 0, 1)], version=1, min_bytes=1, max_wait_ms=20_000)
    wait_until(lambda: fetches.hits > asked, "nothing is asked of the broker")
    append(behind, topic, batch([b"second"]))
    frame = wire.receive_frame()
    assert frame is not None
    assert b"second" in frame
    # One that waited behind the marker, and nothing before it again.
    assert fetches.hits == asked + 1


def test_deleted_skipped_offsets_are_fetched_again(behind: Behind, topic: str, wire: Wire) -> None:
    abort(behind, topic, [b"never"])
    assert len(wire.fetch(topic, version=1).record_set) == 0
    leader = behind.cluster.node(behind.cluster.leader_of(topic))
    # As after an unclean election: the log ends before the skipped offsets.
    leader.faults.add(ApiKey.FETCH, topic=topic, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert wire.fetch(topic, version=1).error_code == ErrorCode.NONE
    append(behind, topic, batch([b"new"]))
    assert values(wire.fetch(topic, version=1).record_set) == [b"new"]


# Produce


def test_damaged_message_set_alone_is_refused(behind: Behind, wire: Wire) -> None:
    topic = behind.new_topic(2)
    for partition in range(2):
        behind.cluster.move_leader(topic, partition, 1)
    with Wire(behind.address(topic)) as connected:
        answer = connected.produce_all([(topic, 0, message(0, crc=1)), (topic, 1, message(0))], version=1)
    codes = [each.error_code for entry in answer.responses for each in entry.partition_responses]
    assert codes == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]


def test_old_messages_with_acks_0_are_written(topic: str, wire: Wire) -> None:
    for _ in range(3):
        wire.send(ApiKey.PRODUCE, 0, **wire.produce_fields([(topic, 0, message(0))], acks=0))
    assert wire.end_offset(topic) == 3


@pytest.mark.parametrize(("version", "acks", "count"), [(0, 0, 5), (2, 0, 5), (2, 1, 2), (9, 1, 2)])
def test_produce_requests_before_a_hang_up_are_written(
    behind: Behind, topic: str, connect: Connect, version: int, acks: int, count: int
) -> None:
    leader = behind.cluster.node(behind.cluster.leader_of(topic))
    # The client has hung up before the first request is answered.
    leader.faults.add(ApiKey.PRODUCE, topic=topic, delay_s=0.3)
    sent = message(0) if version < 2 else message(1) if version == 2 else batch(1)
    with Wire(behind.address(topic)) as leaving:
        for _ in range(count):
            leaving.send(ApiKey.PRODUCE, version, **leaving.produce_fields([(topic, 0, sent)], acks=acks))
    direct = connect(behind.direct(topic))
    wait_until(lambda: direct.end_offset(topic) == count, "not all that was sent is written")


def test_error_in_old_messages_with_acks_0_closes_the_connection(wire: Wire) -> None:
    wire.send(ApiKey.PRODUCE, 0, **wire.produce_fields([("no such topic", 0, message(0))], acks=0))
    assert wire.receive_frame() is None


# Offsets


def listed(wire: Wire, topic: str, timestamp: int, most: int) -> tuple[int, list[int]]:
    answer = ask(wire, ApiKey.LIST_OFFSETS, 0, -1, [(topic, [(0, timestamp, most)])])
    ((name, ((partition, error, offsets),)),) = answer.topics
    assert (name, partition) == (topic, 0)
    return error, offsets


def test_offsets_are_listed(behind: Behind, topic: str, wire: Wire) -> None:
    append(behind, topic, batch(5), batch(5, base_timestamp=TIMESTAMP + 1000))
    latest, earliest = -1, -2
    assert listed(wire, topic, latest, 1) == (0, [10])
    assert listed(wire, topic, latest, 10) == (0, [10, 0])
    assert listed(wire, topic, earliest, 1) == (0, [0])
    assert listed(wire, topic, earliest, 10) == (0, [0])
    assert listed(wire, topic, TIMESTAMP + 1000, 1) == (0, [5])
    assert listed(wire, topic, TIMESTAMP + 1000, 2) == (0, [5, 0])
    assert listed(wire, topic, TIMESTAMP + 9999, 1) == (0, [10])
    for most in (0, -1, -(2**31)):
        assert listed(wire, topic, latest, most) == (0, [])


def test_offsets_of_an_unknown_topic_are_an_error(wire: Wire) -> None:
    assert listed(wire, "no such topic", -1, 1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_empty_log_has_one_offset(topic: str, wire: Wire) -> None:
    assert listed(wire, topic, -1, 10) == (0, [0])


@pytest.mark.parametrize("version", [0, 1])
def test_positions_are_committed_and_fetched(topic: str, wire: Wire, version: int) -> None:
    group = f"group of {topic}"
    assert position(wire, group, topic) == (-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    entry = (0, 42, "mine") if version == 0 else (0, 42, -1, "mine")
    fields = (group, [(topic, [entry])]) if version == 0 else (group, -1, "", [(topic, [entry])])
    answer = ask(wire, ApiKey.OFFSET_COMMIT, version, *fields)
    assert answer.topics == [(topic, [(0, 0)])]
    assert position(wire, group, topic) == (42, "mine", 0)


def position(wire: Wire, group: str, topic: str) -> tuple[int, str, int]:
    answer = ask(wire, ApiKey.OFFSET_FETCH, 0, group, [(topic, [0])])
    ((name, ((partition, offset, metadata, error),)),) = answer.topics
    assert (name, partition) == (topic, 0)
    return offset, metadata, error


def test_offset_commit_v0_to_any_broker_reaches_the_coordinator(
    behind: Behind, topic: str, wire: Wire
) -> None:
    leader = behind.cluster.node(behind.cluster.leader_of(topic))
    for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        leader.faults.add(api, topic=topic, error=ErrorCode.NOT_COORDINATOR)
    answer = ask(wire, ApiKey.OFFSET_COMMIT, 0, f"group of {topic}", [(topic, [(0, 7, "")])])
    assert answer.topics == [(topic, [(0, 0)])]
    assert position(wire, f"group of {topic}", topic) == (7, "", 0)


# Topics


def test_metadata_of_a_cluster_without_the_oldest_version_have_the_addresses_of_the_gateway() -> None:
    with BrokerCluster(2) as cluster:
        for node in cluster.nodes:
            apis = dict(node.apis)
            apis[ApiKey.METADATA] = replace(apis[ApiKey.METADATA], oldest=1)
            node.apis = apis
        with gateway_before(cluster) as behind, Wire(behind.address()) as wire:
            found = wire.call(ApiKey.METADATA, 0, topics=[]).brokers
            assert {each.node_id: each.port for each in found} == {
                node_id: address.port for node_id, address in behind.gateway.brokers.items()
            }


def test_topics_are_created_and_described(cluster: BrokerCluster) -> None:
    wanted = [("retention.ms", "7")]
    with gateway_before(cluster, allow_create_topics=True) as behind, Wire(behind.address()) as wire:
        created = ask(wire, ApiKey.CREATE_TOPICS, 0, [("made by 0.10", 2, 1, [], wanted)], 5000)
        assert created.topic_errors == [("made by 0.10", ErrorCode.INVALID_TOPIC_EXCEPTION)]
        created = ask(wire, ApiKey.CREATE_TOPICS, 0, [("made-by-0.10", 2, 1, [], wanted)], 5000)
        assert created.topic_errors == [("made-by-0.10", 0)]
        described = ask(
            wire, ApiKey.DESCRIBE_CONFIGS, 0, [(2, "made-by-0.10", ["retention.ms", "cleanup.policy"])]
        )
    ((_, _, _, _, configs),) = described.resources
    flags = {name: (value, is_default) for name, value, _, is_default, _ in configs}
    assert flags == {"retention.ms": ("7", False), "cleanup.policy": ("delete", True)}
