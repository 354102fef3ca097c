"""Incidents of real clusters: each partition stops with a reason, or continues by its option."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from rig import KafkaCluster
from rig.load import create_topic, load_batches
from rig.made_records import random_records
from rig.read import read_topic
from rig.record import Record
from rig.wait import wait_until
from tests.integration.shared_spark import shoal

KINDS = ("foreign-records", "destination-loss", "source-reset", "source-retention")


def load(cluster: KafkaCluster, topic: str, seed: int, batches: int = 3) -> list[Record]:
    """Add some batches to the one partition of a topic."""
    loaded = [random_records(Random(f"{topic} {seed} {number}"), 20, 200) for number in range(batches)]
    load_batches(cluster.bootstrap, topic, ((0, batch, "none") for batch in loaded))
    return list(itertools.chain.from_iterable(loaded))


def values(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in read_topic(cluster.bootstrap, topic)[0]]


def delete(cluster: KafkaCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, f"the end of {topic}")


def recreate(cluster: KafkaCluster, topic: str) -> None:
    delete(cluster, topic)
    create_topic(cluster.bootstrap, topic, config={"retention.ms": "-1"})


def delete_records(cluster: KafkaCluster, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result()


@pytest.mark.timeout(600)
def test_each_kind_of_incident_stops_its_partition_until_allowed(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    foreign, refilled, reset, retention = topics = [f"{topic}-{kind}" for kind in KINDS]
    deleted, emptied = idle = [f"{topic}-deleted", f"{topic}-emptied"]  # these two get no new records
    before = {}
    for name in [*topics, *idle]:
        create_topic(source_cluster.bootstrap, name, config={"retention.ms": "-1"})
        before[name] = load(source_cluster, name, 0)

    def mirror(*options: str) -> tuple[int, dict[str, Any]]:
        clusters = ["--from", source_cluster.bootstrap, "--to", destination_cluster.bootstrap]
        done = shoal(
            "mirror", *clusters, "--topics", f"{topic}-.*", "--group", topic, "--once", "--json", *options,
            state=tmp_path,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    assert mirror()[0] == 0

    strangers = load(destination_cluster, foreign, 99, batches=1)
    recreate(destination_cluster, refilled)
    recreate(destination_cluster, emptied)
    delete(destination_cluster, deleted)
    recreate(source_cluster, reset)
    after = {name: load(source_cluster, name, 1) for name in topics if name != reset}
    # Kafka deletes a topic's positions with it. A shorter log shows that it is another topic.
    after[reset] = load(source_cluster, reset, 1, batches=2)
    delete_records(source_cluster, retention, 70)

    code, summary = mirror()
    assert code == 1
    assert {each["kind"] for each in summary["incidents"]} == set(KINDS)
    assert not any(each["continued"] for each in summary["incidents"])
    for name, kind in zip(topics, KINDS, strict=True):
        assert f"--continue-after {kind}" in summary["stopped"][f"{name}-0"]
    for name in idle:
        assert "--continue-after destination-loss" in summary["stopped"][f"{name}-0"]
    assert (
        deleted not in AdminClient({"bootstrap.servers": destination_cluster.bootstrap}).list_topics().topics
    )

    code, summary = mirror(f"--continue-after={','.join(KINDS)}")
    assert (code, summary["stopped"]) == (4, {})
    lost = {each["partition"]: each["lost"] for each in summary["incidents"]}
    assert lost == {
        **{f"{name}-0": 0 for name in (foreign, refilled, deleted, emptied)},
        f"{reset}-0": None,
        f"{retention}-0": 10,
    }
    assert (summary["lost"], summary["exit_code"]) == (10, 4)

    def expected(*runs: list[Record]) -> list[bytes | None]:
        return [record.value for run in runs for record in run]

    assert values(destination_cluster, foreign) == expected(before[foreign], strangers, after[foreign])
    assert values(destination_cluster, refilled) == expected(before[refilled], after[refilled])
    assert values(destination_cluster, reset) == expected(before[reset], after[reset])
    assert values(destination_cluster, retention) == expected(before[retention], after[retention][10:])

    for name in idle:
        assert values(destination_cluster, name) == expected(before[name])

    code, summary = mirror()
    assert (code, summary["records"], summary["incidents"]) == (0, 0, [])
