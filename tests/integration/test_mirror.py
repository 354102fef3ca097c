"""``shoal mirror`` between two real Kafka clusters, checked by another project's client."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition

from rig import KafkaCluster
from rig.load import load_batch, load_every_kind, load_plain
from rig.made_records import random_records
from rig.read import assert_same_records, digest_topic, read_topic
from rig.shoal import Shoal
from tests.integration.shared_spark import shoal

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def between(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> list[str]:
    return ["--from", source_cluster.bootstrap, "--to", destination_cluster.bootstrap]


def test_every_kind_of_batch_is_mirrored_once_and_verified(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    between: list[str],
    topic: str,
    tmp_path: Path,
) -> None:
    load_every_kind(source_cluster.bootstrap, topic, partitions=3)

    first = shoal("mirror", *between, "--topics", topic, "--once", "--json", state=tmp_path)

    assert first.returncode == 0, first.stderr
    lines = [json.loads(line) for line in first.stdout.splitlines()]
    assert lines[-1]["type"] == "summary"
    assert {line["type"] for line in lines[:-1]} == {"progress"}
    assert set(lines[-1]["decisions"]) == {"copied", "dropped: control", "dropped: aborted"}
    source = read_topic(source_cluster.bootstrap, topic)
    assert_same_records(source, read_topic(destination_cluster.bootstrap, topic))
    assert lines[-1]["records"] == sum(map(len, source.values()))

    verified = shoal("verify", *between, "--topics", topic, state=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr

    second = shoal("mirror", *between, "--topics", topic, "--once", "--json", state=tmp_path)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout.splitlines()[-1])["records"] == 0


def test_sigterm_commits_and_the_next_run_continues(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    between: list[str],
    topic: str,
    tmp_path: Path,
) -> None:
    load_plain(source_cluster.bootstrap, topic, "lz4", 16, 60_000_000)
    options = [*between, "--topics", topic, "--group", f"group of {topic}"]

    with Shoal("mirror", "--json", *options, state=tmp_path) as mirror:
        mirror.wait_for(lambda line: line["records"] > 0)
        mirror.send_signal(signal.SIGTERM)
        stopped = mirror.wait()
    assert mirror.exit_code == 0, mirror.stderr
    assert stopped["type"] == "summary"
    committed = _committed(source_cluster, f"group of {topic}", topic, partitions=4)

    with Shoal("mirror", "--json", *options, state=tmp_path) as mirror:
        mirror.wait_for(lambda line: line["states"]["up to date"] == 4)
        load_batch(source_cluster.bootstrap, topic, 0, random_records(Random(0), 100, 1000))
        mirror.wait_for(lambda line: stopped["records"] + line["records"] == 60_100)
        second = shoal("mirror", *options, "--once", state=tmp_path / "second")
        mirror.send_signal(signal.SIGINT)
        mirror.wait()
    assert mirror.exit_code == 0, mirror.stderr

    # Another mirror of the group was refused, with the holder.
    assert second.returncode == 1
    assert f"group of {topic}" in second.stderr
    assert re.search(r"another.*topics", second.stderr)
    assert str(mirror.process_id) in second.stderr

    # The first run committed exactly the acknowledged records: they are not copied again.
    assert sum(committed.values()) == stopped["records"]
    assert digest_topic(source_cluster.bootstrap, topic) == digest_topic(destination_cluster.bootstrap, topic)


def _committed(cluster: KafkaCluster, group: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        found = consumer.committed(
            [TopicPartition(topic, number) for number in range(partitions)], timeout=30
        )
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}
