"""
Responses of Produce that ``produce_cases`` does not list: every version, whole requests, producers.
"""

import time
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import Codec, split
from tests.broker.new_topic import NewTopic
from tests.broker.wire import Wire
from tests.world.batches import (
    TIMESTAMP,
    TRANSACTIONAL,
    Record,
    batch,
    patched,
    payload,
    raw_batch,
    view,
)

EVERY_CODEC = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# One partition


@pytest.mark.parametrize(
    ("version", "codec"),
    [
        (version, codec)
        for version in range(3, 13)
        for codec in Codec
        if version >= 7 or codec is not Codec.ZSTD
    ],
)
def test_batch_is_stored_with_only_offset_and_leader_epoch_changed(
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
        assert bytes(found[12:16]) == b"\0\0\0\0"
        assert found[16:] == produced[16:]


@EVERY_CODEC
def test_log_append_time_topic_stamps_only_the_header(wire: Wire, new_topic: NewTopic, codec: Codec) -> None:
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


def test_compacted_topic_refuses_and_names_a_record_without_key(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(cleanup_policy="compact")
    records = payload([Record(), Record(key=None, offset_delta=1)])
    answer = wire.produce(topic, raw_batch(records, last_offset_delta=1, records_count=2))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]


# Whole requests


def test_partition_listed_twice_keeps_the_last_entry(wire: Wire, topic: str) -> None:
    response = wire.produce_all([(topic, 0, batch([b"lost"])), (topic, 0, batch([b"kept"] * 2))])
    (answer,) = (each for found in response.responses for each in found.partition_responses)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert wire.end_offset(topic) == 2


def test_error_of_one_partition_leaves_the_others(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    response = wire.produce_all(
        [(topic, 0, batch() + batch()), (topic, 1, batch()), ("no-such-topic", 0, batch())]
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


def test_acks_0_has_no_response(wire: Wire, topic: str) -> None:
    wire.send(ApiKey.PRODUCE, 11, **wire.produce_fields([(topic, 0, batch())], acks=0))
    # Requests of a connection are served in order: the batch is there by now.
    assert wire.end_offset(topic) == 1


def test_error_with_acks_0_closes_the_connection(wire: Wire, topic: str) -> None:
    wire.send(ApiKey.PRODUCE, 11, **wire.produce_fields([(topic, 0, batch() + batch())], acks=0))
    assert wire.receive_frame() is None


def test_transactional_batch_without_transactional_id_refuses_the_request(
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


def test_init_producer_id_returns_distinct_ids(wire: Wire) -> None:
    ids = [wire.init_producer_id().producer_id for _ in range(3)]
    assert len(set(ids)) == 3


def test_producer_id_without_epoch_is_refused(wire: Wire) -> None:
    assert wire.init_producer_id(producer_id=5).error_code == ErrorCode.INVALID_REQUEST
    assert wire.init_producer_id(producer_epoch=5).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.administrators
def test_describe_producers_returns_id_epoch_and_last_sequence(
    wire: Wire, topic: str, producer_id: int
) -> None:
    wire.produce(topic, batch(5, producer_id=producer_id, producer_epoch=0, base_sequence=0))
    (found,) = describe_producers(wire, topic)
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (producer_id, 0, 4)
    assert (found.last_timestamp, found.current_txn_start_offset) == (TIMESTAMP + 4, -1)


def describe_producers(wire: Wire, topic: str) -> list[Any]:
    wanted = request_class(ApiKey.DESCRIBE_PRODUCERS).TopicRequest(name=topic, partition_indexes=[0])
    response = wire.call(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[wanted])
    return list(response.topics[0].partitions[0].active_producers)
