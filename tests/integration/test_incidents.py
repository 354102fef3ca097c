"""Incidents of real clusters: each partition stops with a reason, or continues by its option."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from rig import KafkaCluster
from rig.load import create_topic, load_batches
from rig.made_records import random_records
from rig.read import read_topic
from rig.record import Record
from rig.shoal import Shoal
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


def commit_by_hand(cluster: KafkaCluster, group: str, position: TopicPartition) -> None:
    """Commit an offset without a mirror's metadata, as ``kafka-consumer-groups --reset-offsets`` does."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[position], asynchronous=False)
    finally:
        consumer.close()


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


@pytest.mark.timeout(600)
def test_source_topic_recreated_during_a_pause_is_copied_whole_or_not(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster.bootstrap, topic, config={"retention.ms": "-1"})
    former = load(source_cluster, topic, 0, batches=2)
    clusters = ["--from", source_cluster.bootstrap, "--to", destination_cluster.bootstrap]
    copies = {policy: f"{policy}.{topic}" for policy in ("fail", "continue")}

    def start(policy: str) -> Shoal:
        after = ["--continue-after", "source-reset"] if policy == "continue" else []
        options = ["--topics", topic, "--rename", f"(.*)={policy}.\\1", "--group", copies[policy]]
        return Shoal("mirror", "--json",
            *clusters, *options, *after, state=tmp_path / policy
        )  # fmt: skip

    with ExitStack() as stack:
        mirrors = {policy: stack.enter_context(start(policy)) for policy in copies}
        for mirror in mirrors.values():
            mirror.wait_for(lambda line: line.get("records", 0) >= len(former))
        workers = [worker for mirror in mirrors.values() for worker in mirror.python_workers()]
        assert workers
        for worker in workers:
            worker.suspend()
        recreate(source_cluster, topic)
        new = load(source_cluster, topic, 1, batches=5)
        threading.Event().wait(1.5)  # the pause itself: longer than any fetch waits
        for worker in workers:
            worker.resume()
        stopped = mirrors["fail"].wait_for(lambda line: bool(line.get("stopped")))["stopped"]
        assert "created again" in stopped[f"{topic}-0"]
        whole = len(former) + len(new)
        mirrors["continue"].wait_for(lambda line: line.get("records", 0) >= whole)
        for mirror in mirrors.values():
            mirror.send_signal(signal.SIGTERM)
            mirror.wait()
    assert values(destination_cluster, copies["fail"]) == [each.value for each in former]
    assert values(destination_cluster, copies["continue"]) == [each.value for each in former + new]


@pytest.mark.timeout(300)
def test_at_least_once_shares_its_destination_with_other_writers(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    for cluster in (source_cluster, destination_cluster):
        create_topic(cluster.bootstrap, topic, config={"retention.ms": "-1"})
    clusters = ["--from", source_cluster.bootstrap, "--to", destination_cluster.bootstrap]
    commit_by_hand(source_cluster, topic, TopicPartition(topic, 0, 1))
    mirrored: list[Record] = []
    strangers: list[Record] = []
    for turn in range(2):
        strangers += load(destination_cluster, topic, 100 + turn, batches=1)
        mirrored += load(source_cluster, topic, turn)
        done = shoal(
            "mirror", *clusters, "--topics", topic, "--group", topic, "--once", "--delivery=at-least-once",
            state=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert ("of another program (1 " in done.stderr) == (turn == 0)
    written_by_others = {record.value for record in strangers}
    found = values(destination_cluster, topic)
    assert [value for value in found if value not in written_by_others] == [
        record.value for record in mirrored if record.value not in written_by_others
    ]
    assert len(found) == len(mirrored) + len(strangers)


@pytest.mark.timeout(400)
def test_latest_skips_no_records_between_runs(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    clusters = ["--from", source_cluster.bootstrap, "--to", destination_cluster.bootstrap]

    def mirror() -> dict[str, Any]:
        done = shoal(
            "mirror", *clusters, "--topics", f"{topic}.*", "--group", topic, "--start", "latest", "--once",
            "--json", state=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return summary

    create_topic(source_cluster.bootstrap, topic, config={"retention.ms": "-1"})
    load(source_cluster, topic, 0)
    assert mirror()["records"] == 0
    since = load(source_cluster, topic, 1)
    create_topic(source_cluster.bootstrap, f"{topic}-new", config={"retention.ms": "-1"})
    new = load(source_cluster, f"{topic}-new", 2)
    assert mirror()["records"] == len(since) + len(new)
    assert values(destination_cluster, f"{topic}-new") == [record.value for record in new]
