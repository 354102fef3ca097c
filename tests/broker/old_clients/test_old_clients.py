"""
Clients that are not ours, made to speak as they do to a broker of 0.8.2, 0.9 or 0.10.

librdkafka and kafka-python still support these versions, groups included. Each reads and writes beside the
same library as it speaks today.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import OFFSET_STORED, Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from shoal.records import Codec
from shoal_broker import Broker
from tests.batches import TRANSACTIONAL, batch, marker
from tests.broker.conftest import broker_of_kind

CODECS = ["none", "gzip", "snappy", "lz4"]
SECONDS = 30

Message = tuple[int, bytes | None, bytes | None]
SENT: list[tuple[bytes | None, bytes]] = [
    (None if number % 7 == 0 else b"key %d" % number, b"value %d " % number * (1 + number % 20))
    for number in range(300)
]


@pytest.fixture(scope="module")
def session_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_of_kind("files", tmp_path_factory, {"shoal.old.versions": "true"}) as running:
        yield running


@dataclass(frozen=True)
class Client:
    """
    A library that speaks as of a version.

    Attributes:
        name: For the tests' names.
        produce: Sends all of ``SENT``, from the broker's address, a topic and a codec.
        consume: Joins a group (as of 0.8.2, only commits as one), reads until
            it has so many, commits and leaves.

    """

    name: str
    produce: Callable[[str, str, str], None]
    consume: Callable[[str, str, str, int], list[Message]]

    def __str__(self) -> str:
        return self.name


def _confluent(name: str, *, joins: bool = True, **config: Any) -> Client:
    def produce(address: str, topic: str, codec: str) -> None:
        failed: list[object] = []

        def told(error: object, _: object) -> None:
            if error:
                failed.append(error)

        producer = Producer({"bootstrap.servers": address, "compression.codec": codec, **config})
        for key, value in SENT:
            producer.produce(topic, value, key, on_delivery=told)
        assert producer.flush(SECONDS) == 0
        assert failed == []

    def consume(address: str, topic: str, group: str, count: int) -> list[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                **config,
            }
        )
        if joins:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0, OFFSET_STORED)])
        found: list[Message] = []
        deadline = time.monotonic() + SECONDS
        try:
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count}"
                message = consumer.poll(0.1)
                if message is not None:
                    assert message.error() is None
                    found.append((message.offset(), message.key(), message.value()))
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return found

    return Client(name, produce, consume)


def _kafka_python(name: str, **config: Any) -> Client:
    def produce(address: str, topic: str, codec: str) -> None:
        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=address, compression_type=compression, **config)
        try:
            sent = [producer.send(topic, value, key=key) for key, value in SENT]
            assert [each.get(SECONDS).offset for each in sent] == list(range(len(SENT)))
        finally:
            producer.close()

    def consume(address: str, topic: str, group: str, count: int) -> list[Message]:
        options = {key: value for key, value in config.items() if key == "api_version"}
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=SECONDS * 1000,
            **options,
        )
        found: list[Message] = []
        try:
            for message in consumer:
                found.append((message.offset, message.key, message.value))
                if len(found) == count:
                    break
            consumer.commit()
        finally:
            consumer.close()
        return found

    return Client(name, produce, consume)


def _as_of(version: str) -> dict[str, Any]:
    return {"api.version.request": False, "broker.version.fallback": version, "log_level": 3}


CONFLUENT = _confluent("librdkafka")
OLD_CLIENTS = [
    _confluent("librdkafka as of 0.8.2", joins=False, **_as_of("0.8.2")),
    _confluent("librdkafka as of 0.9", **_as_of("0.9.0")),
    *(
        _kafka_python(f"kafka-python as of {name}", api_version=version, enable_idempotence=False)
        for name, version in (
            ("0.8.2", (0, 8, 2)),
            ("0.9", (0, 9)),
            ("0.10", (0, 10)),
            ("0.10.1", (0, 10, 1)),
        )
    ),
]

EXPECTED = [(offset, key, value) for offset, (key, value) in enumerate(SENT)]


@pytest.mark.parametrize("client", OLD_CLIENTS, ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_old_clients_are_read_by_old_and_new_clients(
    broker_address: str, topic: str, unique: str, client: Client, codec: str
) -> None:
    client.produce(broker_address, topic, codec)
    assert client.consume(broker_address, topic, unique, len(SENT)) == EXPECTED
    assert CONFLUENT.consume(broker_address, topic, f"{unique}-today", len(SENT)) == EXPECTED


@pytest.mark.parametrize("client", OLD_CLIENTS, ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_new_clients_are_read_by_old_clients(
    broker_address: str, topic: str, unique: str, client: Client, codec: str
) -> None:
    CONFLUENT.produce(broker_address, topic, codec)
    assert client.consume(broker_address, topic, unique, len(SENT)) == EXPECTED


@pytest.mark.parametrize("client", OLD_CLIENTS, ids=str)
def test_group_continues_at_its_committed_offset(
    broker_address: str, topic: str, unique: str, client: Client
) -> None:
    CONFLUENT.produce(broker_address, topic, "none")
    assert client.consume(broker_address, topic, unique, 100) == EXPECTED[:100]
    found = client.consume(broker_address, topic, unique, 100)
    assert [offset for offset, _, _ in found] == list(range(found[0][0], found[0][0] + 100))
    # Records that were fetched and not returned may count as read.
    assert found[0][0] == 100


@pytest.mark.parametrize("client", OLD_CLIENTS, ids=str)
def test_committed_transactions_are_read_by_old_clients(
    broker: Broker, broker_address: str, topic: str, unique: str, client: Client
) -> None:
    """Markers and aborted records are left out; a client that begins at a marker gets past it."""
    log = broker.log(topic)
    for producer_id, kind in enumerate([0, 1, 0, 0, 1]):
        log.store(
            batch(
                2,
                base_offset=3 * producer_id,
                codec=Codec.GZIP,
                flags=TRANSACTIONAL,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            + marker(kind, producer_id, base_offset=3 * producer_id + 2)
        )
    log.store(batch(1, base_offset=15))
    found = client.consume(broker_address, topic, unique, 5)
    assert [offset for offset, _, _ in found] == [3, 4, 12, 13, 15]
