"""Versions of the cluster pass through, byte for byte, except for the brokers' addresses."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, served
from tests.world.batches import batch

Connect = Callable[[str], Wire]


def exchange(address: str, request: bytes) -> bytes | None:
    with Wire(address) as wire:
        wire.send_bytes(request)
        return wire.receive_frame()


def test_large_fetch_response_is_the_broker_s_bytes(behind: Behind) -> None:
    topic = behind.new_topic(max_message_bytes="10000000")
    with Wire(behind.direct(topic)) as direct:
        assert direct.produce(topic, batch([b"x" * 5_000_000])).error_code == ErrorCode.NONE
        direct.send_fetch([(topic, 0, 0)], max_bytes=1 << 30, partition_max_bytes=1 << 30)
        expected = direct.receive_frame()
    with Wire(behind.address(topic)) as wire:
        wire.send_fetch([(topic, 0, 0)], max_bytes=1 << 30, partition_max_bytes=1 << 30)
        answer = wire.receive_frame()
    assert answer is not None
    assert expected is not None
    assert answer[4:] == expected[4:]  # behind the correlation ids
    assert len(expected) > 4_000_000


def test_fetch_by_topic_id_is_forwarded_and_produce_is_by_name(
    wire: Wire, behind: Behind, topic: str
) -> None:
    topic_id = behind.cluster.nodes[0].topics.topic(topic).topic_id
    assert wire.produce(topic, batch(3), version=9).error_code == ErrorCode.NONE
    fetched = wire.fetch(topic_id, version=13)
    assert (fetched.error_code, fetched.topic_id, fetched.high_watermark) == (ErrorCode.NONE, topic_id, 3)
    unknown = wire.fetch(uuid.uuid4(), version=13)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    versions = served(wire)
    assert versions[ApiKey.FETCH][1] == 13
    assert versions[ApiKey.PRODUCE][1] == 9, "later answers name the addresses of new leaders"


@pytest.mark.parametrize("version", [3, 8, 9])
def test_acks_0_has_no_response(wire: Wire, topic: str, version: int) -> None:
    for _ in range(2):
        fields = wire.produce_fields([(topic, 0, batch(3))], acks=0, transactional_id="of no importance" * 9)
        wire.send(ApiKey.PRODUCE, version, **fields)
    assert wire.end_offset(topic) == 6


def test_error_with_acks_0_closes_the_connection(wire: Wire) -> None:
    wire.send(ApiKey.PRODUCE, 3, **wire.produce_fields([("no such topic", 0, batch(1))], acks=0))
    assert wire.receive_frame() is None


# Addresses


@pytest.mark.parametrize("version", [*range(1, 13)])
def test_metadata_names_the_gateway_for_each_broker(behind: Behind, topic: str, version: int) -> None:
    with Wire(behind.address()) as wire:
        answer = wire.call(ApiKey.METADATA, version, topics=None, allow_auto_topic_creation=False)
    brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
    assert brokers == behind.gateway.brokers
    assert not {port for _, port in brokers.values()} & {node.port for node in behind.cluster.nodes}
    (described,) = [each for each in answer.topics if each.name == topic]
    assert described.partitions[0].leader_id == behind.cluster.leader_of(topic)


@pytest.mark.parametrize("version", range(5))
def test_find_coordinator_names_the_gateway(behind: Behind, version: int) -> None:
    with Wire(behind.address()) as wire:
        if version < 4:
            found = wire.call(ApiKey.FIND_COORDINATOR, version, key="a group", key_type=0)
        else:
            answer = wire.call(ApiKey.FIND_COORDINATOR, version, coordinator_keys=["a group"], key_type=0)
            (found,) = answer.coordinators
    assert (found.host, found.port) == behind.gateway.brokers[found.node_id]


# Announced versions


def test_versions_that_kafka_4_removed_are_announced(behind: Behind, connect: Connect) -> None:
    announced = served(connect(behind.address()))
    beyond = served(connect(behind.cluster.node(1).bootstrap))
    for api_key in (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
    ):
        assert announced[api_key][0] == 0
    assert beyond[ApiKey.FETCH][0] == 4
    assert announced[ApiKey.JOIN_GROUP] == beyond[ApiKey.JOIN_GROUP]


def test_versions_with_unrewritten_addresses_are_not_announced(behind: Behind, connect: Connect) -> None:
    wire = connect(behind.address())
    announced = served(wire)
    assert announced[ApiKey.PRODUCE] == (0, 9)
    assert announced[ApiKey.FETCH][1] <= 14
    wire.send(ApiKey.PRODUCE, 10, **wire.produce_fields([("topic", 0, batch(1))]))
    assert wire.receive_frame() is None


def test_listener_without_login_refuses_a_login(behind: Behind, connect: Connect) -> None:
    wire = connect(behind.address())
    announced = served(wire)
    assert not {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} & set(announced)
    for version in (0, 1):
        answer = wire.call(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN")
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    for version in (0, 1, 2):
        answer = wire.call(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=b"\0a\0b")
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("version", [9, -1, -(2**15)])
def test_unknown_api_versions_version_is_answered_in_version_0(behind: Behind, version: int) -> None:
    # KIP-511: API 18, a version, correlation id 5, client id "x", and an unknown body.
    request = struct.pack(">hhih", 18, version, 5, 1) + b"x" + b"\0\3abc"
    answer = exchange(behind.address(), struct.pack(">i", len(request)) + request)
    assert answer == struct.pack(">ihi", 5, ErrorCode.UNSUPPORTED_VERSION, 1) + struct.pack(">hhh", 18, 0, 4)


@pytest.mark.parametrize("api_key", [4, 5, 6, 7, 52, 56, 58, 59, 78, 999])
def test_api_between_brokers_is_not_served(behind: Behind, api_key: int) -> None:
    request = struct.pack(">hhih", api_key, 0, 5, 1) + b"x" + bytes(20)
    assert exchange(behind.address(), struct.pack(">i", len(request)) + request) is None
