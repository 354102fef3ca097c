"""
Several batches of a partition in one Produce request, from a client that asks for it.

The requests that need one partition and no other client are rows of ``produce_cases``.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.records import RecordBatch, split, verify_crc
from tests.broker.new_topic import NewTopic
from tests.broker.numbered_batches import PRODUCER_ID, numbered
from tests.broker.wire import Wire
from tests.conformance.conftest import Connect
from tests.strategies import damaged
from tests.world.batches import batch, patched

pytestmark = pytest.mark.several_batches

MARKED = "shoal-multi-batch"

OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


@pytest.fixture
def wire(connect: Connect) -> Wire:
    """A client that asks for it."""
    return connect(f"{MARKED}-1")


Send = Callable[..., tuple[ErrorCode, int]]


@pytest.fixture
def send(wire: Wire, topic: str) -> Send:
    """Produce batches in one request; return error code and base offset."""

    def produce(batches: list[bytearray], **options: Any) -> tuple[ErrorCode, int]:
        answer = wire.produce(topic, b"".join(batches), **options)
        return ErrorCode(answer.error_code), answer.base_offset

    return produce


def stored(wire: Wire, topic: str) -> list[RecordBatch]:
    return list(split(memoryview(bytes(wire.fetch(topic).record_set))))


def test_repeated_request_of_deleted_records_is_out_of_order(wire: Wire, topic: str, send: Send) -> None:
    send(numbered(0, 1, 1))
    send(numbered(2, 1, 1))
    wire.delete_records(topic, 2)
    assert send(numbered(0, 1, 1)) == OUT_OF_ORDER
    assert send(numbered(2, 1, 1)) == (ErrorCode.NONE, 2)


def test_stock_batches_are_not_recognized_as_repeats(
    wire: Wire, topic: str, connect: Connect, send: Send
) -> None:
    ordinary = connect("another")
    ordinary.produce(topic, batch(3))
    ordinary.produce(topic, numbered(5, 2)[0])
    assert send(numbered(5, 2, 1)) == OUT_OF_ORDER
    assert wire.end_offset(topic) == 5


def test_another_epoch_follows_the_stock_rules(send: Send) -> None:
    send(numbered(0, 1, 1, epoch=3))
    assert send(numbered(2, 1, 1, epoch=2)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert send(numbered(2, 1, 1, epoch=4)) == OUT_OF_ORDER
    assert send(numbered(0, 1, 1, epoch=4)) == OUT_OF_ORDER
    assert send(numbered(2, 1, 1, epoch=3)) == (ErrorCode.NONE, 2)


def test_request_larger_than_a_segment_is_refused(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(segment_bytes=str(1 << 20))
    batches = [
        batch([b"x" * 400_000], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=n) for n in range(3)
    ]
    assert wire.produce(topic, b"".join(batches)).error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert wire.end_offset(topic) == 0
    assert wire.produce(topic, b"".join(batches[:2])).error_code == ErrorCode.NONE


def test_error_of_one_partition_leaves_the_others(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    good, bad = b"".join(numbered(0, 1, 1)), b"".join(numbered(5, 1, 1))
    response = wire.produce_all([(topic, 0, bad), (topic, 1, good)])
    codes = {
        each.index: each.error_code for found in response.responses for each in found.partition_responses
    }
    assert codes == {0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1: ErrorCode.NONE}


#: Position and length of the header's fields under the CRC.
FIELDS = [(21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4), (61, 1), (62, 1)]


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Draw a request with a batch that says something else under a right CRC, or with any bytes changed."""
    batches = numbered(
        draw(st.sampled_from([0, 2, 4])), *draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    )
    if draw(st.booleans()):
        return draw(damaged(st.just(b"".join(batches))))
    number = draw(st.integers(0, len(batches) - 1))
    at, size = draw(st.sampled_from(FIELDS))
    value = draw(
        st.sampled_from([0, 1, 2, 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1]) | st.integers(0, 127)
    )
    batches[number] = patched(batches[number], at, value.to_bytes(size))
    return b"".join(batches)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record_set=spoiled())
def test_arbitrary_record_set_is_stored_whole_or_not_at_all(
    wire: Wire, new_topic: NewTopic, record_set: bytes
) -> None:
    topic = new_topic()
    wire.produce(topic, b"".join(numbered(0, 2, 2)))
    answer = wire.produce(topic, record_set)
    log = stored(wire, topic)
    assert wire.end_offset(topic) == log[-1].header.next_offset
    if answer.error_code:
        assert len(log) == 2
    else:
        sent = list(split(memoryview(record_set)))
        assert answer.base_offset + sum(each.header.records_count for each in sent) <= wire.end_offset(topic)
    for each, before in zip(log[1:], log, strict=False):
        verify_crc(each)
        assert each.header.base_offset == before.header.next_offset
