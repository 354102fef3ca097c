"""The bound on partitions that a running mirror adds: clusters in, partitions and messages out."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rig.shoal import Shoal
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.integration.shared_spark import shoal
from tests.world.clusters import TwoBrokers
from tests.world.history import History
from tests.world.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def partitions(broker: Broker, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).topics.get(topic)
    return len(found.partitions) if found else 0


def grow(broker: Broker, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(20)


def create(broker: Broker, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, count, 1)])[topic].result(20)


def test_running_mirror_adds_no_more_partitions_than_allowed(brokers: TwoBrokers, tmp_path: Path) -> None:
    source, destination = brokers.source, brokers.destination
    create(source, "orders", 2)
    History(source.log("orders")).plain(1)
    command = [
        *("--from", source.bootstrap, "--to", destination.bootstrap, "--topics", r"orders.*"),
        *("--group", "g", "--master", "local[1]"),
    ]
    limited = [*command, "--refresh", "1", "--max-new-partitions", "3"]
    with Shoal("mirror", "--json", *limited, state=tmp_path) as mirror:
        mirror.wait_for(lambda line: line["type"] == "progress" and line["states"].get("up to date") == 2)
        grow(source, "orders", 4)
        wait_until(lambda: partitions(destination, "orders") == 4, 60)

        create(source, "orders-late", 4)
        line = mirror.wait_for(lambda line: bool(line["incidents"]), 60)
        assert [each["kind"] for each in line["incidents"]] == ["new-partitions"]

        # The mirror continues with its partitions.
        History(source.log("orders")).plain(1)
        wait_until(lambda: destination.log("orders").log_end_offset == 2, 60)
        assert (partitions(destination, "orders"), partitions(destination, "orders-late")) == (4, 0)
        mirror.send_signal(signal.SIGTERM)
        summary = mirror.wait()
        assert mirror.exit_code == 4
    assert summary["stopped"] == {}
    assert mirror.stderr.count("--max-new-partitions") == 1
    assert re.search(r"\b3\b.*\b30\b.*\b28\b", mirror.stderr)

    # A start adds what it lists.
    assert shoal("mirror", *command, "--once", state=tmp_path).returncode == 0
    assert (partitions(destination, "orders"), partitions(destination, "orders-late")) == (4, 4)


@pytest.mark.long
def test_topic_that_the_destination_refuses_takes_no_room_from_later_ones(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    source, destination = brokers.source, brokers.destination
    create(source, "orders", 1)
    refused = destination.faults.add(
        ApiKey.CREATE_TOPICS, times=None, error=ErrorCode.POLICY_VIOLATION, topic="orders-refused"
    )
    command = [
        *("--from", source.bootstrap, "--to", destination.bootstrap, "--topics", r"orders.*"),
        *("--group", "g", "--master", "local[1]", "--refresh", "1", "--max-new-partitions", "3"),
    ]
    with Shoal("mirror", "--json", *command, state=tmp_path) as mirror:
        mirror.wait_for(lambda line: line["type"] == "progress" and line["states"].get("up to date") == 1)
        create(source, "orders-refused", 3)
        assert destination.faults.wait_for(refused, 2, 60)
        create(source, "orders-late", 3)
        wait_until(lambda: partitions(destination, "orders-late") == 3, 60)
        destination.faults.clear()
        wait_until(lambda: partitions(destination, "orders-refused") == 3, 60)
        mirror.send_signal(signal.SIGTERM)
        mirror.wait()
    assert "--max-new-partitions" not in mirror.stderr
