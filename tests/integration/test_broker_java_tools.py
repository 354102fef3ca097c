"""Kafka's own command-line tools on the embedded broker."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.jars import tool_command
from shoal_broker import Broker

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINES = [f"line {number}" for number in range(200)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"auto.create.topics.enable": "true"}) as running:
        yield running


def run(tool: str, *options: str, stdin: str = "") -> str:
    """Run a tool, which must succeed; return its standard output."""
    done = subprocess.run(
        [*tool_command(tool), *options],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{tool} {options}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_console_consumer_reads_records_of_the_console_producer(broker: Broker) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    for codec in CODECS:
        of_codec = "".join(f"{codec} {line}\n" for line in LINES)
        run(PRODUCER, *at, "--topic", "lines", "--compression-codec", codec, stdin=of_codec)
    options = ("--from-beginning", "--max-messages", str(len(CODECS) * len(LINES)), "--group", "readers")
    read = run(CONSUMER, *at, "--topic", "lines", *options)
    assert read.splitlines() == [f"{codec} {line}" for codec in CODECS for line in LINES]
    described = run(GROUPS, *at, "--describe", "--group", "readers")
    assert re.search(r"readers\s+lines\s+0\s+1000\s+1000\s+0", described), described


def test_topics_are_created_described_grown_and_deleted(broker: Broker) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    run(TOPICS, *at, "--create", "--topic", "orders", "--partitions", "2", "--config", "retention.ms=1000")
    run(TOPICS, *at, "--alter", "--topic", "orders", "--partitions", "3")
    described = run(TOPICS, *at, "--describe", "--topic", "orders")
    assert "PartitionCount: 3" in described
    assert "retention.ms=1000" in described
    assert run(TOPICS, *at, "--list").split() == ["orders"]
    run(TOPICS, *at, "--delete", "--topic", "orders")
    assert run(TOPICS, *at, "--list").split() == []


@pytest.mark.long
def test_settings_are_altered_and_described(broker: Broker) -> None:
    broker.create_topic("orders")
    at = ("--bootstrap-server", broker.bootstrap)
    topic = ("--entity-type", "topics", "--entity-name", "orders")
    run(CONFIGS, *at, *topic, "--alter", "--add-config", "max.message.bytes=2000,cleanup.policy=compact")
    run(CONFIGS, *at, *topic, "--alter", "--delete-config", "cleanup.policy")
    described = run(CONFIGS, *at, *topic, "--describe")
    assert "max.message.bytes=2000" in described
    assert "cleanup.policy" not in described


def test_groups_are_listed_reset_and_deleted(broker: Broker) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    run(PRODUCER, *at, "--topic", "lines", stdin="\n".join(LINES) + "\n")
    run(CONSUMER, *at, "--topic", "lines", "--from-beginning", "--max-messages", "10", "--group", "readers")
    assert run(GROUPS, *at, "--list").split() == ["readers"]
    run(
        GROUPS,
        *at,
        "--group",
        "readers",
        "--topic",
        "lines",
        "--reset-offsets",
        "--to-offset",
        "150",
        "--execute",
    )
    rest = run(CONSUMER, *at, "--topic", "lines", "--max-messages", "50", "--group", "readers")
    assert rest.splitlines() == LINES[150:]
    assert "Empty" in run(GROUPS, *at, "--describe", "--group", "readers", "--state")
    run(GROUPS, *at, "--delete-offsets", "--group", "readers", "--topic", "lines")
    run(GROUPS, *at, "--delete", "--group", "readers")
    assert run(GROUPS, *at, "--list").split() == []


@pytest.mark.long
def test_records_are_deleted_and_offsets_listed(broker: Broker, tmp_path: Path) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    run(PRODUCER, *at, "--topic", "lines", stdin="\n".join(LINES) + "\n")
    wanted = tmp_path / "delete.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": "lines", "partition": 0, "offset": 120}], "version": 1})
    )
    assert "low_watermark: 120" in run(DELETE_RECORDS, *at, "--offset-json-file", str(wanted))
    assert run(OFFSETS, *at, "--topic", "lines", "--time", "earliest").strip() == "lines:0:120"
    assert run(OFFSETS, *at, "--topic", "lines", "--time", "latest").strip() == "lines:0:200"


@pytest.mark.long
def test_performance_tools_run(broker: Broker) -> None:
    broker.create_topic("load", 3)
    properties = (f"bootstrap.servers={broker.bootstrap}", "acks=all", "compression.type=lz4", "linger.ms=5")
    said = run(
        PRODUCER_PERFORMANCE,
        *("--topic", "load", "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", *properties),
    )
    assert "20000 records sent" in said
    read = run(
        CONSUMER_PERFORMANCE,
        *("--bootstrap-server", broker.bootstrap, "--topic", "load", "--messages", "20000"),
        *("--timeout", "30000"),
    )
    assert ", 20000, " in read


@pytest.mark.long
def test_producers_in_a_partition_are_described(broker: Broker) -> None:
    broker.create_topic("load")
    at = ("--bootstrap-server", broker.bootstrap)
    run(
        PRODUCER_PERFORMANCE,
        *("--topic", "load", "--num-records", "100", "--record-size", "10", "--throughput", "-1"),
        *("--transactional-id", "mine", "--transaction-duration-ms", "1000"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    described = run(TRANSACTIONS, *at, "describe-producers", "--topic", "load", "--partition", "0")
    assert re.search(r"^1000\s+0\s", described, re.MULTILINE), described


@pytest.mark.long
def test_api_versions_tool_lists_the_versions(broker: Broker) -> None:
    said = run(VERSIONS, "--bootstrap-server", broker.bootstrap)
    assert "Produce(0): 0 to 13 [usable: 13]" in said
    assert "Fetch(1): 4 to 13 [usable: 13]" in said
