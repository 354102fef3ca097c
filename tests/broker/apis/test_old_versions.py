"""
Requests of clients before Kafka 2.1, and their responses.

Tests that do not ask for ``broker`` run unchanged against a real Kafka of 3.9
or before: ``SHOAL_TEST_BROKER=HOST:PORT pytest tests/broker/apis/test_old_versions.py``.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.record import MemoryRecords

from shoal.broker import Broker
from shoal.broker.apis.table import APIS, APIS_WITH_OLD_VERSIONS
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import Codec, read_key_value_headers, read_records, split
from tests.batches import (
    LOG_APPEND_TIME,
    TIMESTAMP,
    TRANSACTIONAL,
    batch,
    marker,
    message,
    raw_batch,
    wrapper,
)
from tests.broker.conftest import NewTopic, broker_of_kind
from tests.broker.wire import PATIENCE_S, Wire

OLD_VERSIONS = {"shoal.old.versions": "true"}

FETCH = pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
PRODUCE = pytest.mark.parametrize("version", range(3))
OLD_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@pytest.fixture(scope="module", params=["memory", "files"])
def session_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """If the log is in files, it is read in another way for conversion."""
    with broker_of_kind(request.param, tmp_path_factory, OLD_VERSIONS) as running:
        yield running


def values(record_set: memoryview, magic: int) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    """Read messages as another library does: offset, timestamp, key and value of each."""
    found = []
    messages = MemoryRecords(bytes(record_set))
    while messages.has_next():
        for record in messages.next_batch():
            assert record.validate_crc()
            found.append((record.offset, record.timestamp, record.key, record.value))
    position = 0
    while position + 17 <= len(record_set) and record_set[position : position + 8] != b"\xff" * 8:
        assert record_set[position + 16] == magic
        position += 12 + int.from_bytes(record_set[position + 8 : position + 12])
    return found


def offsets(record_set: memoryview, magic: int) -> list[int]:
    return [offset for offset, *_ in values(record_set, magic)]


def read_all(wire: Wire, topic: str, version: int, magic: int, **options: int) -> list[tuple[Any, ...]]:
    """
    Fetch to the end, as a client does.

    Records that are longer after conversion are cut at the announced length, and fetched again.
    """
    found: list[tuple[Any, ...]] = []
    offset = 0
    while True:
        fetched = wire.fetch(topic, offset, version=version, **options)
        assert fetched.error_code == ErrorCode.NONE
        if not fetched.record_set:
            return found
        some = [each for each in values(fetched.record_set, magic) if each[0] >= offset]
        assert some, f"no progress at {offset}"
        found += some
        offset = found[-1][0] + 1


# Whole frames


def served_versions(wire: Wire) -> dict[int, int]:
    answer = wire.call(ApiKey.API_VERSIONS, 0)
    return {each.api_key: each.min_version for each in answer.api_keys}


def test_old_versions_enabled_are_announced(wire: Wire) -> None:
    served = served_versions(wire)
    assert {key: served[key] for key in APIS_WITH_OLD_VERSIONS if key in served and served[key] > 0} == {}


def test_old_versions_disabled_are_neither_announced_nor_served() -> None:
    with Broker() as broker:
        broker.create_topic("topic")
        with Wire(broker.bootstrap) as wire:
            served = served_versions(wire)
            announced = {key: 0 if key == ApiKey.PRODUCE else api.oldest for key, api in APIS.items()}
            assert served == announced
            assert served[ApiKey.FETCH] == 4
            wire.send_fetch([("topic", 0, 0)], version=3)
            assert wire.receive_frame() is None


HEADER = b"\0\0\0\x07" + b"\0\x12kafka-python-2.0.2"
MESSAGE_0 = b"\0\0\0\x10" + b"\x1f\xec\xd7\x0a\0\0" + b"\0\0\0\1k\0\0\0\1v"
MESSAGE_1 = b"\0\0\0\x18" + b"\xbf\x07\x0c\x1c\1\0" + b"\0\0\1\x5d\x3e\xf7\x98\0" + b"\0\0\0\1k\0\0\0\1v"
MESSAGE_1_WITHOUT_TIME = bytes(message(1, b"v", key=b"k", timestamp=-1))[8:]

TOPIC = b"\0\0\0\1\0\7literal" + b"\0\0\0\1\0\0\0\0"
"""One topic with one partition, 0, as most requests and all responses begin."""


def padding(size: int) -> bytes:
    """The cut batch that fills a record set up to its announced length."""
    return b"\xff" * 8 + max(size + 1, 61).to_bytes(4) + bytes(size - 12)


#: Requests as kafka-python 2.0.2 wrote them, and their answers; each is v2 of 70 bytes in the log.
CONVERSATION: list[tuple[str, bytes, bytes]] = [
    (
        "CreateTopics v0",
        b"\0\x13\0\0" + HEADER + b"\0\0\0\1\0\4made\0\0\0\2\0\1\0\0\0\0"
        b"\0\0\0\1\0\x0cretention.ms\0\2-1" + b"\0\0\x13\x88",
        b"\0\0\0\1\0\4made\0\0",
    ),
    (
        "Produce v0",
        b"\0\0\0\0" + HEADER + b"\0\1\0\0\x75\x30" + TOPIC + b"\0\0\0\x1c" + bytes(8) + MESSAGE_0,
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\0",
    ),
    (
        "Produce v1",
        b"\0\0\0\1" + HEADER + b"\0\1\0\0\x75\x30" + TOPIC + b"\0\0\0\x1c" + bytes(8) + MESSAGE_0,
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\1" + b"\0\0\0\0",
    ),
    (
        "Produce v2",
        b"\0\0\0\2" + HEADER + b"\0\1\0\0\x75\x30" + TOPIC + b"\0\0\0\x24" + bytes(8) + MESSAGE_1,
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\2" + b"\xff" * 8 + b"\0\0\0\0",
    ),
    (
        "Fetch v0",
        b"\0\1\0\0" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1" + TOPIC + bytes(8) + b"\0\x10\0\0",
        TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\xd2"
        b"\0\0\0\0\0\0\0\0" + MESSAGE_0 + b"\0\0\0\0\0\0\0\1" + MESSAGE_0 + b"\0\0\0\0\0\0\0\2" + MESSAGE_0
        + padding(126),
    ),
    (
        "Fetch v1",
        b"\0\1\0\1" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1" + TOPIC + b"\0\0\0\0\0\0\0\1\0\x10\0\0",
        b"\0\0\0\0" + TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\x8c"
        b"\0\0\0\0\0\0\0\1" + MESSAGE_0 + b"\0\0\0\0\0\0\0\2" + MESSAGE_0 + padding(84),
    ),
    (
        "Fetch v2",
        b"\0\1\0\2" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1" + TOPIC + b"\0\0\0\0\0\0\0\1\0\x10\0\0",
        b"\0\0\0\0" + TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\x8c"
        b"\0\0\0\0\0\0\0\1" + MESSAGE_1_WITHOUT_TIME + b"\0\0\0\0\0\0\0\2" + MESSAGE_1 + padding(68),
    ),
    (
        "Fetch v3",
        b"\0\1\0\3" + HEADER + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1\3\x20\0\0"
        + TOPIC + b"\0\0\0\0\0\0\0\2\0\x10\0\0",
        b"\0\0\0\0" + TOPIC + b"\0\0" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\x46"
        b"\0\0\0\0\0\0\0\2" + MESSAGE_1 + padding(34),
    ),
    (
        "ListOffsets v0, two before the end",
        b"\0\2\0\0" + HEADER + b"\xff\xff\xff\xff" + TOPIC + b"\xff" * 8 + b"\0\0\0\2",
        TOPIC + b"\0\0" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\0\0\0\0\0",
    ),
    (
        "ListOffsets v0, of the beginning",
        b"\0\2\0\0" + HEADER + b"\xff\xff\xff\xff" + TOPIC + b"\xff" * 7 + b"\xfe" + b"\0\0\0\2",
        TOPIC + b"\0\0" + b"\0\0\0\1" + b"\0\0\0\0\0\0\0\0",
    ),
    (
        "OffsetFetch v0, of no position",
        b"\0\x09\0\0" + HEADER + b"\0\5group" + TOPIC,
        TOPIC + b"\xff" * 8 + b"\0\0" + b"\0\3",
    ),
    (
        "OffsetCommit v0",
        b"\0\x08\0\0" + HEADER + b"\0\5group" + TOPIC + b"\0\0\0\0\0\0\0\2" + b"\0\1m",
        TOPIC + b"\0\0",
    ),
    (
        "OffsetFetch v0",
        b"\0\x09\0\0" + HEADER + b"\0\5group" + TOPIC,
        TOPIC + b"\0\0\0\0\0\0\0\2" + b"\0\1m" + b"\0\0",
    ),
    (
        "OffsetCommit v1",
        b"\0\x08\0\1" + HEADER + b"\0\5group" + b"\xff\xff\xff\xff\0\0" + TOPIC + b"\0\0\0\0\0\0\0\1"
        b"\0\0\1\x5d\x3e\xf7\x98\0" + b"\0\1n",
        TOPIC + b"\0\0",
    ),
    (
        "OffsetFetch v0, of what v1 committed",
        b"\0\x09\0\0" + HEADER + b"\0\5group" + TOPIC,
        TOPIC + b"\0\0\0\0\0\0\0\1" + b"\0\1n" + b"\0\0",
    ),
]  # fmt: skip


def test_old_client_frames_are_answered_with_literal_bytes() -> None:
    with Broker(config=OLD_VERSIONS) as broker:
        broker.create_topic("literal")
        with Wire(broker.bootstrap) as wire:
            for name, request, response in CONVERSATION:
                wire.send_bytes(len(request).to_bytes(4) + request)
                assert wire.receive_frame() == b"\0\0\0\7" + response, name


def test_metadata_v0_without_topics_returns_all_topics() -> None:
    with Broker(config=OLD_VERSIONS) as broker:
        broker.create_topic("literal")
        with Wire(broker.bootstrap) as wire:
            described = (
                b"\0\0\0\7" + b"\0\0\0\1" + b"\0\0\0\1" + b"\0\x09127.0.0.1" + broker.port.to_bytes(4)
                + b"\0\0\0\1" + b"\0\0" + b"\0\7literal" + b"\0\0\0\1" + b"\0\0" + b"\0\0\0\0"
                b"\0\0\0\1" + b"\0\0\0\1\0\0\0\1" + b"\0\0\0\1\0\0\0\1"
            )  # fmt: skip
            for wanted in (b"\0\0\0\0", b"\0\0\0\1\0\7literal"):
                request = b"\0\3\0\0" + HEADER + wanted
                wire.send_bytes(len(request).to_bytes(4) + request)
                assert wire.receive_frame() == described


# Fetch


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


# Produce


def stored(wire: Wire, topic: str) -> list[Any]:
    """Read the batches of a partition as new clients do."""
    fetched = wire.fetch(topic, version=12)
    assert fetched.error_code == ErrorCode.NONE
    return list(split(memoryview(bytes(fetched.record_set))))


def records(found: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.timestamp, *read_key_value_headers(record)[:2])
        for record in read_records(found, 1 << 20)
    ]


def message_set(magic: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    """Write the bytes of a producer of that magic."""
    inner = [
        bytes(
            message(magic, b"value %d" % each, key=b"key %d" % each, offset=each, timestamp=TIMESTAMP + each)
        )
        for each in range(count)
    ]
    if codec is Codec.NONE:
        return b"".join(inner)
    return bytes(wrapper(magic, codec, inner, offset=count - 1, timestamp=TIMESTAMP + count - 1))


@PRODUCE
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
def test_message_set_becomes_one_batch(
    wire: Wire, topic: str, version: int, magic: int, codec: Codec
) -> None:
    for base_offset in (0, 3):
        answer = wire.produce(topic, message_set(magic, 3, codec), version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, base_offset)
    found = stored(wire, topic)
    assert [each.header.base_offset for each in found] == [0, 3]
    for each in found:
        assert each.header.magic == 2
        assert each.header.codec_id == codec
        assert each.header.producer_id == -1
        assert not each.header.is_log_append_time
        base = each.header.base_offset
        times = [TIMESTAMP + number if magic else -1 for number in range(3)]
        assert each.header.max_timestamp == times[-1]
        assert records(each) == [
            (base + number, times[number], b"key %d" % number, b"value %d" % number) for number in range(3)
        ]


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_is_stored_with_the_topic_s_codec(wire: Wire, new_topic: NewTopic, magic: int) -> None:
    for name, codec in (("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("uncompressed", Codec.NONE)):
        for sent in (Codec.NONE, Codec.SNAPPY):
            topic = new_topic(compression_type=name)
            answer = wire.produce(topic, message_set(magic, 3, sent), version=2)
            assert answer.error_code == ErrorCode.NONE
            (found,) = stored(wire, topic)
            assert found.header.codec_id == codec
            assert [offset for offset, *_ in records(found)] == [0, 1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_of_a_log_append_time_topic_has_the_broker_s_time(
    wire: Wire, new_topic: NewTopic, magic: int, codec: Codec
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    answer = wire.produce(topic, message_set(magic, 2, codec), version=2)
    assert answer.error_code == ErrorCode.NONE
    assert answer.log_append_time_ms > TIMESTAMP
    (found,) = stored(wire, topic)
    assert found.header.is_log_append_time
    assert found.header.max_timestamp == answer.log_append_time_ms


@PRODUCE
@pytest.mark.parametrize("sent", [b"", message_set(1, 1)[:-1], message_set(0, 1)[:16]])
def test_produce_without_whole_message_succeeds_without_offset(
    wire: Wire, topic: str, version: int, sent: bytes
) -> None:
    answer = wire.produce(topic, sent, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)
    assert wire.end_offset(topic) == 0


@PRODUCE
def test_null_record_set_counts_as_empty(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    """Kafka answers a null record set with nothing at all."""
    answer = wire.produce(topic, None, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)


@PRODUCE
def test_message_cut_at_the_end_is_dropped(wire: Wire, topic: str, version: int) -> None:
    assert wire.produce(topic, message_set(0, 3)[:-1], version=version).error_code == ErrorCode.NONE
    assert wire.end_offset(topic) == 2


@PRODUCE
def test_batch_of_magic_2_is_accepted_in_old_versions(wire: Wire, topic: str, version: int) -> None:
    """As Kafka 3.9 does, which looks at the magic from v3 on."""
    assert wire.produce(topic, batch(2, codec=Codec.ZSTD), version=version).base_offset == 0
    answer = wire.produce(topic, batch() + batch(), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert len(stored(wire, topic)) == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_is_refused_from_version_3_on(wire: Wire, topic: str, magic: int) -> None:
    for version in (3, 8, 11):
        answer = wire.produce(topic, message_set(magic, 2), version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD


def test_key_byte_is_not_read_as_the_transactional_attribute(wire: Wire, topic: str) -> None:
    """The byte is of the attributes in magic 2, and within the key of magic 0."""
    sent = bytes(message(0, b"value", key=b"\xff" * 20))
    for version in range(3):
        assert wire.produce(topic, sent, version=version).error_code == ErrorCode.NONE


NOW = time.time_ns() // 1_000_000
DAY = 86_400_000


def _wrapped(*inner: bytes | bytearray, **options: int) -> bytes:
    return bytes(wrapper(1, Codec.GZIP, [bytes(each) for each in inner], **options))


def _with_wrong_crc(sent: bytes | bytearray) -> bytes:
    return bytes(sent[:-1]) + bytes([sent[-1] ^ 1])


REFUSED: dict[str, tuple[bytes, dict[str, str], ErrorCode]] = {
    "a wrong CRC": (_with_wrong_crc(message_set(1, 2)), {}, ErrorCode.CORRUPT_MESSAGE),
    "a wrong CRC in a wrapper": (
        _wrapped(message(1), _with_wrong_crc(message(1, offset=1)), offset=1),
        {},
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a length that is too short": (bytes(8) + b"\0\0\0\x0d" + bytes(20), {}, ErrorCode.CORRUPT_MESSAGE),
    "two magics": (message_set(0, 1) + message_set(1, 1), {}, ErrorCode.INVALID_RECORD),
    "two wrappers": (message_set(1, 2, Codec.GZIP) * 2, {}, ErrorCode.INVALID_RECORD),
    "a wrapper in a wrapper": (_wrapped(_wrapped(message(1))), {}, ErrorCode.INVALID_RECORD),
    "a wrapper of zstd": (bytes(wrapper(1, Codec.ZSTD, [bytes(message(1))])), {}, ErrorCode.INVALID_RECORD),
    "another magic in a wrapper": (_wrapped(message(0)), {}, ErrorCode.INVALID_RECORD),
    "a wrapper with nothing in it": (_wrapped(), {}, ErrorCode.INVALID_RECORD),
    "a wrapper that is no stream": (
        bytes(message(1, b"no gzip", attributes=Codec.GZIP)),
        {},
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "a codec that is none": (bytes(message(1, attributes=5)), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
    "a message that is too large": (
        message_set(1, 1) + bytes(message(1, b"x" * 1000)),
        {"max_message_bytes": "1000"},
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "messages that are too large together": (
        b"".join(bytes(message(1, b"x" * 100)) for _ in range(10)),
        {"max_message_bytes": "1000"},
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "a time that is to come": (
        bytes(message(1, timestamp=NOW + 3 * DAY)),
        {"message_timestamp_after_max_ms": str(DAY)},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "a time that is long past": (
        _wrapped(message(1, timestamp=NOW), message(1, timestamp=NOW - 3 * DAY, offset=1), offset=1),
        {"message_timestamp_before_max_ms": str(DAY)},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "an append time of its own": (
        bytes(message(1, attributes=LOG_APPEND_TIME)),
        {"message_timestamp_type": "LogAppendTime"},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "an append time of its own for no time": (
        bytes(message(1, attributes=LOG_APPEND_TIME, timestamp=-1)),
        {},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "a negative time": (bytes(message(1, timestamp=-2)), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
    "no key where one is needed": (
        bytes(message(1, key=b"key") + message(1, offset=1)),
        {"cleanup_policy": "compact"},
        ErrorCode.INVALID_RECORD,
    ),
}


@PRODUCE
@pytest.mark.parametrize("name", REFUSED)
def test_message_set_that_kafka_refuses_is_refused_and_not_written(
    wire: Wire, new_topic: NewTopic, version: int, name: str
) -> None:
    sent, config, code = REFUSED[name]
    topic = new_topic(**config)
    answer = wire.produce(topic, sent, version=version)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert wire.end_offset(topic) == 0


def test_log_append_time_attribute_of_a_producer_is_cleared(wire: Wire, topic: str) -> None:
    """Since Kafka 3.6, as for batches of magic 2."""
    sent = bytes(message(1, attributes=LOG_APPEND_TIME, timestamp=TIMESTAMP))
    assert wire.produce(topic, sent, version=2).error_code == ErrorCode.NONE
    (found,) = stored(wire, topic)
    assert not found.header.is_log_append_time
    assert found.header.max_timestamp == TIMESTAMP


@PRODUCE
@pytest.mark.parametrize("acks", [2, -2])
def test_invalid_acks_are_refused(wire: Wire, topic: str, version: int, acks: int) -> None:
    answer = wire.produce(topic, message_set(0, 1), version=version, acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


@PRODUCE
def test_acks_0_has_no_response_and_an_error_closes_the_connection(
    wire: Wire, topic: str, broker_address: str, version: int
) -> None:
    def send(where: Wire, record_set: bytes) -> None:
        fields = Wire.produce_fields([(topic, 0, record_set)], acks=0)
        where.send(ApiKey.PRODUCE, version, **fields)

    send(wire, message_set(0, 2))
    # The next answer is of the next request.
    assert wire.call(ApiKey.METADATA, 0, topics=[]).brokers
    assert wire.end_offset(topic) == 2
    with Wire(broker_address) as other:
        send(other, _with_wrong_crc(message_set(0, 2)))
        assert other.receive_frame() is None
    assert wire.end_offset(topic) == 2


@PRODUCE
def test_messages_of_old_clients_are_read_by_old_clients(wire: Wire, topic: str, version: int) -> None:
    magic = 1 if version == 2 else 0
    for codec in (Codec.NONE, *OLD_CODECS):
        assert wire.produce(topic, message_set(magic, 3, codec), version=version).error_code == 0
    assert [(key, value) for _, _, key, value in read_all(wire, topic, version, magic)] == [
        (b"key %d" % each, b"value %d" % each) for _ in range(4) for each in range(3)
    ]


# Offsets


def old_offsets(wire: Wire, topic: str, timestamp: int, count: int = 10) -> list[int]:
    answer = wire.list_offset(topic, timestamp, version=0, max_num_offsets=count)
    assert answer.error_code == ErrorCode.NONE
    return list(answer.old_style_offsets)


def test_list_offsets_v0_returns_the_ends_of_a_log(wire: Wire, topic: str) -> None:
    assert old_offsets(wire, topic, -1) == [0]
    assert old_offsets(wire, topic, -2) == [0]
    assert wire.produce(topic, batch(5)).error_code == ErrorCode.NONE
    assert old_offsets(wire, topic, -1) == [5, 0]
    assert old_offsets(wire, topic, -1, 1) == [5]
    assert old_offsets(wire, topic, -1, 0) == []
    assert old_offsets(wire, topic, -2) == [0]


def test_list_offsets_v0_finds_segments_by_last_write(
    broker: Broker, wire: Wire, new_topic: NewTopic
) -> None:
    topic = new_topic(segment_bytes=str(1 << 20))
    before = time.time_ns() // 1_000_000
    for _ in range(40):
        assert wire.produce(topic, batch([b"x" * 100_000])).error_code == ErrorCode.NONE
    starts = [start for _, start in broker.log(topic).segment_starts()]
    assert len(starts) > 3
    assert old_offsets(wire, topic, -1, 100) == starts[::-1]
    assert old_offsets(wire, topic, -1, 2) == starts[-1:-3:-1]
    assert old_offsets(wire, topic, time.time_ns() // 1_000_000 + DAY, 2) == starts[-1:-3:-1]
    assert old_offsets(wire, topic, before - DAY) == []
    broker.log(topic).delete_records(3)
    assert old_offsets(wire, topic, -2) == [3]


@pytest.mark.parametrize(
    ("timestamp", "count", "code"),
    [(-3, 1, ErrorCode.UNSUPPORTED_VERSION), (-1, -1, ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_list_offsets_v0_refuses_newer_timestamps(
    wire: Wire, topic: str, timestamp: int, count: int, code: ErrorCode
) -> None:
    answer = wire.list_offset(topic, timestamp, version=0, max_num_offsets=count)
    assert (ErrorCode(answer.error_code), list(answer.old_style_offsets)) == (code, [])


def test_missing_partition_has_no_offsets(wire: Wire, topic: str) -> None:
    answer = wire.list_offset(topic, -1, partition=9, version=0)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit(wire: Wire, version: int, group: str, topic: str, offset: int, **fields: Any) -> int:
    wanted = request_class(ApiKey.OFFSET_COMMIT).OffsetCommitRequestTopic
    partition = wanted.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m", **fields
    )
    answer = wire.call(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[wanted(name=topic, partitions=[partition])],
    )
    code: int = answer.topics[0].partitions[0].error_code
    return code


def position(wire: Wire, version: int, group: str, topic: str, partition: int = 0) -> tuple[int, str, int]:
    wanted = request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestTopic
    topics = [wanted(name=topic, partition_indexes=[partition])]
    deadline = time.monotonic() + PATIENCE_S
    # A real coordinator that is not there yet answers with nothing at all.
    while not (answer := wire.call(ApiKey.OFFSET_FETCH, version, group_id=group, topics=topics)).topics:
        assert time.monotonic() < deadline
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.metadata, found.error_code


def test_offset_committed_in_version_1_is_read_by_later_versions(wire: Wire, topic: str, unique: str) -> None:
    wire.call_coordinator(ApiKey.FIND_COORDINATOR, 0, key=unique)
    assert position(wire, 1, unique, topic) == (-1, "", ErrorCode.NONE)
    assert commit(wire, 1, unique, topic, 7, commit_timestamp=-1) == ErrorCode.NONE
    assert position(wire, 1, unique, topic) == (7, "m", ErrorCode.NONE)
    assert position(wire, 7, unique, topic) == (7, "m", ErrorCode.NONE)


def test_offset_committed_in_version_0_is_the_group_s(
    broker: Broker, wire: Wire, topic: str, unique: str
) -> None:
    """Kafka had them in ZooKeeper, up to 3.9."""
    assert position(wire, 0, unique, topic) == (-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert commit(wire, 0, unique, topic, 7) == ErrorCode.NONE
    assert position(wire, 0, unique, topic) == (7, "m", ErrorCode.NONE)
    assert position(wire, 0, unique, topic, partition=1)[2] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert position(wire, 7, unique, topic) == (7, "m", ErrorCode.NONE)
    assert commit(wire, 0, unique, "no such topic", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offset_commit_v1_with_old_timestamp_expires(
    broker: Broker, wire: Wire, topic: str, unique: str
) -> None:
    assert commit(wire, 1, unique, topic, 7, commit_timestamp=NOW - 365 * DAY) == ErrorCode.NONE
    broker.groups.forget_old_offsets()
    assert position(wire, 1, unique, topic) == (-1, "", ErrorCode.NONE)
    assert commit(wire, 1, unique, topic, 8, commit_timestamp=NOW) == ErrorCode.NONE
    broker.groups.forget_old_offsets()
    assert position(wire, 1, unique, topic) == (8, "m", ErrorCode.NONE)


@pytest.mark.parametrize("version", [0, 1])
def test_group_error_is_set_on_each_partition(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    broker.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.NOT_COORDINATOR)
    assert position(wire, version, "group", topic) == (-1, "", ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("version", [0, 1])
def test_commit_by_a_non_member_of_an_active_group_is_refused(
    broker: Broker, wire: Wire, topic: str, unique: str, version: int
) -> None:
    protocol = request_class(ApiKey.JOIN_GROUP).JoinGroupRequestProtocol(name="range", metadata=b"")
    joined = wire.call(
        ApiKey.JOIN_GROUP,
        0,
        group_id=unique,
        session_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    assert joined.error_code == ErrorCode.NONE
    assert commit(wire, version, unique, topic, 7) == ErrorCode.UNKNOWN_MEMBER_ID


# Topics


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_created_deleted_and_described_in_old_versions(
    wire: Wire, unique: str, version: int
) -> None:
    topic = request_class(ApiKey.CREATE_TOPICS).CreatableTopic
    wanted = topic(
        name=unique,
        num_partitions=2,
        replication_factor=1,
        assignments=[],
        configs=[topic.CreatableTopicConfig(name="retention.ms", value="-1")],
    )
    created = wire.call(ApiKey.CREATE_TOPICS, version, topics=[wanted], timeout_ms=5000)
    assert [(each.name, each.error_code) for each in created.topics] == [(unique, ErrorCode.NONE)]
    again = wire.call(ApiKey.CREATE_TOPICS, version, topics=[wanted], timeout_ms=5000)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    deadline = time.monotonic() + PATIENCE_S
    while wire.list_offset(unique, -1, partition=1).error_code and time.monotonic() < deadline:
        pass
    resource = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
        resource_type=2, resource_name=unique, configuration_keys=["retention.ms", "cleanup.policy"]
    )
    (described,) = wire.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[resource]).results
    assert {each.name: each.value for each in described.configs} == {
        "retention.ms": "-1",
        "cleanup.policy": "delete",
    }
    deleted = wire.call(ApiKey.DELETE_TOPICS, 0, topic_names=[unique], timeout_ms=5000)
    assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]


def test_describe_configs_v0_marks_defaults(broker: Broker, wire: Wire, topic: str) -> None:
    """In v0, Kafka 2.8.2 and 3.9.1 always return false."""
    resource = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=["retention.ms", "cleanup.policy"]
    )
    (described,) = wire.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[resource]).results
    assert {each.name: each.is_default for each in described.configs} == {
        "retention.ms": False,
        "cleanup.policy": True,
    }


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_return_the_end_of_a_leader_epoch(wire: Wire, topic: str, version: int) -> None:
    assert wire.produce(topic, batch(3)).error_code == ErrorCode.NONE
    epoch_topic = request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH).OffsetForLeaderTopic
    partition = epoch_topic.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    answer = wire.call(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[epoch_topic(topic=topic, partitions=[partition])]
    )
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.end_offset) == (ErrorCode.NONE, 3)


# Strangers


@pytest.mark.parametrize("api", sorted(APIS_WITH_OLD_VERSIONS))
def test_cut_old_request_closes_the_connection(broker: Broker, api: ApiKey) -> None:
    with Wire(broker.bootstrap) as wire:
        body = struct.pack(">hhih", api, 0, 7, 1) + b"x" + b"\0\1"
        wire.send_bytes(len(body).to_bytes(4) + body)
        frame = wire.receive_frame()
        # Those that need no more than this are answered.
        assert frame is None or api in (ApiKey.API_VERSIONS, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CLUSTER)


def test_slow_readers_do_not_delay_others(broker: Broker, wire: Wire, topic: str) -> None:
    for _ in range(4):
        assert wire.produce(topic, batch([b"x" * 900_000])).error_code == ErrorCode.NONE
    slow = [Wire(broker.bootstrap) for _ in range(20)]
    for each in slow:
        each.send_fetch([(topic, 0, 0)], version=2, partition_max_bytes=1 << 24)
    assert offsets(wire.fetch(topic, version=2).record_set, 1)[:1] == [0]
    for each in slow:
        each.close()
    deadline = time.monotonic() + PATIENCE_S
    while sum(f"shoal-broker-{broker.port}" in each.name for each in threading.enumerate()) > 3:
        assert time.monotonic() < deadline, "their threads are still there"
