"""Garbage at most closes a connection; no handler raises, and the broker lives on."""

import contextlib
import logging
import resource
import socket
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
