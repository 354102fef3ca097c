"""
Clients that are not ours, which share neither code nor mistakes with the embedded broker.

confluent-kafka is librdkafka, in C, and checks every CRC here.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as TopicToCreate

from tests.broker.new_topic import NewTopic
from tests.world.waiting import wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"value %d " % number * 10 for number in range(300)]
SECONDS = 30


# confluent-kafka


def confluent_producer(address: str, **config: object) -> Producer:
    return Producer({"bootstrap.servers": address, **{k.replace("_", "."): v for k, v in config.items()}})


def confluent_consume(address: str, topic: str, partition: int, **config: object) -> list[Any]:
    """Read a partition to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "check.crcs": True,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages: list[Any] = []
    while True:
        message = consumer.poll(SECONDS)
        assert message is not None, f"only {len(messages)} records came"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return messages
        messages.append(message)


def test_confluent_kafka_consumes_its_idempotent_records(broker_address: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    for codec in CODECS:
        producer = confluent_producer(broker_address, enable_idempotence=True, compression_type=codec)
        for number, value in enumerate(VALUES):
            producer.produce(
                topic,
                value,
                b"key %d" % number,
                partition=1,
                headers=[("h", b"1")],
                timestamp=10**12 + number,
            )
        assert producer.flush(SECONDS) == 0
    messages = confluent_consume(broker_address, topic, 1)
    assert [message.value() for message in messages] == VALUES * len(CODECS)
    assert [message.offset() for message in messages] == list(range(len(VALUES) * len(CODECS)))
    assert messages[7].key() == b"key 7"
    assert messages[7].headers() == [("h", b"1")]
    assert messages[7].timestamp() == (1, 10**12 + 7)


def test_confluent_kafka_reads_only_committed_transactions(
    broker_address: str, topic: str, unique: str
) -> None:
    producer = confluent_producer(broker_address, transactional_id=unique)
    producer.init_transactions(SECONDS)
    for number in range(4):
        producer.begin_transaction()
        for value in range(10):
            producer.produce(topic, b"%d %d" % (number, value))
        producer.flush(SECONDS)
        if number % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    committed = [b"%d %d" % (number, value) for number in (0, 2) for value in range(10)]
    read = confluent_consume(broker_address, topic, 0, isolation_level="read_committed")
    assert [message.value() for message in read] == committed
    everything = confluent_consume(broker_address, topic, 0, isolation_level="read_uncommitted")
    assert len(everything) == 40


def test_fenced_confluent_producer_raises(broker_address: str, topic: str, unique: str) -> None:
    old = confluent_producer(broker_address, transactional_id=unique)
    old.init_transactions(SECONDS)
    old.begin_transaction()
    old.produce(topic, b"lost")
    old.flush(SECONDS)
    new = confluent_producer(broker_address, transactional_id=unique)
    new.init_transactions(SECONDS)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(SECONDS)
    assert fenced.value.args[0].fatal()
    assert confluent_consume(broker_address, topic, 0, isolation_level="read_committed") == []


def test_two_confluent_consumers_share_a_topic_and_commit(
    broker_address: str, new_topic: NewTopic, unique: str
) -> None:
    topic = new_topic(4)
    producer = confluent_producer(broker_address)
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, partition=number % 4)
    assert producer.flush(SECONDS) == 0
    config = {
        "bootstrap.servers": broker_address,
        "group.id": unique,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 200,
    }
    consumers = [Consumer(config) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe([topic])
    while {len(consumer.assignment()) for consumer in consumers} != {2}:
        for consumer in consumers:
            consumer.poll(0.1)
    for consumer in consumers:
        consumer.commit(
            offsets=[TopicPartition(topic, each.partition, 50) for each in consumer.assignment()],
            asynchronous=False,
        )
    for consumer in consumers:  # the first that leaves makes the other rejoin
        consumer.close()
    after = Consumer(config)
    wanted = [TopicPartition(topic, partition) for partition in range(4)]
    assert [each.offset for each in after.committed(wanted, SECONDS)] == [50] * 4
    after.close()


@pytest.mark.administrators
def test_confluent_kafka_s_admin_client_manages_topics(broker_address: str, unique: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker_address})
    admin.create_topics([TopicToCreate(unique, 2, 1, config={"retention.ms": "-1"})])[unique].result(SECONDS)
    admin.create_partitions([NewPartitions(unique, 3)])[unique].result(SECONDS)
    # librdkafka sends bytes after the end of this request, when it asks for all topics. A real broker learns
    # of the partition a moment after the controller's answer.
    wait_until(lambda: len(admin.list_topics(timeout=SECONDS).topics[unique].partitions) == 3)
    resource = ConfigResource(
        ResourceType.TOPIC,
        unique,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, unique)])
    (settings,) = (future.result(SECONDS) for future in described.values())
    assert settings["retention.ms"].value == "-1"
    assert settings["cleanup.policy"].value == "delete"
    admin.delete_topics([unique])[unique].result(SECONDS)
    with pytest.raises(KafkaException):
        admin.delete_topics([unique])[unique].result(SECONDS)


def test_confluent_kafka_s_admin_client_describes_groups(
    broker_address: str, topic: str, unique: str
) -> None:
    consumer = Consumer({"bootstrap.servers": broker_address, "group.id": unique, "group.instance.id": "one"})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    admin = AdminClient({"bootstrap.servers": broker_address})
    described = admin.describe_consumer_groups([unique])[unique].result(SECONDS)
    assert described.state.name == "STABLE"
    assert [member.group_instance_id for member in described.members] == ["one"]
    assert unique in {group.group_id for group in admin.list_consumer_groups().result(SECONDS).valid}
    consumer.close()


# kafka-python; the other codecs would need further packages


# aiokafka
