"""The contents of a Fetch response, and its wait."""

import threading
import time

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import split
from tests.broker.new_topic import NewTopic
from tests.broker.wire import PATIENCE_S, Wire
from tests.conformance.conftest import Connect
from tests.world.batches import batch

#: Longer than a test waits for an answer: one that comes does not come because time is up.
FOR_EVER_MS = 10 * PATIENCE_S * 1000

#: Each of the batches below, in bytes.
SIZE = len(batch([b"x" * 100] * 2))


@pytest.fixture
def loaded(wire: Wire, topic: str) -> str:
    """A topic with five batches of two records each."""
    for _ in range(5):
        assert wire.produce(topic, batch([b"x" * 100] * 2)).error_code == ErrorCode.NONE
    return topic


def offsets(record_set: memoryview) -> list[int]:
    return [found.header.base_offset for found in split(record_set)]


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_begins_with_the_batch_that_holds_the_offset(wire: Wire, loaded: str, version: int) -> None:
    fetched = wire.fetch(loaded, 5, version=version)
    assert fetched.error_code == ErrorCode.NONE
    assert offsets(fetched.record_set) == [4, 6, 8]
    assert (fetched.high_watermark, fetched.last_stable_offset) == (10, 10)
    assert fetched.log_start_offset == (0 if version >= 5 else -1)


def test_last_batch_is_cut_at_the_limit(wire: Wire, loaded: str) -> None:
    fetched = wire.fetch(loaded, partition_max_bytes=2 * SIZE + 50)
    assert len(fetched.record_set) == 2 * SIZE + 50
    assert offsets(fetched.record_set) == [0, 2]


@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
def test_first_batch_is_whole_with_any_limit(wire: Wire, loaded: str, limit: str) -> None:
    fetched = wire.fetch(loaded, 3, **{limit: 1})
    assert len(fetched.record_set) == SIZE
    assert offsets(fetched.record_set) == [2]


def test_later_partition_whose_first_batch_does_not_fit_is_empty(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        wire.produce(topic, batch([b"x" * 100] * 2), partition=partition)
    response = wire.fetch_all([(topic, 0, 0), (topic, 1, 0)], max_bytes=SIZE + 50)
    assert [len(fetched.record_set) for fetched in response.partitions] == [SIZE, 0]
    assert [fetched.high_watermark for fetched in response.partitions] == [2, 2]


def test_first_batch_after_an_empty_partition_is_whole(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    wire.produce(topic, batch([b"x" * 100] * 2), partition=1)
    response = wire.fetch_all([(topic, 0, 0), (topic, 1, 0)], max_bytes=1)
    assert [len(fetched.record_set) for fetched in response.partitions] == [0, SIZE]


@pytest.mark.parametrize("version", [4, 12])
def test_partition_listed_twice_is_fetched_once(wire: Wire, loaded: str, version: int) -> None:
    entries = [(loaded, 0, 0), (loaded, 0, 8)]
    (fetched,) = wire.fetch_all(entries, version=version).partitions
    assert offsets(fetched.record_set) == [8]


def test_fetch_at_the_log_end_is_empty_without_error(wire: Wire, loaded: str) -> None:
    fetched = wire.fetch(loaded, 10)
    assert (fetched.error_code, len(fetched.record_set), fetched.high_watermark) == (0, 0, 10)


@pytest.mark.parametrize("offset", [-1, 11])
def test_offset_outside_the_log_is_out_of_range(wire: Wire, loaded: str, offset: int) -> None:
    assert wire.fetch(loaded, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.administrators
def test_deleted_offset_is_out_of_range(wire: Wire, loaded: str) -> None:
    assert wire.delete_records(loaded, 5).low_watermark == 5
    assert wire.fetch(loaded, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    fetched = wire.fetch(loaded, 5)
    assert fetched.log_start_offset == 5
    assert offsets(fetched.record_set) == [4, 6, 8]


@pytest.mark.parametrize("partition", [-1, 1])
def test_missing_partition_is_unknown(wire: Wire, loaded: str, partition: int) -> None:
    fetched = wire.fetch(loaded, partition=partition)
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_newer_leader_epoch_is_unknown(wire: Wire, loaded: str) -> None:
    assert wire.fetch(loaded, leader_epoch=0).error_code == ErrorCode.NONE
    assert wire.fetch(loaded, leader_epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [9, 10])
def test_zstd_topic_is_fetched_by_readers_from_before_zstd(
    wire: Wire, new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(compression_type="zstd")
    wire.produce(topic, batch(3))
    fetched = wire.fetch(topic, version=version)
    assert (fetched.error_code, len(offsets(fetched.record_set))) == (ErrorCode.NONE, 1)


# Waiting


def test_empty_fetch_is_answered_after_max_wait(wire: Wire, topic: str) -> None:
    started = time.monotonic()
    fetched = wire.fetch(topic, max_wait_ms=300, min_bytes=1)
    assert time.monotonic() - started >= 0.3
    assert (fetched.error_code, len(fetched.record_set)) == (0, 0)


def test_fetch_with_min_bytes_available_is_answered_at_once(wire: Wire, loaded: str) -> None:
    assert len(wire.fetch(loaded, max_wait_ms=FOR_EVER_MS, min_bytes=5 * SIZE).record_set) == 5 * SIZE


def test_waiting_fetch_is_answered_once_min_bytes_are_produced(
    wire: Wire, connect: Connect, topic: str
) -> None:
    wire.send_fetch([(topic, 0, 0)], max_wait_ms=FOR_EVER_MS, min_bytes=2 * SIZE)
    answered = threading.Event()
    frames: list[bytes | None] = []

    def receive() -> None:
        frames.append(wire.receive_frame())
        answered.set()

    waiting = threading.Thread(target=receive)
    waiting.start()
    with connect() as other:
        other.produce(topic, batch([b"x" * 100] * 2))
        assert not answered.wait(0.2), "one batch is not enough"
        other.produce(topic, batch([b"x" * 100] * 2))
        assert answered.wait(PATIENCE_S)
    waiting.join()
    assert frames[0] is not None


def test_fetch_with_a_log_error_is_answered_at_once(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    response = wire.fetch_all([(topic, 0, 0), (topic, 1, 7)], max_wait_ms=FOR_EVER_MS, min_bytes=1)
    codes = [fetched.error_code for fetched in response.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]


def test_fetch_of_only_a_missing_partition_is_answered_at_once(wire: Wire, topic: str) -> None:
    fetched = wire.fetch(topic, partition=5, max_wait_ms=FOR_EVER_MS, min_bytes=1)
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_missing_partition_does_not_end_the_wait_for_others(wire: Wire, topic: str) -> None:
    started = time.monotonic()
    response = wire.fetch_all([(topic, 0, 0), (topic, 5, 0)], max_wait_ms=300, min_bytes=1)
    codes = {fetched.partition: fetched.error_code for fetched in response.partitions}
    assert codes == {0: ErrorCode.NONE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert time.monotonic() - started >= 0.3


def test_pipelined_requests_are_answered_in_order(wire: Wire, loaded: str) -> None:
    wire.send_fetch([(loaded, 0, 10)], max_wait_ms=200, min_bytes=1)
    list_topic = request_class(ApiKey.LIST_OFFSETS).ListOffsetsTopic
    partition = list_topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    wire.send(
        ApiKey.LIST_OFFSETS,
        8,
        replica_id=-1,
        isolation_level=0,
        topics=[list_topic(name=loaded, partitions=[partition])],
    )
    fetch_frame = wire.receive_frame()
    assert fetch_frame is not None
    assert wire.receive(ApiKey.LIST_OFFSETS, 8).topics[0].partitions[0].offset == 10


def test_response_larger_than_socket_buffers_arrives_whole(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2, max_message_bytes=str(1 << 26))
    big = [batch([bytes([number]) * (9 << 20)]) for number in range(2)]
    for number in range(2):
        assert wire.produce(topic, big[number], partition=number).error_code == ErrorCode.NONE
    answer = wire.fetch_all([(topic, 0, 0), (topic, 1, 0)], max_bytes=1 << 25, partition_max_bytes=1 << 25)
    for number, fetched in enumerate(answer.partitions):
        assert fetched.record_set[16:] == big[number][16:]
