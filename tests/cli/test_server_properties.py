"""A broker's server.properties, as far as the embedded broker has a use for it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from javaproperties import loads

from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal_broker.cli.server_properties import ServerProperties, read_server_properties
from shoal_broker.config import BROKER_SETTINGS
from tests.broker.wire import Wire

#: Kafka 4.1.0's config/server.properties, without its comments.
SHIPPED = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def read(text: str) -> ServerProperties:
    return read_server_properties(Path("server.properties"), loads(text), known=BROKER_SETTINGS)


def test_file_shipped_with_kafka_is_read() -> None:
    found = read(SHIPPED)
    assert (found.listen, found.data, found.node_id) == (
        "127.0.0.1:9092",
        Path("/tmp/kraft-combined-logs"),
        1,
    )
    assert found.settings == {
        "socket.request.max.bytes": "104857600",
        "num.partitions": "1",
        "log.retention.ms": "604800000",
        "log.segment.bytes": "1073741824",
        "log.retention.check.interval.ms": "300000",
    }
    assert {"process.roles", "num.io.threads", "advertised.listeners"} <= set(found.ignored)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("log.retention.hours=2", "7200000"),
        ("log.retention.hours=2\nlog.retention.minutes=3", "180000"),
        ("log.retention.minutes=3\nlog.retention.ms=4", "4"),
        ("log.retention.hours=-1", "-1"),
    ],
)
def test_finest_unit_of_a_time_counts(text: str, milliseconds: str) -> None:
    assert read(text).settings == {"log.retention.ms": milliseconds}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listeners=SSL://:9092", "supports PLAINTEXT only"),
        ("log.dirs=/one,/two", "one directory"),
        ("node.id=one", "not the id"),
        ("log.retention.hours=long", "not a whole number"),
        ("listeners=PLAINTEXT://localhost", "the listener 'PLAINTEXT://localhost' has no port"),
        ("node.id=99999999999", "'99999999999' is not the id of a node"),
    ],
)
def test_unsupported_setting_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(text)


@contextmanager
def running(*options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "shoal_broker", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["bootstrap"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_broker_reads_a_file_and_later_options_override_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"listeners=PLAINTEXT://localhost:0\nlog.dirs={tmp_path / 'data'}\nnum.partitions=3\nnode.id=7\n"
        "message.max.bytes=1000\n"
    )
    for _ in range(2):
        with (
            running("--config", str(file), "--config", "message.max.bytes=2000") as address,
            Wire(address) as wire,
        ):
            response = wire.call(ApiKey.METADATA, 12, topics=[_topic("new")], allow_auto_topic_creation=True)
            assert [broker.node_id for broker in response.brokers] == [7]
            assert (response.topics[0].error_code, len(response.topics[0].partitions)) == (ErrorCode.NONE, 3)
            resource = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
                resource_type=4, resource_name="7", configuration_keys=["message.max.bytes"]
            )
            described = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
            assert described.results[0].configs[0].value == "2000"
    assert (tmp_path / "data" / "new-2").is_dir()


def test_auto_create_topics_disabled_in_the_file_creates_none(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("auto.create.topics.enable = false\n")
    with running("--listen", "127.0.0.1:0", "--config", str(file)) as address, Wire(address) as wire:
        response = wire.call(ApiKey.METADATA, 12, topics=[_topic("new")], allow_auto_topic_creation=True)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(name: str) -> object:
    return request_class(ApiKey.METADATA).MetadataRequestTopic(name=name)
