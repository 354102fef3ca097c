"""Several batches of a partition in one Produce request, from a client that asks for it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.records import Codec, RecordBatch, split, verify_crc
from tests.batches import CONTROL, TIMESTAMP, TRANSACTIONAL, batch, patched
from tests.broker.new_topic import NewTopic
from tests.broker.numbered_batches import PRODUCER_ID, numbered
from tests.broker.wire import Wire
from tests.conformance.conftest import Connect
from tests.strategies import damaged

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


# Accepted requests


@pytest.mark.parametrize("count", [2, 5, 6, 50])
def test_batches_are_appended_in_order_with_only_offset_and_epoch_changed(
    wire: Wire, topic: str, send: Send, count: int
) -> None:
    produced = numbered(0, *[1, 2, 3] * count, codecs=tuple(Codec))[:count]
    assert send(produced) == (ErrorCode.NONE, 0)
    found = stored(wire, topic)
    assert len(found) == count
    expected = 0
    for before, after in zip(produced, found, strict=True):
        assert after.header.base_offset == expected
        assert bytes(after.view[12:16]) == b"\0\0\0\0"
        assert after.view[8:12] == memoryview(before)[8:12]
        assert after.view[16:] == memoryview(before)[16:]
        expected = after.header.next_offset


def test_log_append_time_topic_stamps_every_batch(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    answer = wire.produce(topic, b"".join(numbered(0, 1, 2)))
    assert answer.error_code == ErrorCode.NONE
    first, second = (each.header for each in stored(wire, topic))
    assert (first.is_log_append_time, second.is_log_append_time) == (True, True)
    # The agent has each batch validated at a time of its own.
    assert TIMESTAMP < first.max_timestamp <= answer.log_append_time_ms <= second.max_timestamp


def test_sequence_is_compared_with_the_offset_for_one_batch_and_unknown_producer(
    wire: Wire, topic: str, send: Send
) -> None:
    assert send(numbered(7, 1)) == OUT_OF_ORDER
    assert send(numbered(7, 1, 1)) == OUT_OF_ORDER
    assert wire.end_offset(topic) == 0
    assert send(numbered(0, 3, 4)) == (ErrorCode.NONE, 0)
    assert send(numbered(7, 1)) == (ErrorCode.NONE, 7)


def test_second_producer_appends_only_at_the_log_end(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, b"".join(numbered(0, 3, 4))).error_code == ErrorCode.NONE
    for sequence, code in ((3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (7, ErrorCode.NONE)):
        other = [
            batch(2, producer_id=PRODUCER_ID + 1, producer_epoch=0, base_sequence=sequence + 2 * number)
            for number in range(2)
        ]
        assert wire.produce(topic, b"".join(other)).error_code == code
    assert wire.end_offset(topic) == 11


def test_producer_after_a_foreign_record_is_refused(wire: Wire, topic: str, send: Send) -> None:
    send(numbered(0, 1, 1))
    wire.produce(topic, batch())
    assert send(numbered(2, 1, 1)) == OUT_OF_ORDER
    assert send(numbered(3, 1, 1)) == OUT_OF_ORDER
    assert wire.end_offset(topic) == 3


# Repeated requests


@pytest.mark.parametrize("count", [1, 3, 5, 6, 50])
def test_repeated_request_is_acknowledged_without_a_write(
    wire: Wire, topic: str, send: Send, count: int
) -> None:
    send(numbered(0, 4))
    for _ in range(2):
        assert send(numbered(4, *[2] * count)) == (ErrorCode.NONE, 4)
    assert wire.end_offset(topic) == 4 + 2 * count


@pytest.mark.parametrize("written", [1, 5, 49])
def test_partly_written_request_is_completed(wire: Wire, topic: str, send: Send, written: int) -> None:
    batches = numbered(0, *[2] * 50)
    assert send(batches[:written]) == (ErrorCode.NONE, 0)
    assert send(batches) == (ErrorCode.NONE, 0)
    assert [each.header.base_sequence for each in stored(wire, topic)] == list(range(0, 100, 2))


def test_repeated_request_is_recognized_after_any_number_of_others(
    wire: Wire, topic: str, send: Send
) -> None:
    requests = [numbered(6 * number, *[1] * 6) for number in range(5)]
    for request in requests:
        send(request)
    assert [send(request) for request in requests] == [(ErrorCode.NONE, 6 * n) for n in range(5)]
    assert wire.end_offset(topic) == 30


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


def test_repeated_batch_with_another_crc_is_refused(wire: Wire, topic: str, send: Send) -> None:
    first, second = numbered(0, 1, 1)
    send([first, second])
    assert send([first, wrong_crc(second)]) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert send([numbered(7, 1)[0], wrong_crc(numbered(8, 1)[0])]) == (ErrorCode.CORRUPT_MESSAGE, -1)


@pytest.mark.parametrize(
    ("sequence", "code"), [(1, ErrorCode.INVALID_REQUIRED_ACKS), (9, ErrorCode.INVALID_RECORD)]
)
def test_probe_with_invalid_acks_writes_nothing(
    wire: Wire, topic: str, send: Send, sequence: int, code: ErrorCode
) -> None:
    """By acks that no broker takes: the headers are looked at before, and checksums and the log behind."""
    probe = [wrong_crc(numbered(0, 1)[0]), wrong_crc(numbered(sequence, 1)[0])]
    assert send(probe, acks=2) == (code, -1)
    assert wire.end_offset(topic) == 0


def test_batches_split_otherwise_are_not_recognized_as_repeat(wire: Wire, topic: str, send: Send) -> None:
    send(numbered(0, 2, 2))
    assert send(numbered(0, 1, 3)) == OUT_OF_ORDER
    assert wire.end_offset(topic) == 4


def test_another_epoch_follows_the_stock_rules(send: Send) -> None:
    send(numbered(0, 1, 1, epoch=3))
    assert send(numbered(2, 1, 1, epoch=2)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert send(numbered(2, 1, 1, epoch=4)) == OUT_OF_ORDER
    assert send(numbered(0, 1, 1, epoch=4)) == OUT_OF_ORDER
    assert send(numbered(2, 1, 1, epoch=3)) == (ErrorCode.NONE, 2)


# Refused requests, of which nothing is written


def wrong_crc(original: bytearray) -> bytearray:
    return original[:-1] + bytes([original[-1] ^ 1])


def with_bits(original: bytearray, bits: int) -> bytearray:
    return patched(original, 21, bits.to_bytes(2))


def other_producer(original: bytearray, producer_id: int = PRODUCER_ID + 1) -> bytearray:
    return patched(original, 43, producer_id.to_bytes(8, signed=True))


#: Changes of the last of three batches.
SPOILED: dict[str, tuple[Callable[[bytearray], bytearray], ErrorCode]] = {
    "magic 1": (lambda last: last[:16] + b"\1" + last[17:], ErrorCode.INVALID_RECORD),
    "a base offset": (lambda last: patched(last, 0, (2).to_bytes(8)), ErrorCode.INVALID_RECORD),
    "holes": (lambda last: patched(last, 57, (1).to_bytes(4)), ErrorCode.INVALID_RECORD),
    "another producer": (other_producer, ErrorCode.INVALID_RECORD),
    "no producer": (lambda last: other_producer(last, -1), ErrorCode.INVALID_RECORD),
    "another epoch": (lambda last: patched(last, 51, (1).to_bytes(2)), ErrorCode.INVALID_RECORD),
    "a sequence too far": (lambda last: patched(last, 53, (5).to_bytes(4)), ErrorCode.INVALID_RECORD),
    "a sequence once more": (lambda last: patched(last, 53, (2).to_bytes(4)), ErrorCode.INVALID_RECORD),
    "a transaction": (lambda last: with_bits(last, TRANSACTIONAL), ErrorCode.INVALID_RECORD),
    "a control batch": (lambda last: with_bits(last, CONTROL), ErrorCode.INVALID_RECORD),
    "a wrong CRC": (wrong_crc, ErrorCode.CORRUPT_MESSAGE),
    "an unknown codec": (lambda last: with_bits(last, 5), ErrorCode.UNKNOWN_SERVER_ERROR),
    "a time in the future": (
        lambda last: patched(last, 27, (2**61).to_bytes(8)),
        ErrorCode.INVALID_TIMESTAMP,
    ),
}


@pytest.mark.parametrize("wrong", SPOILED)
def test_invalid_batch_refuses_the_whole_request(wire: Wire, topic: str, send: Send, wrong: str) -> None:
    spoil, code = SPOILED[wrong]
    first, second, last = numbered(0, 2, 2, 2)
    assert send([first, second, spoil(last)]) == (code, -1)
    assert wire.end_offset(topic) == 0
    assert send([first, second, last]) == (ErrorCode.NONE, 0)


def test_batches_without_producer_id_are_refused(wire: Wire, topic: str, send: Send) -> None:
    assert send([batch(), batch()]) == (ErrorCode.INVALID_RECORD, -1)
    assert send([batch()]) == (ErrorCode.NONE, 0), "one of them is a stock request"


def test_cut_last_batch_refuses_the_whole_request(wire: Wire, topic: str, send: Send) -> None:
    first, second = numbered(0, 1, 1)
    assert send([first, second[:-1]]) == (ErrorCode.INVALID_RECORD, -1)
    assert wire.end_offset(topic) == 0


def test_several_batches_before_produce_v7_are_refused(wire: Wire, topic: str, send: Send) -> None:
    assert send(numbered(0, 1, 1), version=6) == (ErrorCode.INVALID_RECORD, -1)
    assert wire.end_offset(topic) == 0


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


# Unmarked clients


def test_unmarked_clients_follow_the_stock_rules(connect: Connect, topic: str) -> None:
    ordinary = connect("another")
    two = ordinary.produce(topic, b"".join(numbered(0, 1, 1)))
    assert two.error_code == ErrorCode.INVALID_RECORD
    assert ordinary.end_offset(topic) == 0
    assert ordinary.produce(topic, numbered(7, 1)[0]).error_code == ErrorCode.NONE
