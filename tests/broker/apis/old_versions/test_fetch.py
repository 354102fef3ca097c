"""Fetch of clients before Kafka 2.1: messages of magic 0 and 1 from batches."""

from __future__ import annotations

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal_broker import Broker
from tests.batches import (
    TIMESTAMP,
    TRANSACTIONAL,
    batch,
    marker,
    message,
    raw_batch,
)
from tests.broker.apis.old_versions.frames import (
    FETCH,
    OLD_CODECS,
    OLD_VERSIONS,
    offsets,
    read_all,
    values,
)
from tests.broker.conftest import NewTopic
from tests.broker.wire import PATIENCE_S, Wire


@FETCH
@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
def test_fetched_messages_have_the_magic_of_the_version(
    wire: Wire, topic: str, version: int, magic: int, codec: Codec
) -> None:
    for _ in range(3):
        assert wire.produce(topic, batch(4, codec=codec)).error_code == ErrorCode.NONE
    assert wire.fetch(topic, version=version).high_watermark == 12
    assert read_all(wire, topic, version, magic) == [
        (4 * number + delta, TIMESTAMP + delta if magic else None, b"key %d" % delta, b"value %d" % delta)
        for number in range(3)
        for delta in range(4)
    ]


@FETCH
def test_fetch_inside_an_uncompressed_batch_begins_at_the_offset(
    wire: Wire, new_topic: NewTopic, version: int, magic: int
) -> None:
    plain, compressed = new_topic(), new_topic()
    assert wire.produce(plain, batch(4)).error_code == ErrorCode.NONE
    assert wire.produce(compressed, batch(4, codec=Codec.GZIP)).error_code == ErrorCode.NONE
    assert offsets(wire.fetch(plain, 2, version=version).record_set, magic) == [2, 3]
    assert offsets(wire.fetch(compressed, 2, version=version).record_set, magic) == [0, 1, 2, 3]


@FETCH
def test_log_append_time_is_that_of_the_fetched_messages(
    wire: Wire, new_topic: NewTopic, version: int, magic: int
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    answers = [wire.produce(topic, batch(2, codec=codec)) for codec in (Codec.NONE, Codec.LZ4)]
    times = [answer.log_append_time_ms if magic else None for answer in answers for _ in range(2)]
    fetched = wire.fetch(topic, version=version)
    assert [timestamp for _, timestamp, *_ in values(fetched.record_set, magic)] == times


@FETCH
def test_batch_of_zstd_is_refused(wire: Wire, topic: str, version: int, magic: int) -> None:
    assert wire.produce(topic, batch(2)).error_code == ErrorCode.NONE
    assert wire.produce(topic, batch(2, codec=Codec.ZSTD)).error_code == ErrorCode.NONE
    before = wire.fetch(topic, version=version)
    assert before.error_code == ErrorCode.NONE
    assert offsets(before.record_set, magic) == [0, 1]
    assert wire.fetch(topic, 2, version=version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", range(13))
def test_topic_with_zstd_requires_version_10(wire: Wire, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(compression_type="zstd")
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 10 else ErrorCode.NONE
    assert wire.fetch(topic, version=version).error_code == code
    assert wire.produce(topic, batch()).error_code == ErrorCode.NONE
    assert wire.fetch(topic, version=version).error_code == code


@pytest.mark.parametrize("version", range(5))
def test_conversion_disabled_by_a_topic_is_refused(wire: Wire, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(message_downconversion_enable="false")
    assert wire.produce(topic, batch()).error_code == ErrorCode.NONE
    fetched = wire.fetch(topic, version=version)
    assert fetched.error_code == (ErrorCode.UNSUPPORTED_VERSION if version < 4 else ErrorCode.NONE)
    assert (len(fetched.record_set) > 0) is (version >= 4)


def test_conversion_disabled_by_the_broker_can_be_enabled_by_a_topic() -> None:
    config = {**OLD_VERSIONS, "log.message.downconversion.enable": "false"}
    with Broker(config=config) as broker, Wire(broker.bootstrap) as wire:
        broker.create_topic("forbidden")
        broker.create_topic("allowed", config={"message.downconversion.enable": "true"})
        for name, code in (("forbidden", ErrorCode.UNSUPPORTED_VERSION), ("allowed", ErrorCode.NONE)):
            assert wire.produce(name, batch()).error_code == ErrorCode.NONE
            assert wire.fetch(name, version=3).error_code == code


PRODUCER_ID = 77


def transactional(base_offset: int, codec: Codec = Codec.NONE, producer_id: int = PRODUCER_ID) -> bytearray:
    return batch(
        2,
        base_offset=base_offset,
        codec=codec,
        flags=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_offset,
    )


@FETCH
def test_markers_and_aborted_batches_are_dropped(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int
) -> None:
    log = broker.log(topic)
    log.store(transactional(0) + marker(1, PRODUCER_ID, base_offset=2))
    log.store(transactional(3, Codec.GZIP) + batch(2, base_offset=5) + marker(0, PRODUCER_ID, base_offset=7))
    log.store(transactional(8, producer_id=78) + marker(1, 78, base_offset=10))
    for offset, expected in [(0, [0, 1, 5, 6, 8, 9]), (3, [5, 6, 8, 9]), (7, [8, 9]), (10, []), (11, [])]:
        fetched = wire.fetch(topic, offset, version=version)
        assert fetched.error_code == ErrorCode.NONE
        assert offsets(fetched.record_set, magic) == expected
        assert fetched.high_watermark == 11


@FETCH
def test_fetch_stops_before_an_open_transaction(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int
) -> None:
    broker.log(topic).store(batch(1) + transactional(1) + batch(1, base_offset=3))
    assert offsets(wire.fetch(topic, version=version).record_set, magic) == [0]
    assert bytes(wire.fetch(topic, 1, version=version).record_set) == b""
    broker.log(topic).store(marker(1, PRODUCER_ID, base_offset=4))
    assert offsets(wire.fetch(topic, 1, version=version).record_set, magic) == [1, 2, 3]


@FETCH
def test_batches_without_old_form_are_skipped_at_any_length(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int
) -> None:
    """A client with a limit before the first message makes progress."""
    log = broker.log(topic)
    for offset in range(0, 300, 3):
        log.store(transactional(offset) + marker(0, PRODUCER_ID, base_offset=offset + 2))
    log.store(batch(2, base_offset=300))
    fetched = wire.fetch(topic, version=version, partition_max_bytes=500)
    assert offsets(fetched.record_set, magic) == [300, 301]


@FETCH
def test_marker_does_not_end_the_wait_of_a_fetch(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int
) -> None:
    log = broker.log(topic)
    wire.send_fetch([(topic, 0, 0)], version=version, min_bytes=1, max_wait_ms=PATIENCE_S * 1000)
    log.store(transactional(0) + marker(0, PRODUCER_ID, base_offset=2))
    log.store(batch(1, base_offset=3))
    frame = wire.receive_frame()
    assert frame is not None
    assert b"value 0" in frame


@FETCH
def test_compacted_batches_are_read_to_the_end(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int
) -> None:
    emptied = raw_batch(base_offset=4, last_offset_delta=2, records_count=0)
    broker.log(topic).store(batch(4, holes=[1, 3]) + emptied + batch(3, base_offset=7, holes=[0]))
    assert offsets(wire.fetch(topic, version=version).record_set, magic) == [0, 2, 8, 9]
    assert offsets(wire.fetch(topic, 4, version=version).record_set, magic) == [8, 9]


@FETCH
def test_stored_old_messages_are_sent_unchanged(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int
) -> None:
    stored = b"".join(bytes(message(0, b"value", key=b"key", offset=offset)) for offset in range(3))
    broker.log(topic).store(stored)
    assert wire.fetch(topic, version=version).record_set == stored


def test_damaged_stored_batch_is_refused(broker: Broker, wire: Wire, topic: str) -> None:
    damaged = batch(2, base_offset=1)
    damaged[-1] ^= 1
    broker.log(topic).store(batch(1) + damaged)
    assert offsets(wire.fetch(topic, version=3).record_set, 1) == [0]
    assert wire.fetch(topic, 1, version=3).error_code == ErrorCode.CORRUPT_MESSAGE


@FETCH
def test_first_batch_is_whole_with_any_limit(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int
) -> None:
    """Kafka gives nothing before v3, and the client would ask for ever."""
    for _ in range(2):
        assert wire.produce(topic, batch([b"x" * 1000] * 3)).error_code == ErrorCode.NONE
    fetched = wire.fetch(topic, version=version, partition_max_bytes=1)
    assert offsets(fetched.record_set, magic) == [0, 1, 2]
    assert len(fetched.record_set) >= 3000


@FETCH
def test_later_partitions_have_at_least_one_batch_before_version_3(
    broker: Broker, wire: Wire, new_topic: NewTopic, version: int, magic: int
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        assert wire.produce(topic, batch(2), partition=partition).error_code == ErrorCode.NONE
    entries = [(topic, partition, 0) for partition in range(3)]
    found = wire.fetch_all(entries, version=version, partition_max_bytes=1).partitions
    later = [0, 1] if version < 3 else []
    assert [offsets(each.record_set, magic) for each in found] == [[0, 1], later, later]


def test_response_has_a_limit_from_version_3_on(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    for partition in range(2):
        assert wire.produce(topic, batch([b"x" * 1000])).error_code == ErrorCode.NONE
        assert wire.produce(topic, batch([b"y" * 1000]), partition=partition).error_code == ErrorCode.NONE
    entries = [(topic, 0, 0), (topic, 1, 0)]
    first, second = wire.fetch_all(entries, version=3, max_bytes=1500).partitions
    assert len(first.record_set) == 1500
    assert offsets(first.record_set, 1) == [0]
    assert bytes(second.record_set) == b""


@FETCH
def test_offset_outside_the_log_is_out_of_range(wire: Wire, topic: str, version: int, magic: int) -> None:
    assert wire.fetch(topic, 1, version=version).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    fetched = wire.fetch(topic, 0, version=version)
    assert (fetched.error_code, len(fetched.record_set)) == (ErrorCode.NONE, 0)
    assert wire.fetch(topic, partition=9, version=version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_response_in_chunks_of_any_size_is_the_same() -> None:
    record_sets = set()
    for chunk_bytes in (1, 200, 1 << 14, 2**31 - 1):
        config = {**OLD_VERSIONS, "shoal.down.conversion.chunk.bytes": str(chunk_bytes)}
        with Broker(config=config) as broker, Wire(broker.bootstrap) as wire:
            broker.create_topic("topic")
            for number in range(20):
                codec = [Codec.NONE, Codec.GZIP, Codec.LZ4][number % 3]
                assert wire.produce("topic", batch(number + 1, codec=codec)).error_code == ErrorCode.NONE
            assert [offset for offset, *_ in read_all(wire, "topic", 3, 1)] == list(range(210))
            record_sets.add(bytes(wire.fetch("topic", version=3).record_set))
    assert len(record_sets) == 1


def test_fault_within_a_response_cuts_converted_records(broker: Broker, wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch([b"x" * 1000])).error_code == ErrorCode.NONE
    broker.faults.add(ApiKey.FETCH, drop="within")
    wire.send_fetch([(topic, 0, 0)], version=3)
    size = wire._receive(4)
    assert size is not None
    assert int.from_bytes(size) > 1000
    assert wire._receive(int.from_bytes(size)) is None


def test_pipelined_requests_are_answered_in_order(wire: Wire, new_topic: NewTopic) -> None:
    first, second = new_topic(), new_topic()
    assert wire.produce(first, batch(500)).error_code == ErrorCode.NONE
    assert wire.produce(second, batch(1)).error_code == ErrorCode.NONE
    for version in range(5):
        wire.send_fetch([(first, 0, 0)], version=version)
        wire.send_fetch([(second, 0, 0)], version=version)
        frames = [wire.receive_frame(), wire.receive_frame()]
        assert [first.encode() in (frame or b"") for frame in frames] == [True, False]
        assert [second.encode() in (frame or b"") for frame in frames] == [False, True]
