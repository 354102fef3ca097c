"""A mirror that runs seldom: its positions outlive the brokers' retention of committed offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rig import KAFKA_VERSION, KafkaCluster, assert_same_records, load_every_kind, read_topic
from rig.jars import KAFKA_3_VERSION
from rig.wait import wait_until
from shoal.client.cluster import Cluster, patiently
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.mirroring.prepare.descriptions import warning_of_expiry
from shoal.net.address import parse_bootstrap
from shoal.topic_partition import TopicPartition
from tests.integration.shared_spark import shoal

TOPIC, PARTITIONS = "orders", 2
RETENTION = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 5_000}


def mirror_once(source: KafkaCluster, destination: KafkaCluster, state: Path) -> dict[str, Any]:
    between = ("--from", source.bootstrap, "--to", destination.bootstrap, "--group", "mirror")
    done = shoal("mirror", *between, "--topics", TOPIC, "--once", "--json", state=state)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "expire" not in done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def let_offsets_expire(cluster: Cluster) -> None:
    """Commit an offset as a consumer does, after all others, and wait until its retention is over."""
    partition = TopicPartition(TOPIC, 0)
    patiently(
        lambda: commit_offsets(cluster, "reader", {partition: Committed(0, "")}, MemberId()), patience_s=60
    )
    assert fetch_offsets(cluster, "reader", [partition])
    wait_until(
        lambda: not fetch_offsets(cluster, "reader", [partition]),
        "the end of the offsets' retention",
        timeout_s=240,
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [KAFKA_3_VERSION, "4.1.2", KAFKA_VERSION])
def test_mirror_that_runs_less_often_than_offsets_expire_continues_exactly(
    version: str, tmp_path: Path
) -> None:
    with (
        KafkaCluster(version=version, config=RETENTION) as source,
        KafkaCluster(version=version) as destination,
        Cluster(ClientConfig("source", tuple(parse_bootstrap(source.bootstrap)))) as cluster,
    ):
        load_every_kind(source.bootstrap, TOPIC, PARTITIONS)
        first = mirror_once(source, destination, tmp_path)
        let_offsets_expire(cluster)
        assert warning_of_expiry(cluster, "mirror") is None
        source.restart(1)
        load_every_kind(source.bootstrap, TOPIC, PARTITIONS, create=False)

        second = mirror_once(source, destination, tmp_path)

        records = read_topic(source.bootstrap, TOPIC)
        assert first["records"] + second["records"] == sum(map(len, records.values()))
        assert second["incidents"] == []
        assert_same_records(records, read_topic(destination.bootstrap, TOPIC))
