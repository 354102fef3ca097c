"""Garbage closes its connection, or is answered by Kafka's error, without effect on other clients."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire, framed
from tests.gateway.behind import Behind, gateway_before, old_request, wait_until
from tests.peak_memory import rss_grows_below
from tests.world.batches import batch

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


@pytest.mark.parametrize("size", [0, 9])
def test_size_without_room_for_a_header_closes_the_connection(behind: Behind, size: int) -> None:
    with Wire(behind.address()) as wire:
        wire.send_bytes(struct.pack(">i", size) + bytes(20))
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
    bodies = {
        (ApiKey.FETCH, 0): struct.pack(">iiii", -1, 0, 0, 2**31 - 1),
        (ApiKey.PRODUCE, 0): struct.pack(">hii", 1, 0, 2**31 - 1),
        (ApiKey.LIST_OFFSETS, 0): struct.pack(">ii", -1, 2**31 - 1),
        (ApiKey.OFFSET_FETCH, 0): struct.pack(">hi", 0, 2**31 - 1),
        (ApiKey.OFFSET_COMMIT, 0): struct.pack(">hi", 0, 2**31 - 1),
        (ApiKey.CREATE_TOPICS, 0): struct.pack(">i", 2**31 - 1),
    }
    with gateway_before(cluster, allow_create_topics=True) as behind, rss_grows_below(64 * MEGABYTE):
        for (api, version), body in bodies.items():
            with Wire(behind.address()) as wire:
                wire.send_bytes(framed(struct.pack(">hhih", api, version, 1, -1) + body))
                assert wire.receive_frame() is None, api


def test_produce_of_too_many_empty_partitions_closes_the_connection(behind: Behind, topic: str) -> None:
    name, count = topic.encode(), 1_500_000
    body = struct.pack(">hii", 1, 0, 1) + struct.pack(">h", len(name)) + name + struct.pack(">i", count)
    request = framed(
        struct.pack(">hhih", ApiKey.PRODUCE, 0, 1, -1) + body + struct.pack(">ii", 0, -1) * count
    )
    with Wire(behind.address(topic)) as wire, rss_grows_below(200 * MEGABYTE):
        wire.send_bytes(request)
        assert wire.receive_frame() is None


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
