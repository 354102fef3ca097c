"""What a partition takes and what it refuses, with Kafka's error codes."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from batches import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TIMESTAMP,
    TRANSACTIONAL,
    Record,
    batch,
    message,
    patched,
    payload,
    raw_batch,
    view,
)
from broker.conftest import NewTopic
from broker.wire import Wire

from shoal.errors import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import Codec, split

LARGEST_SEQUENCE = 2**31 - 1
HOUR_MS = 3_600_000

EVERY_CODEC = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def with_producer(producer_id: int, sequence: int, records: int = 1, epoch: int = 0) -> bytearray:
    return batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


# What is taken


@pytest.mark.parametrize(
    ("version", "codec"),
    [
        (version, codec)
        for version in range(3, 13)
        for codec in Codec
        if version >= 7 or codec is not Codec.ZSTD
    ],
)
def test_a_batch_is_stored_as_it_came_but_for_offset_and_leader_epoch(
    wire: Wire, topic: str, version: int, codec: Codec
) -> None:
    produced = batch(3, codec=codec)
    for expected_offset in (0, 3):
        answer = wire.produce(topic, produced, version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, expected_offset)
        assert answer.log_append_time_ms == -1
    stored = bytes(wire.fetch(topic).record_set)
    assert len(stored) == 2 * len(produced)
    first, second = (found.view for found in split(memoryview(stored)))
    assert (int.from_bytes(first[:8]), int.from_bytes(second[:8])) == (0, 3)
    for found in (first, second):
        assert found[8:12] == produced[8:12]
        assert found[12:16] == b"\0\0\0\0"
        assert found[16:] == produced[16:]


def test_unused_attribute_bits_and_the_delete_horizon_are_stored_as_they_came(wire: Wire, topic: str) -> None:
    odd = patched(batch(), 21, (0x7F00 | DELETE_HORIZON).to_bytes(2))
    assert wire.produce(topic, odd).error_code == ErrorCode.NONE
    assert wire.fetch(topic).record_set[21:23] == (0x7F00 | DELETE_HORIZON).to_bytes(2)


def test_the_identity_of_a_batch_without_producer_id_is_not_looked_at(wire: Wire, topic: str) -> None:
    odd = batch(producer_id=-1, producer_epoch=12, base_sequence=12_345_678)
    assert wire.produce(topic, odd).error_code == ErrorCode.NONE
    assert wire.fetch(topic).record_set[43:57] == odd[43:57]


def test_a_wrong_max_timestamp_of_an_uncompressed_batch_is_put_right(wire: Wire, topic: str) -> None:
    right = batch(3)
    wrong = patched(right, 35, (TIMESTAMP + 99).to_bytes(8))
    assert wire.produce(topic, wrong).error_code == ErrorCode.NONE
    assert wire.fetch(topic).record_set[16:] == right[16:]


def test_a_log_append_time_bit_is_cleared_where_the_topic_keeps_create_times(wire: Wire, topic: str) -> None:
    plain = batch(3)
    assert wire.produce(topic, batch(3, flags=LOG_APPEND_TIME)).error_code == ErrorCode.NONE
    assert wire.fetch(topic).record_set[16:] == plain[16:]


@EVERY_CODEC
def test_a_log_append_time_topic_stamps_the_batch_and_leaves_the_payload(
    wire: Wire, new_topic: NewTopic, codec: Codec
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    produced = batch(3, codec=codec)
    before = now_ms()
    answer = wire.produce(topic, produced)
    assert answer.error_code == ErrorCode.NONE
    assert before <= answer.log_append_time_ms <= now_ms()
    stored = view(bytes(wire.fetch(topic).record_set))
    assert stored.header.is_log_append_time
    assert stored.header.max_timestamp == answer.log_append_time_ms
    assert stored.view[61:] == produced[61:]
    assert patched(bytes(stored.view), 0, b"") == bytes(stored.view), "the CRC is right"


def test_a_batch_cut_short_at_the_end_is_dropped_without_a_word(wire: Wire, topic: str) -> None:
    answer = wire.produce(topic, batch() + batch(5)[:-1])
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert wire.end_offset(topic) == 1


def test_an_uncompressed_batch_whose_header_hides_holes_is_stored_as_it_came(wire: Wire, topic: str) -> None:
    # Kafka looks at the header alone here; that is why nobody should patch one.
    holed = patched(batch(3, holes=[1]), 23, (1).to_bytes(4))
    assert wire.produce(topic, holed).error_code == ErrorCode.NONE
    assert wire.end_offset(topic) == 2


# What is refused, each by one rule


def two_batches() -> bytearray:
    return batch() + batch()


def wrong_crc() -> bytearray:
    damaged = batch()
    damaged[-1] ^= 1
    return damaged


def other_magic(magic: int) -> bytearray:
    changed = batch()
    changed[16] = magic
    return changed


def length_of(length: int) -> bytearray:
    changed = batch()
    changed[8:12] = length.to_bytes(4, signed=True)
    return changed


REFUSED = {
    "no batch at all": (bytearray, ErrorCode.INVALID_RECORD),
    "half a batch": (lambda: batch()[:40], ErrorCode.INVALID_RECORD),
    "two batches": (two_batches, ErrorCode.INVALID_RECORD),
    "magic 0": (lambda: message(0), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: message(1), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: other_magic(3), ErrorCode.CORRUPT_MESSAGE),
    "a length shorter than any record": (lambda: length_of(13), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (lambda: length_of(-1), ErrorCode.CORRUPT_MESSAGE),
    "a length shorter than a header": (lambda: length_of(30)[:42], ErrorCode.UNKNOWN_SERVER_ERROR),
    "a base offset": (lambda: batch(base_offset=1), ErrorCode.INVALID_RECORD),
    "a base offset and a wrong CRC": (
        lambda: patched(wrong_crc(), 0, (1).to_bytes(8))[:-1] + b"?",
        ErrorCode.INVALID_RECORD,
    ),
    "a wrong CRC": (wrong_crc, ErrorCode.CORRUPT_MESSAGE),
    "holes": (lambda: batch(3, holes=[1]), ErrorCode.INVALID_RECORD),
    "no records": (lambda: batch(3, holes=[0, 1, 2]), ErrorCode.INVALID_RECORD),
    "more records than offsets": (
        lambda: patched(batch(2), 57, (3).to_bytes(4)),
        ErrorCode.INVALID_RECORD,
    ),
    "a negative offset range": (
        lambda: patched(batch(), 23, (-1).to_bytes(4, signed=True)),
        ErrorCode.INVALID_RECORD,
    ),
    "fewer records than the header says": (
        lambda: raw_batch(payload([Record()]), last_offset_delta=1, records_count=2),
        ErrorCode.INVALID_RECORD,
    ),
    "more records than the header says": (
        lambda: raw_batch(payload([Record(), Record(offset_delta=1)])),
        ErrorCode.INVALID_RECORD,
    ),
    "a record longer than the batch": (
        lambda: raw_batch(b"\x7e" + payload([Record()])[1:]),
        ErrorCode.INVALID_RECORD,
    ),
    "a control batch": (lambda: batch(flags=CONTROL), ErrorCode.INVALID_RECORD),
    "a producer id without a sequence": (
        lambda: batch(producer_id=5, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "an unknown codec": (
        lambda: patched(batch(), 21, (5).to_bytes(2)),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "a timestamp in the future": (
        lambda: batch(base_timestamp=now_ms() + 2 * HOUR_MS),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "a compressed timestamp in the future": (
        lambda: batch(base_timestamp=now_ms() + 2 * HOUR_MS, codec=Codec.LZ4),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "more bytes than max.message.bytes": (
        lambda: batch([b"x" * 1_048_588]),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "too many bytes and a wrong CRC": (
        lambda: batch([b"x" * 1_048_588])[:-1] + b"?",
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_record_set_is_refused_for(wire: Wire, topic: str, wrong: str) -> None:
    build, code = REFUSED[wrong]
    answer = wire.produce(topic, build())
    assert ErrorCode(answer.error_code) is code
    assert answer.base_offset == -1
    assert wire.end_offset(topic) == 0


@pytest.mark.parametrize("version", range(3, 7))
def test_zstandard_is_refused_before_produce_v7(wire: Wire, topic: str, version: int) -> None:
    answer = wire.produce(topic, batch(codec=Codec.ZSTD), version=version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_batch_of_exactly_max_message_bytes_is_taken(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="500")
    assert wire.produce(topic, batch([b"x" * (500 - len(batch([b""])) - 2)])).error_code == ErrorCode.NONE
    assert view(bytes(wire.fetch(topic).record_set)).header.size == 500
    answer = wire.produce(topic, batch([b"x" * (501 - len(batch([b""])) - 2)]))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_timestamp_before_the_allowed_range_is_refused(
    wire: Wire, new_topic: NewTopic, codec: Codec
) -> None:
    topic = new_topic(message_timestamp_before_max_ms=str(HOUR_MS))
    old = batch(base_timestamp=now_ms() - 2 * HOUR_MS, codec=codec)
    assert wire.produce(topic, old).error_code == ErrorCode.INVALID_TIMESTAMP
    fresh = batch(base_timestamp=now_ms(), codec=codec)
    assert wire.produce(topic, fresh).error_code == ErrorCode.NONE


def test_a_batch_without_timestamps_is_taken_whatever_the_range(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_before_max_ms=str(HOUR_MS))
    assert wire.produce(topic, batch(base_timestamp=-1)).error_code == ErrorCode.NONE


def test_a_log_append_time_bit_is_refused_where_the_topic_has_it_too(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    answer = wire.produce(topic, batch(flags=LOG_APPEND_TIME))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_topic_refuses_a_record_without_a_key_and_names_it(
    wire: Wire, new_topic: NewTopic
) -> None:
    topic = new_topic(cleanup_policy="compact")
    records = payload([Record(), Record(key=None, offset_delta=1)])
    answer = wire.produce(topic, raw_batch(records, last_offset_delta=1, records_count=2))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]


# Whole requests


def test_of_two_entries_for_a_partition_the_last_is_kept_and_the_answer_is_success(
    wire: Wire, topic: str
) -> None:
    response = wire.produce_all([(topic, 0, batch([b"lost"])), (topic, 0, batch([b"kept"] * 2))])
    (answer,) = (each for found in response.responses for each in found.partition_responses)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert wire.end_offset(topic) == 2


def test_each_partition_is_judged_by_itself(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    response = wire.produce_all(
        [(topic, 0, two_batches()), (topic, 1, batch()), ("no-such-topic", 0, batch())]
    )
    codes = {
        (found.name, each.index): ErrorCode(each.error_code)
        for found in response.responses
        for each in found.partition_responses
    }
    assert codes == {
        (topic, 0): ErrorCode.INVALID_RECORD,
        (topic, 1): ErrorCode.NONE,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_that_is_not_there_is_unknown(wire: Wire, topic: str, partition: int) -> None:
    answer = wire.produce(topic, batch(), partition=partition)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_are_none_one_or_all(wire: Wire, topic: str, acks: int) -> None:
    assert wire.produce(topic, batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert wire.end_offset(topic) == 0


def test_acks_1_is_answered(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch(), acks=1).error_code == ErrorCode.NONE


def test_acks_0_has_no_answer(wire: Wire, topic: str) -> None:
    wire.send(ApiKey.PRODUCE, 11, **wire.produce_fields([(topic, 0, batch())], acks=0))
    # Requests of a connection are served in order: the batch is there by now.
    assert wire.end_offset(topic) == 1


def test_an_error_with_acks_0_closes_the_connection(wire: Wire, topic: str) -> None:
    wire.send(ApiKey.PRODUCE, 11, **wire.produce_fields([(topic, 0, two_batches())], acks=0))
    assert wire.receive_frame() is None


def test_one_transactional_batch_without_a_transactional_id_refuses_the_whole_request(
    wire: Wire, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    transactional = batch(flags=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
    response = wire.produce_all([(topic, 0, batch()), (topic, 1, transactional)])
    codes = [each.error_code for found in response.responses for each in found.partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert wire.end_offset(topic) == 0


# Idempotent producers


@pytest.fixture
def producer_id(wire: Wire) -> int:
    answer = wire.init_producer_id()
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    found: int = answer.producer_id
    return found


Send = Callable[..., tuple[ErrorCode, int]]


@pytest.fixture
def send(wire: Wire, topic: str, producer_id: int) -> Send:
    """Produce with the producer's id; return error code and base offset."""

    def produce(sequence: int, records: int = 1, epoch: int = 0) -> tuple[ErrorCode, int]:
        answer = wire.produce(topic, with_producer(producer_id, sequence, records, epoch))
        return ErrorCode(answer.error_code), answer.base_offset

    return produce


def test_every_producer_gets_an_id_of_its_own(wire: Wire) -> None:
    ids = [wire.init_producer_id().producer_id for _ in range(3)]
    assert len(set(ids)) == 3


def test_sequences_go_on_where_the_last_batch_ended(send: Send) -> None:
    assert send(0, records=3) == (ErrorCode.NONE, 0)
    assert send(3, records=2) == (ErrorCode.NONE, 3)
    assert send(5) == (ErrorCode.NONE, 5)


@pytest.mark.parametrize("sequence", [4, 1, 2, LARGEST_SEQUENCE])
def test_a_sequence_that_is_not_the_next_is_refused(
    wire: Wire, topic: str, send: Send, sequence: int
) -> None:
    send(0, records=3)
    assert send(sequence) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert wire.end_offset(topic) == 3


def test_a_producer_that_is_not_known_may_begin_anywhere(send: Send) -> None:
    assert send(1000) == (ErrorCode.NONE, 0)
    assert send(1001) == (ErrorCode.NONE, 1)


def test_after_the_largest_sequence_comes_0(send: Send) -> None:
    assert send(LARGEST_SEQUENCE - 1, records=2) == (ErrorCode.NONE, 0)
    assert send(0) == (ErrorCode.NONE, 2)


def test_a_batch_may_run_over_the_largest_sequence(send: Send) -> None:
    assert send(LARGEST_SEQUENCE, records=3) == (ErrorCode.NONE, 0)
    assert send(LARGEST_SEQUENCE, records=3) == (ErrorCode.NONE, 0)
    assert send(2) == (ErrorCode.NONE, 3)


def test_a_repeat_of_one_of_the_last_five_batches_answers_its_offset_and_writes_nothing(
    wire: Wire, topic: str, send: Send
) -> None:
    for number in range(7):
        send(2 * number, records=2)
    for number in range(2, 7):
        assert send(2 * number, records=2) == (ErrorCode.NONE, 2 * number)
    assert send(2, records=2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert wire.end_offset(topic) == 14


def test_a_repeat_of_another_size_is_no_repeat(send: Send) -> None:
    send(0, records=2)
    assert send(0, records=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_sequences_are_held_against_the_producer_and_not_against_the_log(
    wire: Wire, topic: str, send: Send
) -> None:
    send(0)
    wire.produce(topic, batch(10))
    assert send(1) == (ErrorCode.NONE, 11)


def test_an_older_epoch_is_refused(send: Send) -> None:
    send(0, epoch=3)
    assert send(1, epoch=2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_a_newer_epoch_begins_at_sequence_0(send: Send) -> None:
    send(7, epoch=3)
    assert send(8, epoch=4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, epoch=4) == (ErrorCode.NONE, 1)
    assert send(8, epoch=3) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_a_producer_id_without_an_epoch_is_an_invalid_request(wire: Wire) -> None:
    assert wire.init_producer_id(producer_id=5).error_code == ErrorCode.INVALID_REQUEST
    assert wire.init_producer_id(producer_epoch=5).error_code == ErrorCode.INVALID_REQUEST


def test_describe_producers_tells_who_wrote_and_how_far(
    wire: Wire, topic: str, send: Send, producer_id: int
) -> None:
    send(0, records=5)
    (found,) = describe_producers(wire, topic)
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (producer_id, 0, 4)
    assert (found.last_timestamp, found.current_txn_start_offset) == (TIMESTAMP + 4, -1)


def describe_producers(wire: Wire, topic: str) -> list[Any]:
    wanted = request_class(ApiKey.DESCRIBE_PRODUCERS).TopicRequest(name=topic, partition_indexes=[0])
    response = wire.call(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[wanted])
    return list(response.topics[0].partitions[0].active_producers)
