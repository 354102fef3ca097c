"""
Clients that are not ours, told that the cluster is an old one: they then speak as they did to it.

confluent-kafka is librdkafka, in C, and checks every CRC here; it and kafka-python still have the old
versions. Both produce and consume through the gateway, and read records of new clients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from shoal.records import Codec
from tests.batches import batch
from tests.gateway.behind import Behind, append

CODECS = ["none", "gzip", "snappy", "lz4"]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
VALUES = [b"value %d " % number * 10 for number in range(600)]
SECONDS = 30


@pytest.fixture(autouse=True)
def _nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [
        each
        for each in caplog.get_records("call")
        if each.name == "shoal.gateway" and each.levelname == "ERROR"
    ] == []


def old_librdkafka(behind: Behind, version: str, **config: Any) -> dict[str, Any]:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return {
        "bootstrap.servers": behind.address(),
        "api.version.request": "false",
        "broker.version.fallback": version,
        "log_level": 0,
        "check.crcs": True,
        **named,
    }


def read_all(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        for message in consumer.consume(1000, timeout=0.5):
            if message.error():
                raise KafkaException(message.error())
            found.append(message.value())
    return found


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_librdkafka_in_old_versions_produces_and_consumes_each_codec(behind: Behind, version: str) -> None:
    topic = behind.new_topic(3)
    for codec in CODECS:
        producer = Producer(old_librdkafka(behind, version, compression_type=codec))
        for value in VALUES:
            producer.produce(topic, value, b"key")
        assert producer.flush(SECONDS) == 0
    consumer = Consumer(
        old_librdkafka(
            behind, version, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
        )
    )
    try:
        if version.startswith("0.8"):
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
        else:
            consumer.subscribe([topic])
        written = VALUES * len(CODECS)
        assert sorted(read_all(consumer, len(written))) == sorted(written)
        consumer.commit(asynchronous=False)
        # By key, all of them went to one partition.
        assert {
            each.offset
            for each in consumer.committed(
                [TopicPartition(topic, partition) for partition in range(3)], SECONDS
            )
        } & {len(written)}
    finally:
        consumer.close()


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_librdkafka_in_old_versions_reads_records_of_new_clients(
    behind: Behind, topic: str, version: str
) -> None:
    for codec in OLD_CODECS:
        for first in range(0, len(VALUES), 100):
            append(behind, topic, batch(VALUES[first : first + 100], codec=codec))
    consumer = Consumer(old_librdkafka(behind, version, group_id=topic, enable_auto_commit=False))
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        written = VALUES * len(OLD_CODECS)
        assert read_all(consumer, len(written)) == written
    finally:
        consumer.close()


def test_librdkafka_in_old_versions_fails_for_zstd(behind: Behind, topic: str) -> None:
    append(behind, topic, batch(3), batch(3, codec=Codec.ZSTD))
    consumer = Consumer(old_librdkafka(behind, "0.9.0.1", group_id=topic, enable_auto_commit=False))
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        with pytest.raises(KafkaException, match=r"[Uu]nsupported compression"):
            read_all(consumer, 4)
    finally:
        consumer.close()


@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1)])
def test_kafka_python_in_old_versions_produces_and_consumes_each_codec(
    behind: Behind, version: tuple[int, ...]
) -> None:
    topic = behind.new_topic(3)
    config: dict[str, Any] = {"bootstrap_servers": behind.address(), "api_version": version}
    for codec in (None, *CODECS[1:]):
        with closing(KafkaProducer(compression_type=codec, enable_idempotence=False, **config)) as producer:
            for value in VALUES:
                producer.send(topic, value, b"key")
            producer.flush(SECONDS)
    written = VALUES * len(CODECS)
    config |= {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(**config)) as consumer:
        if version < (0, 9):
            consumer.assign([PythonTopicPartition(topic, partition) for partition in range(3)])
        else:
            consumer.subscribe([topic])
        found: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < len(written):
            assert time.monotonic() < deadline, f"{len(found)} of {len(written)}"
            for records in consumer.poll(500).values():
                found += [each.value for each in records]
        assert sorted(found) == sorted(written)
        consumer.commit()
        committed = [consumer.committed(PythonTopicPartition(topic, partition)) for partition in range(3)]
        assert len(written) in committed
