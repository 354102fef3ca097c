"""Consumers that stop at one cluster and go on at the other: nothing twice, nothing missed.

The clusters are real, and so are the consumers: confluent-kafka's with the classic protocol and with that of
KIP-848, and Java's. A consumer stops after a random number of records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from rig import KafkaCluster, create_topic, read_topic, wait_until
from rig.consumers import GroupProtocol, consume, consume_by_java
from rig.load import Producers, await_markers
from rig.made_records import random_records
from rig.record import Record
from tests.integration.shared_spark import shoal

pytestmark = pytest.mark.timeout(900)

PARTITIONS = 2
PROTOCOLS: Sequence[GroupProtocol] = ("classic", "consumer")


def load(bootstrap: str, topic: str, rng: Random, rounds: int = 4) -> None:
    """Send plain batches, transactions that commit, and transactions that abort."""

    def some() -> dict[int, list[Record]]:
        return {
            partition: [
                Record(None, f"{topic} {partition} {rng.random()}".encode(), (), each.timestamp)
                for each in random_records(rng, rng.randint(1, 9), 10)
            ]
            for partition in range(PARTITIONS)
        }

    producers = Producers.of(bootstrap, topic, ["none"], f"{topic}-{rng.random()}", "none")
    for _ in range(rounds):
        producers.send(producers.plain[0], some())
        producers.commit(some())
        producers.abort(some())
    await_markers(bootstrap, topic, range(PARTITIONS))


def values(bootstrap: str, topic: str) -> dict[tuple[str, int], list[bytes]]:
    return {
        (topic, partition): [each.value or b"" for each in records]
        for partition, records in read_topic(bootstrap, topic).items()
    }


def groups_of(source: KafkaCluster, destination: KafkaCluster, state: Path, *more: str) -> dict[str, Any]:
    """Run ``shoal groups``, and return its JSON object."""
    clusters = ("--from", source.bootstrap, "--to", destination.bootstrap)
    done = shoal("groups", *clusters, "--json", *more, state=state)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def commit_at(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets without a member, as an idle consumer's."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


def joined(
    before: dict[tuple[str, int], list[bytes]], after: dict[tuple[str, int], list[bytes]]
) -> dict[tuple[str, int], list[bytes]]:
    return {key: before.get(key, []) + after.get(key, []) for key in before.keys() | after.keys()}


def test_groups_of_all_protocols_continue_behind_their_last_record(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    rng = Random(18)
    source, destination = source_cluster, destination_cluster
    create_topic(source.bootstrap, topic, PARTITIONS)
    load(source.bootstrap, topic, rng)
    expected = values(source.bootstrap, topic)
    total = sum(map(len, expected.values()))
    before: dict[str, dict[tuple[str, int], list[bytes]]] = {}
    protocols: dict[str, tuple[GroupProtocol, GroupProtocol]] = {}
    for number, (here, there) in enumerate((a, b) for a in PROTOCOLS for b in PROTOCOLS):
        group = f"{topic}-{number}-{here}-{there}"
        protocols[group] = here, there
        before[group] = consume(
            source.bootstrap, group, [topic], protocol=here, most=rng.randint(1, total), reset="earliest"
        )
    idle, lagging = f"{topic}-idle", f"{topic}-lagging"
    commit_at(source.bootstrap, lagging, topic, dict.fromkeys(range(PARTITIONS), 0))
    before[idle] = consume(source.bootstrap, idle, [topic], reset="earliest")
    clusters = ("--from", source.bootstrap, "--to", destination.bootstrap, "--topics", topic)
    mirror = shoal("mirror", *clusters, "--once", "--json", state=tmp_path)
    assert mirror.returncode == 0, mirror.stderr
    selected = ("--topics", topic, "--groups", f"{topic}-.*")
    shown = groups_of(source, destination, tmp_path, *selected, "--prove")
    offsets = [each for group in shown["groups"] for each in group["offsets"]]
    assert {each["exactness"] for each in offsets} == {"exact"}
    assert all(each["proof"]["is_same"] for each in offsets)
    applied = groups_of(source, destination, tmp_path, *selected, "--apply")
    assert applied["counts"] == {"exact": len(offsets), "committed": len(offsets)}
    again = groups_of(source, destination, tmp_path, *selected, "--apply")
    assert again["counts"] == {"exact": len(offsets), "unchanged": len(offsets)}
    for group, (_, there) in protocols.items():
        # A group that did not read a partition here has no offset of it there.
        after = consume(destination.bootstrap, group, [topic], protocol=there, reset="earliest")
        assert joined(before[group], after) == expected, group
    for group in (idle, lagging):
        after = consume(destination.bootstrap, group, [topic], protocol="consumer")
        assert joined(before.get(group, {}), after) == expected, group


def test_java_consumers_continue_behind_their_last_record(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    rng = Random(19)
    source, destination = source_cluster, destination_cluster
    create_topic(source.bootstrap, topic, PARTITIONS)
    load(source.bootstrap, topic, rng)
    expected = sorted(each for some in values(source.bootstrap, topic).values() for each in some)
    before = {
        (f"{topic}-{here}-{there}", there): consume_by_java(
            source.bootstrap,
            f"{topic}-{here}-{there}",
            topic,
            protocol=here,
            most=rng.randint(1, len(expected) - 1),
            reset="earliest",
        )
        for here, there in zip(PROTOCOLS, reversed(PROTOCOLS), strict=True)
    }
    clusters = ("--from", source.bootstrap, "--to", destination.bootstrap, "--topics", topic)
    mirror = shoal("mirror", *clusters, "--once", "--json", state=tmp_path)
    assert mirror.returncode == 0, mirror.stderr
    groups_of(
        source, destination, tmp_path, "--topics", topic, "--groups", f"{topic}-.*", "--apply", "--prove"
    )
    for (group, there), values_before in before.items():
        after = consume_by_java(destination.bootstrap, group, topic, protocol=there, reset="earliest")
        assert sorted(values_before + after) == expected, group


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.long), "consumer"])
def test_groups_with_members_at_the_destination_are_left_alone(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
    protocol: GroupProtocol,
) -> None:
    source, destination = source_cluster, destination_cluster
    create_topic(source.bootstrap, topic, PARTITIONS)
    load(source.bootstrap, topic, Random(20), rounds=1)
    clusters = ("--from", source.bootstrap, "--to", destination.bootstrap, "--topics", topic)
    mirror = shoal("mirror", *clusters, "--once", "--json", state=tmp_path)
    assert mirror.returncode == 0, mirror.stderr
    commit_at(source.bootstrap, topic, topic, {0: 1})
    consumer = Consumer(
        {
            "bootstrap.servers": destination.bootstrap,
            "group.id": topic,
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.2) is None and bool(consumer.assignment()), "its assignment", 60)
    selected = ("--topics", topic, "--groups", topic, "--apply")
    assert groups_of(source, destination, tmp_path, *selected)["counts"] == {"exact": 1, "active there": 1}
    consumer.close()
    assert groups_of(source, destination, tmp_path, *selected)["counts"] == {"exact": 1, "committed": 1}
