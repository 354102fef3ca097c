"""Real unclean leader elections: the destination's lost tail is mirrored again; the source's is detected.

Workers without Spark, from one topic of a cluster to another: only its brokers matter. The command does what
a worker does not: it plans the ranges.
"""

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
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.offsets import LATEST, list_offsets
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import CopyRange
from shoal.net.address import parse_bootstrap
from shoal.topic_partition import TopicPartition
from tests.copying import TaskResult, run_copy_task
from tests.integration.shared_spark import shoal
from tests.two_brokers import Watched

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


def settings(cluster: KafkaCluster, group: str, *continue_after: IncidentKind) -> CopySettings:
    servers = tuple(parse_bootstrap(cluster.bootstrap))
    return CopySettings(
        ClientConfig("source", servers),
        ClientConfig("destination", servers),
        group,
        "rules",
        continue_after=frozenset(continue_after),
    )


def mirror(copy: CopySettings, source: str, destination: str) -> tuple[TaskResult, list[list[Any]]]:
    """Copy up to the end; return the result, and each incident: kind, lost, and whether it continued."""
    key = TopicPartition(source, 0)
    with Cluster(copy.source) as cluster:
        cluster.refresh([source])
        end = list_offsets(cluster, {key: LATEST})[key]
    assert isinstance(end, int)
    control = Watched()
    result = run_copy_task([CopyRange(source, 0, destination, 0, end)], copy, control)
    found = [
        [kind, lost, continued]
        for report in control.reports
        for partition in report["partitions"]
        for kind, _, lost, continued in partition["incidents"]
    ]
    return result, found


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
    cluster: KafkaCluster, topic: str
) -> None:
    source, destination = f"{topic}-from", Fragile(cluster, f"{topic}-to")
    create_topic(cluster.bootstrap, source, replication_factor=3, config={"retention.ms": "-1"})
    group = f"group of {topic}"
    kept = load(cluster, source, 0)
    assert mirror(settings(cluster, group), source, destination.name)[0].complete

    destination.follower_falls_behind()
    lost = load(cluster, source, 1)
    assert mirror(settings(cluster, group), source, destination.name)[0].complete
    assert values(read_topic(cluster.bootstrap, destination.name)[0]) == values(kept + lost)
    destination.follower_takes_over()
    assert values(read_topic(cluster.bootstrap, destination.name)[0]) == values(kept)

    new = load(cluster, source, 2)
    result, incidents = mirror(settings(cluster, group), source, destination.name)
    assert incidents == [["destination-loss", 0, False]]
    assert re.search(r"destination.*unclean", result.stopped[0].reason)
    assert "--continue-after destination-loss" in result.stopped[0].reason

    going_on = settings(cluster, group, IncidentKind.DESTINATION_LOSS)
    result, incidents = mirror(going_on, source, destination.name)
    assert (result.stopped, incidents) == ((), [["destination-loss", 0, True]])
    assert values(read_topic(cluster.bootstrap, destination.name)[0]) == values(kept + lost + new)
    assert mirror(settings(cluster, group), source, destination.name) == (TaskResult((), complete=True), [])


def test_once_stops_if_an_unclean_election_left_other_records_up_to_the_same_offset(
    cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    source = Fragile(cluster, f"{topic}-from")
    servers = "--from", cluster.bootstrap, "--to", cluster.bootstrap
    names = "--topics", source.name, "--rename", f"{re.escape(source.name)}={topic}-to"
    command = "mirror", *servers, *names, "--group", f"group of {topic}", "--once", "--json"
    kept = load(cluster, source.name, 0)
    source.follower_falls_behind()
    lost = load(cluster, source.name, 1)
    assert shoal(*command, state=tmp_path).returncode == 0
    source.follower_takes_over()
    new = load(cluster, source.name, 2)
    assert len(new) == len(lost)
    assert values(read_topic(cluster.bootstrap, source.name)[0]) == values(kept + new)

    ended = shoal(*command, state=tmp_path)
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert ended.returncode == 1
    assert [(each["kind"], each["continued"]) for each in summary["incidents"]] == [("source-reset", False)]
    assert f"only before offset {len(kept)}" in summary["stopped"][f"{source.name}-0"]

    assert shoal(*command, "--continue-after", "source-reset", state=tmp_path).returncode == 4
    assert values(read_topic(cluster.bootstrap, f"{topic}-to")[0]) == values(kept + lost + new)
