"""The gateway before three real brokers of Kafka that require TLS and a password."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from rig import wait_until
from rig.jars import tool_command
from rig.load import Codec as CodecName
from rig.load import create_topic
from rig.locked import SHORT_SESSION_MS, LockedKafka, jaas, locked_kafka
from rig.read import read_topic
from rig.shoal import Shoal
from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.errors import AccessRefused
from shoal.gateway import Gateway, GatewaySettings
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from tests.broker.wire import Wire

OLD_CODECS: Sequence[CodecName] = ("none", "gzip", "snappy", "lz4")
VALUES = [b"value %d " % number * 10 for number in range(2_000)]
SECONDS = 60

Connect = Callable[[str], Wire]


@pytest.fixture(scope="module")
def kafka() -> Iterator[LockedKafka]:
    with locked_kafka(brokers=3) as running:
        yield running


def properties(kafka: LockedKafka, listener: str = "SASLTLS", password: str | None = None) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.cluster.listener(listener),
        "security.protocol": "SASL_SSL" if listener == "SASLTLS" else "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512" if listener == "SASLTLS" else "PLAIN",
        "sasl.jaas.config": jaas("SCRAM-SHA-512" if listener == "SASLTLS" else "PLAIN", "alice", password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.directory / "ca.pem"),
    }


def settings(upstream: dict[str, str], **changed: Any) -> GatewaySettings:
    return GatewaySettings("127.0.0.1", 0, ClientConfig.from_properties("upstream", upstream)[0], **changed)


@pytest.fixture(scope="module")
def gateway(kafka: LockedKafka) -> Iterator[Gateway]:
    with Gateway(settings(properties(kafka))) as running:
        yield running


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda address: stack.enter_context(Wire(address))


def leader_of(gateway: Gateway, topic: str, partition: int = 0) -> int:
    """Wait for a leader, and return it as the gateway reports it to a client of 0.9."""
    found = [-1]

    def known() -> bool:
        with Wire(str(gateway.bootstrap)) as wire:
            wanted = request_class(ApiKey.METADATA).MetadataRequestTopic(name=topic)
            answer = wire.call(ApiKey.METADATA, 0, topics=[wanted])
        leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        found[0] = leaders.get(partition, -1)
        return found[0] in {each.node_id for each in answer.brokers}

    wait_until(known, f"a leader of {topic}", SECONDS)
    return found[0]


def at_leader(gateway: Gateway, topic: str, partition: int = 0) -> str:
    return str(gateway.brokers[leader_of(gateway, topic, partition)])


def old_librdkafka(gateway: Gateway, version: str, **config: Any) -> dict[str, Any]:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return {
        "bootstrap.servers": str(gateway.bootstrap),
        "api.version.request": "false",
        "broker.version.fallback": version,
        "log_level": 0,
        "check.crcs": True,
        **named,
    }


def consumed(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        for each in consumer.consume(1000, timeout=0.5):
            if each.error():
                raise KafkaException(each.error())
            found.append(each.value())
    return found


@pytest.mark.parametrize(
    ("version", "codec"), [("0.8.2.2", "gzip"), *(("0.9.0.1", codec) for codec in OLD_CODECS)]
)
def test_librdkafka_in_old_versions_produces_and_consumes(
    kafka: LockedKafka, gateway: Gateway, topic: str, version: str, codec: str
) -> None:
    create_topic(kafka.cluster.bootstrap, topic, 3, 3)
    producer = Producer(old_librdkafka(gateway, version, compression_type=codec))
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, b"key %d" % number)
    assert producer.flush(SECONDS) == 0
    stored = read_topic(kafka.cluster.bootstrap, topic)
    assert sorted(each.value or b"" for of in stored.values() for each in of) == sorted(VALUES)
    consumer = Consumer(
        old_librdkafka(
            gateway, version, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
        )
    )
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(3)]
        if version.startswith("0.8"):
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
        else:
            consumer.subscribe([topic])
        assert sorted(consumed(consumer, len(VALUES))) == sorted(VALUES)
        consumer.commit(asynchronous=False)
        assert sum(each.offset for each in consumer.committed(partitions, SECONDS)) == len(VALUES)
    finally:
        consumer.close()


# Requests that Kafka 4.1 refuses, on raw sockets


# Requests that pass through


def run(tool: str, *options: str, stdin: str = "") -> str:
    """Run one of Kafka's tools, which must succeed; return its standard output."""
    command = [*tool_command(f"org.apache.kafka.tools.{tool}"), *options]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{tool} {options}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_kafka_s_tools_work_through_the_gateway(kafka: LockedKafka, gateway: Gateway, topic: str) -> None:
    create_topic(kafka.cluster.bootstrap, topic, 1, 3)
    at = ("--bootstrap-server", str(gateway.bootstrap))
    run("ConsoleProducer", *at, "--topic", topic, stdin="".join(f"line {number}\n" for number in range(100)))
    of_topic = ("--topic", topic, "--from-beginning")
    read = run("consumer.ConsoleConsumer", *at, *of_topic, "--max-messages", "100", "--group", topic)
    assert read.splitlines() == [f"line {number}" for number in range(100)]
    versions = run("BrokerApiVersionsCommand", *at)
    assert "Produce(0): 0 to 9" in versions
    assert all(
        f"127.0.0.1:{address.port} (id: {node}" in versions for node, address in gateway.brokers.items()
    )


# Brokers that stop, and logins that end


@pytest.mark.parametrize("way", ["kill", pytest.param("stop", marks=pytest.mark.long)])
def test_old_client_survives_the_end_of_its_leader(
    kafka: LockedKafka, gateway: Gateway, topic: str, way: str
) -> None:
    create_topic(kafka.cluster.bootstrap, topic, 1, 3, {"min.insync.replicas": "1"})
    config = old_librdkafka(gateway, "0.9.0.1", metadata_request_timeout_ms=5_000)
    producer = Producer({**config, "acks": -1, "retries": 1000, "retry.backoff.ms": 100})
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    leader = leader_of(gateway, topic)
    try:
        consumer.subscribe([topic])
        for value in VALUES[:500]:
            producer.produce(topic, value)
        assert producer.flush(SECONDS) == 0
        assert consumed(consumer, 500) == VALUES[:500]
        getattr(kafka.cluster, way)(leader)
        for value in VALUES[500:]:
            producer.produce(topic, value)
        assert producer.flush(SECONDS) == 0
        # A producer of that age has no sequence numbers: if it sends a batch again, the log may have it
        # twice. And if the group had to find another coordinator, the consumer may begin again at its last
        # commit.
        found: set[bytes] = set()
        deadline = time.monotonic() + SECONDS
        while not found >= set(VALUES[500:]):
            assert time.monotonic() < deadline
            found |= {each.value() for each in consumer.consume(1000, timeout=0.5) if not each.error()}
        assert found <= set(VALUES)
        assert leader_of(gateway, topic) != leader
    finally:
        consumer.close()
        kafka.cluster.start(leader)
    wait_until(lambda: _leads_again(gateway, leader), "the broker is back", SECONDS)


def _leads_again(gateway: Gateway, node_id: int) -> bool:
    try:
        with Wire(str(gateway.brokers[node_id])) as wire:
            wire.send(ApiKey.METADATA, 1, topics=[])
            return wire.receive_frame() is not None
    except OSError:
        return False  # the gateway disconnected


def test_login_of_a_connected_client_is_renewed(kafka: LockedKafka, connect: Connect, topic: str) -> None:
    create_topic(kafka.cluster.bootstrap, topic)
    with Gateway(settings(properties(kafka, "SHORT"))) as gateway:
        wire = connect(at_leader(gateway, topic))
        deadline = time.monotonic() + 2 * SHORT_SESSION_MS / 1000
        while time.monotonic() < deadline:
            assert wire.fetch(topic, version=1, min_bytes=1, max_wait_ms=500).error_code == ErrorCode.NONE
            assert wire.fetch(topic, version=11, min_bytes=1, max_wait_ms=500).error_code == ErrorCode.NONE


# The command line


def test_gateway_command_serves_a_locked_cluster(kafka: LockedKafka, topic: str, tmp_path: Path) -> None:
    create_topic(kafka.cluster.bootstrap, topic)
    with _command(kafka, tmp_path).serving() as process:
        producer = Producer(
            {
                "bootstrap.servers": process.address,
                "api.version.request": "false",
                "broker.version.fallback": "0.9.0.1",
                "log_level": 0,
            }
        )
        producer.produce(topic, b"by the command")
        assert producer.flush(SECONDS) == 0
    assert [each.value for each in read_topic(kafka.cluster.bootstrap, topic)[0]] == [b"by the command"]


def test_wrong_password_is_one_sentence(kafka: LockedKafka, tmp_path: Path) -> None:
    with pytest.raises(AccessRefused, match=r"'alice'.*SCRAM-SHA-512"):
        Gateway(settings(properties(kafka, password="wrong"))).start()
    with _command(kafka, tmp_path, password="wrong") as process:
        process.wait(SECONDS)
    assert process.exit_code == 2
    assert process.stderr.count("\n") == 1
    assert "wrong" not in process.stderr


def _command(kafka: LockedKafka, directory: Path, password: str | None = None) -> Shoal:
    file = directory / "upstream.properties"
    lines = [f"{key}={value}" for key, value in properties(kafka, password=password).items()]
    file.write_text("\n".join(lines).replace("\\", "\\\\"))
    file.chmod(0o600)
    return Shoal("gateway", "--listen", "127.0.0.1:0", "--upstream-config", str(file))
