"""Garbage closes its connection, or is answered by Kafka's error, without effect on other clients."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import encode_request, request_class
from shoal_broker import BrokerCluster
from tests.batches import batch, message
from tests.broker.wire import Wire, framed
from tests.gateway.behind import Behind, gateway_before, old_request, wait_until
from tests.strategies import damaged

#: The gateway is the same for all examples: that it survives is the point.
SAME_GATEWAY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_fails(behind: Behind, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that invalid requests cause no unexpected warning."""
    yield
    warnings = [each.getMessage() for each in caplog.get_records("call") if each.levelno >= logging.WARNING]
    # The gateway warns if a broker hangs up on a request that it forwarded unread, and of a replica id.
    expected = ("closed the connection", "only brokers send that")
    assert [each for each in warnings if not any(text in each for text in expected)] == []
    wait_until(lambda: behind.gateway.connections == 0, "a thread is stuck")
    with Wire(behind.address()) as wire:
        assert len(wire.call(ApiKey.METADATA, 1, topics=[]).brokers) == 3


def send_and_look(address: str, data: bytes) -> None:
    """Send bytes and hang up; whatever comes back is fine."""
    with Wire(address) as wire, contextlib.suppress(OSError):
        wire.send_bytes(data)
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.receive_frame() is not None:
            pass


@pytest.mark.parametrize("size", [0, 9])
def test_size_without_room_for_a_header_closes_the_connection(behind: Behind, size: int) -> None:
    with Wire(behind.address()) as wire:
        wire.send_bytes(struct.pack(">i", size) + bytes(20))
        assert wire.receive_frame() is None


def test_client_id_longer_than_its_request_closes_the_connection(behind: Behind) -> None:
    for length in (100, 32767):
        with Wire(behind.address()) as wire:
            wire.send_bytes(framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, length) + bytes(50)))
            assert wire.receive_frame() is None


def test_client_id_that_is_not_utf8_closes_the_connection(behind: Behind) -> None:
    with Wire(behind.address()) as wire:
        wire.send_bytes(framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 2) + b"\xff\xfe" + bytes(4)))
        assert wire.receive_frame() is None


@pytest.mark.parametrize(
    ("api", "version"),
    [
        *((ApiKey.FETCH, 0), (ApiKey.PRODUCE, 0), (ApiKey.LIST_OFFSETS, 0), (ApiKey.API_VERSIONS, 0)),
        *((ApiKey.METADATA, 1), (ApiKey.FIND_COORDINATOR, 4), (ApiKey.DESCRIBE_CLUSTER, 0)),
    ],
)
def test_request_beyond_the_memory_limit_closes_the_connection(
    behind: Behind, topic: str, api: ApiKey, version: int
) -> None:
    with Wire(behind.address(topic)) as wire:
        head = struct.pack(">hhih", api, version, 1, -1)
        wire.send_bytes(struct.pack(">i", 17 * MEGABYTE) + head)
        assert wire.receive_frame() is None


def test_array_of_billions_closes_the_connection(cluster: BrokerCluster) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bodies = {
        (ApiKey.FETCH, 0): struct.pack(">iiii", -1, 0, 0, 2**31 - 1),
        (ApiKey.PRODUCE, 0): struct.pack(">hii", 1, 0, 2**31 - 1),
        (ApiKey.LIST_OFFSETS, 0): struct.pack(">ii", -1, 2**31 - 1),
        (ApiKey.OFFSET_FETCH, 0): struct.pack(">hi", 0, 2**31 - 1),
        (ApiKey.OFFSET_COMMIT, 0): struct.pack(">hi", 0, 2**31 - 1),
        (ApiKey.CREATE_TOPICS, 0): struct.pack(">i", 2**31 - 1),
    }
    with gateway_before(cluster, allow_create_topics=True) as behind:
        for (api, version), body in bodies.items():
            with Wire(behind.address()) as wire:
                wire.send_bytes(framed(struct.pack(">hhih", api, version, 1, -1) + body))
                assert wire.receive_frame() is None, api
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_produce_of_too_many_empty_partitions_closes_the_connection(behind: Behind, topic: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    name, count = topic.encode(), 1_500_000
    body = struct.pack(">hii", 1, 0, 1) + struct.pack(">h", len(name)) + name + struct.pack(">i", count)
    with Wire(behind.address(topic)) as wire:
        head = struct.pack(">hhih", ApiKey.PRODUCE, 0, 1, -1)
        wire.send_bytes(framed(head + body + struct.pack(">ii", 0, -1) * count))
        assert wire.receive_frame() is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_fetch_of_many_partitions_is_answered(behind: Behind, topic: str) -> None:
    partitions = [(number, 0, 1) for number in range(20_000)]
    with Wire(behind.address(topic)) as wire:
        wire.send_bytes(old_request(ApiKey.FETCH, 0, -1, 0, 0, [(topic, partitions)]))
        frame = wire.receive_frame()
    assert frame is not None
    assert len(frame) > 20_000 * 18


def test_extreme_fetch_limits_are_answered(behind: Behind, topic: str) -> None:
    with Wire(behind.address(topic)) as wire:
        wire.produce(topic, batch(1), version=9)
        for number in (-1, 0, 2**31 - 1, -(2**31)):
            for version in (0, 3):
                fetched = wire.fetch(
                    topic,
                    version=version,
                    max_bytes=number,
                    partition_max_bytes=number,
                    min_bytes=min(number, 0),
                    max_wait_ms=min(number, 0),
                )
                assert fetched.error_code == ErrorCode.NONE
        assert wire.fetch(topic, -(2**63), version=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert wire.fetch(topic, 2**63 - 1, version=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_client_that_hangs_up_within_a_request_is_dropped(behind: Behind, topic: str) -> None:
    for version in (0, 9):
        with Wire(behind.address(topic)) as wire:
            head = struct.pack(">hhih", ApiKey.PRODUCE, version, 1, -1)
            wire.send_bytes(struct.pack(">i", 100_000) + head + bytes(50_000))


def test_silent_client_is_disconnected(cluster: BrokerCluster) -> None:
    with gateway_before(cluster, idle_s=1.0) as behind:
        # At once: on a busy machine it might be idle already when the others are connected.
        served = Wire(behind.address())
        served.call(ApiKey.METADATA, 1, topics=[])
        begun = Wire(behind.address())
        begun.send_bytes(b"\0\0")
        for wire in (served, begun, Wire(behind.address())):
            assert wire.receive_frame() is None
            wire.close()


@SAME_GATEWAY
@given(data=st.binary(max_size=200))
def test_garbage_does_not_affect_other_clients(behind: Behind, data: bytes) -> None:
    send_and_look(behind.address(), data)


REQUESTS = [
    old_request(ApiKey.FETCH, 0, -1, 0, 0, [("topic-0", [(0, 0, 1000)])]),
    old_request(ApiKey.FETCH, 3, -1, 0, 0, 1000, [("topic-0", [(0, 0, 1000)])]),
    old_request(ApiKey.PRODUCE, 0, 1, 100, [("topic-0", [(0, bytes(message(0)))])]),
    old_request(ApiKey.PRODUCE, 2, 1, 100, [("topic-0", [(0, bytes(message(1)))])]),
    old_request(ApiKey.LIST_OFFSETS, 0, -1, [("topic-0", [(0, -1, 2)])]),
    old_request(ApiKey.OFFSET_COMMIT, 0, "g", [("topic-0", [(0, 1, "m")])]),
    old_request(ApiKey.OFFSET_COMMIT, 1, "g", -1, "", [("topic-0", [(0, 1, -1, "m")])]),
    old_request(ApiKey.OFFSET_FETCH, 0, "g", [("topic-0", [0])]),
    old_request(ApiKey.METADATA, 0, ["topic-0"]),
    encode_request(request_class(ApiKey.FIND_COORDINATOR)(version=1, key="g", key_type=0), 1, "c"),
    encode_request(request_class(ApiKey.DESCRIBE_CLUSTER)(version=0), 1, "c"),
    encode_request(
        request_class(ApiKey.API_VERSIONS)(version=3, client_software_name="a", client_software_version="b"),
        1,
        "c",
    ),
]


@SAME_GATEWAY
@given(data=damaged(st.sampled_from([request[4:] for request in REQUESTS])))
def test_damaged_requests_do_not_affect_other_clients(behind: Behind, data: bytes) -> None:
    send_and_look(behind.address(), framed(data))
