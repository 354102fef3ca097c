"""Logins of clients, old and new, at a real Kafka through the gateway."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourceType
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from rig import Record, create_topic, read_topic, wait_until
from rig.locked import PASSWORDS, SHORT_SESSION_MS, LockedKafka, jaas
from rig.made_records import FIRST_TIMESTAMP
from rig.old_clients import OLD_CLIENTS, OldClientFailed
from shoal.client.config import ClientConfig
from shoal.gateway import Gateway, GatewaySettings

SECONDS = 60
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
RECORDS = [(0, Record(b"key", b"value %d" % number, (), FIRST_TIMESTAMP + number)) for number in range(20)]

#: The first has SaslHandshake v0 and tokens without headers, the second v1 (KIP-152), the third ends logins
#: (KIP-368).
JAVA = {each.name: each for each in OLD_CLIENTS if each.name in {"Java 0.10.2.2", "Java 1.0.2", "Java 2.8.2"}}


@pytest.fixture(scope="module")
def kafka(locked_cluster: LockedKafka) -> LockedKafka:
    return locked_cluster


@pytest.fixture(scope="module")
def passing(kafka: LockedKafka) -> Iterator[Gateway]:
    """A gateway without credentials, before the listener with SASL and TLS."""
    properties = {
        "bootstrap.servers": kafka.cluster.listener("SASLTLS"),
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.directory / "ca.pem"),
    }
    with Gateway(GatewaySettings("127.0.0.1", 0, upstream(properties), pass_through=True)) as running:
        yield running


@pytest.fixture(scope="module")
def passing_tokens(kafka: LockedKafka) -> Iterator[Gateway]:
    """A gateway without credentials, before the listener with OAUTHBEARER."""
    config = upstream({"bootstrap.servers": kafka.cluster.listener("OAUTH")})
    with Gateway(GatewaySettings("127.0.0.1", 0, config, pass_through=True)) as running:
        yield running


def upstream(properties: dict[str, str]) -> ClientConfig:
    return ClientConfig.from_properties("upstream", properties)[0]


def java_settings(mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, user, password),
    }


# SCRAM of clients before 1.0 runs only on Java 8 (KAFKA-4501).
@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("Java 0.10.2.2", "PLAIN"),
        pytest.param("Java 1.0.2", "SCRAM-SHA-512", marks=pytest.mark.long),
        ("Java 2.8.2", "SCRAM-SHA-256"),
    ],
)
def test_old_java_client_logs_in_writes_and_reads(
    kafka: LockedKafka, passing: Gateway, topic: str, name: str, mechanism: str
) -> None:
    client = JAVA[name]
    create_topic(kafka.cluster.bootstrap, topic)
    settings = java_settings(mechanism)
    address = str(passing.bootstrap)
    client.produce(address, topic, RECORDS, settings)
    read = client.read(address, topic, partitions=1, records=len(RECORDS), settings=settings)
    assert [each.value for each in read[0]] == [record.value for _, record in RECORDS]


def test_old_java_client_with_wrong_password_is_refused(passing: Gateway, topic: str) -> None:
    client = JAVA["Java 2.8.2"]
    settings = {**java_settings("SCRAM-SHA-512", password="wrong"), "max.block.ms": "10000"}
    with pytest.raises(OldClientFailed, match=r"SASL.*SCRAM-SHA-512"):
        client.produce(str(passing.bootstrap), topic, RECORDS[:1], settings)


def librdkafka(gateway: Gateway, mechanism: str, user: str = "alice") -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        login: dict[str, Any] = {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={user} lifeSeconds=3600",
        }
    else:
        login = {"sasl.username": user, "sasl.password": PASSWORDS[user]}
    return {
        "bootstrap.servers": str(gateway.bootstrap),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "log_level": 0,
        **login,
    }


def unsigned_token(user: str, life_s: int = 3600) -> str:
    """Return a token that Kafka accepts by default (RFC 7515, appendix A.5)."""
    claims = {"sub": user, "iat": int(time.time()), "exp": int(time.time()) + life_s}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()) for each in ({"alg": "none"}, claims)]
    return ".".join(each.rstrip(b"=").decode() for each in parts) + "."


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return unsigned_token("alice")


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_current_clients_log_in(
    kafka: LockedKafka, passing: Gateway, passing_tokens: Gateway, topic: str, mechanism: str
) -> None:
    create_topic(kafka.cluster.bootstrap, topic)
    has_token = mechanism == "OAUTHBEARER"
    gateway = passing_tokens if has_token else passing
    producer = Producer(librdkafka(gateway, mechanism))
    producer.produce(topic, b"of librdkafka")
    assert producer.flush(SECONDS) == 0
    login = {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS["alice"]}
    config: dict[str, Any] = {
        "bootstrap_servers": str(gateway.bootstrap),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **({"sasl_oauth_token_provider": Tokens()} if has_token else login),
    }
    with closing(KafkaProducer(**config)) as python:
        python.send(topic, b"of kafka-python").get(SECONDS)
    with closing(KafkaConsumer(topic, auto_offset_reset="earliest", **config)) as consumer:
        assert [next(consumer).value for _ in range(2)] == [b"of librdkafka", b"of kafka-python"]


def test_acls_apply_to_the_client_of_a_forwarded_login(
    kafka: LockedKafka, passing: Gateway, topic: str
) -> None:
    create_topic(kafka.cluster.bootstrap, topic)
    kafka.allow("bob", ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.DESCRIBE)
    for user, code in (("bob", KafkaError.TOPIC_AUTHORIZATION_FAILED), ("alice", None)):
        errors: list[int | None] = []
        producer = Producer(librdkafka(passing, "SCRAM-SHA-512", user))
        producer.produce(
            topic,
            b"value",
            on_delivery=lambda error, _, errors=errors: errors.append(error.code() if error else None),
        )
        assert producer.flush(SECONDS) == 0
        assert errors == [code]
    assert [each.value for each in read_topic(kafka.cluster.bootstrap, topic)[0]] == [b"value"]


def test_forwarded_login_is_renewed_by_its_client(kafka: LockedKafka, topic: str) -> None:
    create_topic(kafka.cluster.bootstrap, topic)
    config = upstream({"bootstrap.servers": kafka.cluster.listener("SHORT")})
    with Gateway(GatewaySettings("127.0.0.1", 0, config, pass_through=True)) as running:
        producer = Producer(librdkafka(running, "PLAIN"))
        consumer = Consumer(
            {**librdkafka(running, "PLAIN"), "group.id": topic, "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe([topic])
            deadline = time.monotonic() + 2 * SHORT_SESSION_MS / 1000
            sent = read = 0
            while time.monotonic() < deadline or read < sent:
                assert time.monotonic() < deadline + SECONDS
                if time.monotonic() < deadline:
                    producer.produce(topic, b"value")
                    assert producer.flush(SECONDS) == 0
                    sent += 1
                message = consumer.poll(0.5)
                if message is not None:
                    if message.error():
                        raise KafkaException(message.error())
                    read += 1
            assert read == sent > 10
        finally:
            consumer.close()


# The last one has the time in it: pytest's workers have to agree on a name.
@pytest.mark.parametrize(
    "token", ["no token", "", pytest.param(unsigned_token("alice", life_s=-3600), id="expired")]
)
def test_bad_token_is_refused(passing_tokens: Gateway, token: str) -> None:
    errors: list[KafkaError] = []
    config = librdkafka(passing_tokens, "OAUTHBEARER")
    del config["enable.sasl.oauthbearer.unsecure.jwt"]
    producer = Producer(
        {**config, "oauth_cb": lambda _: (token, time.time() + 3600), "error_cb": errors.append}
    )
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=1)

    def is_refused(client: Producer) -> bool:
        client.poll(0.1)
        return KafkaError._AUTHENTICATION in [each.code() for each in errors]

    wait_until(partial(is_refused, producer), "the refusal", SECONDS)
    told = " ".join(each.str() for each in errors)
    assert "OAUTHBEARER" in told or "invalid_token" in told
    del producer
    wait_until(lambda: passing_tokens.connections == 0, "a connection without a login is kept")
