"""The raw consumer and producer against real Kafka, in groups with Java's console consumer."""

from __future__ import annotations

import subprocess

import pytest

from rig import CODECS, KafkaCluster, create_topic, read_topic
from rig.jars import tool_command
from shoal import RawProducer

pytestmark = pytest.mark.timeout(300)

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


def test_records_of_the_producer_are_read_by_java(source_cluster: KafkaCluster, topic: str) -> None:
    bootstrap = source_cluster.bootstrap
    create_topic(bootstrap, topic, 3)
    for codec in CODECS:
        with RawProducer({"bootstrap.servers": bootstrap, "compression.type": codec}) as producer:
            for number in range(100):
                text = f"{codec} {number}".encode()
                producer.send(topic, b"value " + text, key=b"key " + text, headers={"h": b"x", "n": None})
    arguments = tool_command(CONSOLE_CONSUMER)
    arguments += ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
    arguments += ["--max-messages", "500"]
    for shown in ("key", "headers", "partition"):
        arguments += ["--formatter-property", f"print.{shown}=true"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert sorted(line[3] for line in lines) == sorted(
        f"value {codec} {number}" for codec in CODECS for number in range(100)
    )
    assert {line[1] for line in lines} == {"h:x,n:null"}
    assert all(line[2] == line[3].replace("value", "key") for line in lines)


def test_keys_have_the_partitions_of_java_s_producer(source_cluster: KafkaCluster, topic: str) -> None:
    bootstrap = source_cluster.bootstrap
    keys = [f"key {number} \N{SNOWMAN}" * (number % 5 + 1) for number in range(200)]
    for name in (f"{topic}-java", f"{topic}-ours"):
        create_topic(bootstrap, name, 7)
    arguments = tool_command(CONSOLE_PRODUCER)
    arguments += ["--bootstrap-server", bootstrap, "--topic", f"{topic}-java"]
    arguments += ["--reader-property", "parse.key=true"]
    lines = "".join(f"{key}\tvalue\n" for key in keys)
    subprocess.run(arguments, input=lines, text=True, timeout=120, check=True, capture_output=True)
    with RawProducer({"bootstrap.servers": bootstrap}) as producer:
        for key in keys:
            producer.send(f"{topic}-ours", b"value", key=key.encode())

    def partitions(name: str) -> dict[int, list[bytes]]:
        read = read_topic(bootstrap, name)
        return {partition: sorted(each.key or b"" for each in records) for partition, records in read.items()}

    assert partitions(f"{topic}-ours") == partitions(f"{topic}-java")
