"""Clients that are not ours, on the embedded broker: they neither share its code nor its mistakes."""

import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from shoal.broker import Broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"topic-{uuid.uuid4()}"
    broker.create_topic(name, 2)
    return name


def consume(address: str, topic: str, partition: int, count: int, **config: object) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "check.crcs": True, **config})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), timeout=10)
        assert messages, f"only {len(values)} of {count} records came"
        for message in messages:
            assert message.error() is None
            values.append(message.value())
    consumer.close()
    return values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_kafka_consumes_what_it_produced_idempotently(
    broker_address: str, topic: str, codec: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": broker_address, "enable.idempotence": True, "compression.type": codec}
    )
    values = [f"value {number}".encode() * 10 for number in range(1000)]
    for value in values:
        producer.produce(topic, value, partition=1)
    assert producer.flush(30) == 0
    assert consume(broker_address, topic, 1, len(values)) == values
