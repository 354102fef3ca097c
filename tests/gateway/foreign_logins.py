"""Logins of other libraries' clients at a gateway, checked by it or by the cluster."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from tests.gateway.behind import Behind

__all__ = [
    "SECONDS",
    "USERS",
    "kafka_python_sends_and_reads",
    "librdkafka_is_told_of_a_wrong_password",
    "librdkafka_sends_and_reads",
]

USERS = {"alice": "alice=secret, 7c1e", "bob": "bob-secret"}
SECONDS = 30


def _locked(behind: Behind, mechanism: str, password: str = USERS["alice"]) -> dict[str, Any]:
    return {
        "bootstrap.servers": behind.address(),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "log_level": 0,
    }


def librdkafka_sends_and_reads(behind: Behind, mechanism: str, version: str) -> None:
    """Log in as librdkafka does, as of an old version of the brokers if one is given."""
    topic = behind.new_topic()
    config = _locked(behind, mechanism)
    if version:  # it then shakes hands in v0, and sends tokens without headers
        config |= {"api.version.request": "false", "broker.version.fallback": version}
    producer = Producer(config)
    producer.produce(topic, b"value")
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


def librdkafka_is_told_of_a_wrong_password(behind: Behind) -> None:
    """Log in with a wrong password, which an error of the client has to say."""
    errors: list[str] = []
    config = _locked(behind, "SCRAM-SHA-512", password="wrong")
    producer = Producer({**config, "error_cb": lambda error: errors.append(error.str())})
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=5)
    producer.poll(1)
    assert any("SCRAM-SHA-512" in each for each in errors)


def kafka_python_sends_and_reads(behind: Behind, mechanism: str) -> None:
    """Log in as kafka-python does."""
    topic = behind.new_topic()
    config: dict[str, Any] = {
        "bootstrap_servers": behind.address(),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
        "sasl_plain_password": USERS["bob"],
    }
    with closing(KafkaProducer(**config)) as producer:
        producer.send(topic, b"value").get(SECONDS)
    with closing(KafkaConsumer(topic, auto_offset_reset="earliest", **config)) as consumer:
        assert next(consumer).value == b"value"
