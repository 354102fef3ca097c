"""Real unclean leader elections: the destination's lost tail is mirrored again; the source's is detected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from rig import KafkaCluster
from rig.load import await_leaders, create_topic, load_batch
from rig.made_records import random_records
from rig.read import read_topic
from rig.record import Record
from rig.wait import wait_until
from tests.integration.shared_spark import shoal

pytestmark = pytest.mark.timeout(600)

#: An election, or a follower that comes back, on a busy machine.
SETTLES_S = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3) as cluster:
        yield cluster


class Fragile:
    """A topic of one partition on two brokers, whose follower may become leader without all records."""

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.name = name
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1", "retention.ms": "-1"}
        topic = NewTopic(name, num_partitions=1, replica_assignment=[[1, 2]], config=config)
        self._admin.create_topics([topic])[name].result()
        wait_until(lambda: self._in_sync() == {1, 2}, f"both replicas of {name}", SETTLES_S)
        await_leaders(cluster.bootstrap, name)

    def _partition(self) -> Any:
        return self._admin.list_topics(self.name, timeout=10).topics[self.name].partitions[0]

    def _in_sync(self) -> set[int]:
        try:
            return set(self._partition().isrs)
        except (KeyError, KafkaException):
            return set()

    def _is_led_by(self, node_id: int) -> bool:
        try:
            return bool(self._partition().leader == node_id)
        except (KeyError, KafkaException):
            return False

    def follower_falls_behind(self) -> None:
        self._leader = self._partition().leader
        self._follower = ({1, 2} - {self._leader}).pop()
        self._cluster.stop(self._follower)
        wait_until(lambda: self._in_sync() == {self._leader}, f"{self.name} with one replica", SETTLES_S)

    def follower_takes_over(self) -> None:
        """Let the follower become leader; records that were written while it was down are lost."""
        self._cluster.kill(self._leader)
        self._cluster.start(self._follower)
        wait_until(lambda: self._is_led_by(self._follower), f"another leader of {self.name}", SETTLES_S)
        self._cluster.start(self._leader)
        wait_until(lambda: self._in_sync() == {1, 2}, f"both replicas of {self.name} again", SETTLES_S)
        await_leaders(self._cluster.bootstrap, self.name)


class Mirror:
    """``shoal mirror --once`` of a topic to another of the same cluster: only its brokers matter."""

    def __init__(self, cluster: KafkaCluster, source: str, destination: str, state: Path) -> None:
        servers = "--from", cluster.bootstrap, "--to", cluster.bootstrap
        names = "--topics", source, "--rename", f"{re.escape(source)}={destination}"
        self._command = "mirror", *servers, *names, "--group", f"group of {source}", "--once", "--json"
        self._partition = f"{source}-0"
        self._state = state

    def run(self, *options: str) -> tuple[int, list[tuple[str, bool]], str]:
        """Return the exit code, the kinds of incidents and whether each continued, and why it stopped."""
        ended = shoal(*self._command, *options, state=self._state)
        summary: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        incidents = [(each["kind"], each["continued"]) for each in summary["incidents"]]
        return ended.returncode, incidents, summary["stopped"].get(self._partition, "")


def load(cluster: KafkaCluster, topic: str, seed: int) -> list[Record]:
    records: list[Record] = []
    for number in range(3):
        batch = random_records(Random(f"{topic} {seed} {number}"), 10, 100)
        load_batch(cluster.bootstrap, topic, 0, batch)
        records += batch
    return records


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_records_lost_in_an_unclean_destination_election_are_mirrored_again(
    cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    source, destination = f"{topic}-from", Fragile(cluster, f"{topic}-to")
    create_topic(cluster.bootstrap, source, replication_factor=3, config={"retention.ms": "-1"})
    mirror = Mirror(cluster, source, destination.name, tmp_path)

    def copied() -> list[bytes | None]:
        return values(read_topic(cluster.bootstrap, destination.name)[0])

    kept = load(cluster, source, 0)
    assert mirror.run() == (0, [], "")
    destination.follower_falls_behind()
    lost = load(cluster, source, 1)
    assert mirror.run() == (0, [], "")
    assert copied() == values(kept + lost)
    destination.follower_takes_over()
    assert copied() == values(kept)

    new = load(cluster, source, 2)
    code, incidents, reason = mirror.run()
    assert (code, incidents) == (1, [("destination-loss", False)])
    assert re.search(r"destination.*unclean", reason)
    assert "--continue-after destination-loss" in reason
    after = "--continue-after", "destination-loss"
    assert mirror.run(*after) == (4, [("destination-loss", True)], "")
    assert copied() == values(kept + lost + new)
    assert mirror.run() == (0, [], "")


def test_once_stops_if_an_unclean_election_left_other_records_up_to_the_same_offset(
    cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    source = Fragile(cluster, f"{topic}-from")
    mirror = Mirror(cluster, source.name, f"{topic}-to", tmp_path)
    kept = load(cluster, source.name, 0)
    source.follower_falls_behind()
    lost = load(cluster, source.name, 1)
    assert mirror.run() == (0, [], "")
    source.follower_takes_over()
    new = load(cluster, source.name, 2)
    assert len(new) == len(lost)
    assert values(read_topic(cluster.bootstrap, source.name)[0]) == values(kept + new)

    code, incidents, reason = mirror.run()
    assert (code, incidents) == (1, [("source-reset", False)])
    assert f"only before offset {len(kept)}" in reason
    assert mirror.run("--continue-after", "source-reset") == (4, [("source-reset", True)], "")
    assert values(read_topic(cluster.bootstrap, f"{topic}-to")[0]) == values(kept + lost + new)
