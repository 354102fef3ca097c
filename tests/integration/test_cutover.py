"""Cut-overs between real clusters and back: no consumer reads a record twice or misses one."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from rig import KafkaCluster, create_topic
from rig.consumers import GroupProtocol, consume
from rig.locked import LockedKafka
from rig.shoal import Shoal
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.mirroring.cutover.certificate import Certificate, read_certificate
from shoal.mirroring.cutover.observing import Observer
from shoal.mirroring.cutover.options import CutoverOptions
from shoal.mirroring.model.follow_options import GroupSelection
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.net.address import parse_bootstrap
from tests.integration.shared_spark import shoal
from tests.integration.test_groups import PARTITIONS, joined, load, values

pytestmark = pytest.mark.timeout(900)


class Way(NamedTuple):
    """A mirror of one topic from one cluster to another, and its cut-over."""

    here: KafkaCluster
    there: KafkaCluster
    topic: str
    state: Path

    @property
    def back(self) -> Way:
        return self._replace(here=self.there, there=self.here)

    @property
    def clusters(self) -> tuple[str, ...]:
        return ("--from", self.here.bootstrap, "--to", self.there.bootstrap, "--topics", self.topic)

    @contextmanager
    def mirrored(self, *more: str) -> Iterator[Shoal]:
        """Run the mirror from the moment at which it has copied records, and end it."""
        with Shoal("mirror", "--json", *self.clusters, "--sync=configs", *more, state=self.state) as mirror:
            mirror.wait_for(lambda line: line.get("records", 0) > 0)
            yield mirror
            mirror.send_signal(signal.SIGTERM)
            mirror.wait()

    def rehearse(self) -> None:
        self._cut("--rehearse")

    def cut(self, name: str) -> tuple[str, Certificate]:
        """Cut over, and return the certificate's file and the certificate."""
        file = self.state / f"{name}.json"
        outcome = self._cut("--certificate", str(file))
        assert outcome["certificate"] == json.loads(file.read_text())
        assert file.with_suffix(".html").exists()
        return str(file), read_certificate(str(file))

    def _cut(self, *more: str) -> dict[str, Any]:
        selected = ("--groups", f"{self.topic}-.*", "--json", "--timeout", "120")
        done = shoal("cutover", *self.clusters, *selected, *more, state=self.state)
        assert done.returncode == 0, (done.stdout, done.stderr)
        outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return outcome


@pytest.fixture
def way(source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path) -> Way:
    create_topic(source_cluster.bootstrap, topic, PARTITIONS)
    return Way(source_cluster, destination_cluster, topic, tmp_path)


class Groups:
    """Consumer groups and the values that they have read, wherever they ran."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.read: dict[str, dict[tuple[str, int], list[bytes]]] = {}

    def consume(
        self,
        cluster: KafkaCluster,
        name: str,
        protocol: GroupProtocol = "classic",
        *,
        most: int | None = None,
    ) -> None:
        """Go on for some records, or to the ends; a group without an offset begins at the earliest record."""
        group = f"{self.topic}-{name}"
        found = consume(
            cluster.bootstrap, group, [self.topic], protocol=protocol, most=most, reset="earliest"
        )
        self.read[name] = joined(self.read.get(name, {}), found)


def test_failback_brings_producers_and_consumers_back_exactly_once(way: Way) -> None:
    """
    There and back, and there again, with the same names.

    - ``busy`` consumes at both clusters, in the protocols of both sorts.
    - ``lagging`` still reads records from before the cut while it is at the destination.
    - ``idle`` does not run at the destination.
    - ``new`` begins there.
    """
    rng = Random(22)
    groups = Groups(way.topic)
    load(way.here.bootstrap, way.topic, rng)
    groups.consume(way.here, "busy", "consumer", most=25)
    groups.consume(way.here, "lagging", most=3)
    groups.consume(way.here, "idle")
    with way.mirrored():
        way.rehearse()
        assert not list(way.state.glob("*.json"))
        load(way.here.bootstrap, way.topic, rng, rounds=1)
        there, certificate = way.cut("there")
    expected = values(way.here.bootstrap, way.topic)
    assert values(way.there.bootstrap, way.topic) == expected
    counts = {(way.topic, each.partition): each.records for each in certificate.partitions}
    assert counts == {partition: len(each) for partition, each in expected.items()}
    load(way.there.bootstrap, way.topic, rng, rounds=2)
    groups.consume(way.there, "busy", most=40)
    groups.consume(way.there, "lagging", "consumer", most=2)
    groups.consume(way.there, "new", most=30)
    back = way.back
    planned = shoal("mirror", *back.clusters, "--from-certificate", there, "--dry-run", state=way.state)
    assert planned.returncode == 0, planned.stderr
    assert f"cut {PARTITIONS}" in planned.stdout
    with back.mirrored("--from-certificate", there):
        load(way.there.bootstrap, way.topic, rng, rounds=1)
        back_again, _ = back.cut("back")
    expected = values(way.there.bootstrap, way.topic)
    assert values(way.here.bootstrap, way.topic) == expected
    load(way.here.bootstrap, way.topic, rng, rounds=1)
    groups.consume(way.here, "busy", "consumer", most=10)
    once = shoal(
        "mirror", *way.clusters, "--once", "--json", "--from-certificate", back_again, state=way.state
    )
    assert once.returncode == 0, once.stderr
    expected = values(way.here.bootstrap, way.topic)
    assert values(way.there.bootstrap, way.topic) == expected
    for name in ("busy", "lagging", "idle", "new"):
        groups.consume(way.here, name)
        assert groups.read[name] == expected, name


@pytest.mark.parametrize(
    ("here", "there", "drift"),
    [
        (False, False, ""),
        (True, True, ""),
        (False, True, "only the destination cluster"),
        (True, False, "only the source cluster"),
    ],
)
def test_acls_differ_between_clusters_with_and_without_an_authorizer(
    source_cluster: KafkaCluster, locked_cluster: LockedKafka, topic: str, here: bool, there: bool, drift: str
) -> None:
    clusters = {False: source_cluster.bootstrap, True: locked_cluster.cluster.bootstrap}
    for bootstrap in sorted({clusters[here], clusters[there]}):
        create_topic(bootstrap, topic)
    source, destination = (
        ClientConfig(name, tuple(parse_bootstrap(clusters[is_locked])))
        for name, is_locked in (("source", here), ("destination", there))
    )
    options = CutoverOptions(
        MirrorOptions(source, destination, TopicSelection(topic), group="mirror"),
        GroupSelection(".*"),
        rehearse=True,
    )
    with Cluster(source) as read, Cluster(destination) as written:
        found = Observer(read, written, options).drift()
    assert [each[: len(drift)] for each in found] == ([drift] if drift else [])
