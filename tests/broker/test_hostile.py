"""Garbage closes a connection, or gets Kafka's error; the broker lives on."""

import contextlib
import logging
import resource
import socket
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import encode_request, request_class
from shoal_broker import Broker
from tests.batches import batch
from tests.broker.wire import Wire
from tests.strategies import damaged

#: The broker is the same for all examples: that it survives is the point.
SAME_BROKER = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def send_and_look(broker: Broker, data: bytes) -> None:
    """Send bytes and hang up; whatever comes back is fine."""
    with Wire(broker.bootstrap) as wire, contextlib.suppress(OSError):
        wire.send_bytes(data)
        wire.socket.shutdown(socket.SHUT_WR)
        # A request may ask for a wait; that it is long is no harm.
        while wire.receive_frame() is not None:
            pass


@pytest.fixture(autouse=True)
def _no_handler_fails(caplog: pytest.LogCaptureFixture, broker: Broker) -> object:
    """Refusals are answers; a handler that raises is a bug, and is logged as an error."""
    yield
    assert [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []
    with Wire(broker.bootstrap) as wire:
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


@pytest.mark.parametrize("size", [-1, -(2**31), 100 * 1024 * 1024 + 1, 2**31 - 1])
def test_frame_too_long_or_negative_closes_the_connection(wire: Wire, size: int) -> None:
    wire.send_bytes(struct.pack(">i", size))
    assert wire.receive_frame() is None


def test_announced_frame_that_never_arrives_takes_little_memory(broker: Broker) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wires = [Wire(broker.bootstrap) for _ in range(20)]
    for wire in wires:
        wire.send_bytes(struct.pack(">i", 100 * 1024 * 1024))
    for wire in wires:
        wire.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


@given(st.binary(max_size=200))
@SAME_BROKER
def test_arbitrary_bytes_at_most_close_the_connection(broker: Broker, data: bytes) -> None:
    send_and_look(broker, data)


def produce_request(topic: str) -> bytes:
    fields = Wire.produce_fields([(topic, 0, batch(3)), (topic, 1, batch(2, producer_id=3))])
    return bytes(encode_request(request_class(ApiKey.PRODUCE)(version=9, **fields), 1, "test"))


def join_request() -> bytes:
    join = request_class(ApiKey.JOIN_GROUP)
    request = join(
        version=6,
        group_id="group",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=1,
        member_id="",
        group_instance_id="me",
        protocol_type="consumer",
        protocols=[join.JoinGroupRequestProtocol(name="range", metadata=b"x")],
    )
    return bytes(encode_request(request, 1, "test"))


def create_request() -> bytes:
    create = request_class(ApiKey.CREATE_TOPICS)
    topic = create.CreatableTopic(
        name="a-topic", num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    return bytes(
        encode_request(create(version=7, topics=[topic], timeout_ms=1, validate_only=False), 1, "test")
    )


@given(st.data())
@SAME_BROKER
def test_damaged_requests_are_refused_or_served(broker: Broker, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([produce_request("a-topic"), join_request(), create_request()]))
    body = data.draw(damaged(st.just(whole[4:])))
    send_and_look(broker, struct.pack(">i", len(body)) + body)


@given(st.data())
@SAME_BROKER
def test_damaged_batches_are_refused_or_stored_as_valid_ones(
    broker: Broker, wire: Wire, topic: str, data: st.DataObject
) -> None:
    record_set = data.draw(damaged(st.just(bytes(batch(3)))))
    before = wire.end_offset(topic)
    answer = wire.produce(topic, record_set)
    if answer.error_code == ErrorCode.NONE:
        assert answer.base_offset == before
    else:
        assert wire.end_offset(topic) == before
    assert wire.fetch(topic, before).error_code == ErrorCode.NONE


@pytest.mark.parametrize("api", [ApiKey.CREATE_TOPICS, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_GROUPS])
def test_null_array_closes_the_connection(wire: Wire, api: ApiKey) -> None:
    bodies = {
        ApiKey.CREATE_TOPICS: struct.pack(">ii?", -1, 0, False),
        ApiKey.LIST_OFFSETS: struct.pack(">ibi", -1, 0, -1),
        ApiKey.DESCRIBE_GROUPS: struct.pack(">i", -1),
    }
    frame = struct.pack(">hhih", api, 2, 1, -1) + bodies[api]
    wire.send_bytes(struct.pack(">i", len(frame)) + frame)
    assert wire.receive_frame() is None


@pytest.mark.parametrize("timestamp", [-5, -10, -(2**63), 2**63 - 1])
def test_empty_log_accepts_any_timestamp(broker: Broker, wire: Wire, topic: str, timestamp: int) -> None:
    found = wire.list_offset(topic, timestamp)
    assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.NONE, -1, -1)
