"""Garbage closes a connection, or gets Kafka's error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from tests.broker.wire import Wire
from tests.strategies import damaged
from tests.world.batches import batch

#: The server is the same for all examples: that it survives is the point.
SAME_SERVER = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("size", [-1, -(2**31), 100 * 1024 * 1024 + 1, 2**31 - 1])
def test_frame_too_long_or_negative_closes_the_connection(wire: Wire, size: int) -> None:
    wire.send_bytes(struct.pack(">i", size))
    assert wire.receive_frame() is None


@given(st.data())
@SAME_SERVER
def test_damaged_batches_are_refused_or_stored_as_valid_ones(
    wire: Wire, topic: str, data: st.DataObject
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
