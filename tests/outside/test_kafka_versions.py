"""Every version of Kafka that docs/install.md calls tested, as the source and as the destination.

Clusters and commands go in; records, committed offsets and exit codes come out.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from rig import KafkaCluster, OldKafka, assert_same_records, create_topic, load_every_kind, read_topic
from rig.cluster import java_properties
from rig.consumers import consume
from rig.jars import KAFKA_VERSION, OLD_KAFKA_VERSION, OTHER_KAFKA_VERSIONS
from rig.locked import LockedKafka, jaas, locked_kafka
from rig.shoal import Shoal
from tests.integration.every_verb import every_verb
from tests.integration.shared_spark import shoal
from tests.integration.test_groups import PARTITIONS, joined, load, values

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PAIRS = [
    *((older, KAFKA_VERSION) for older in (OLD_KAFKA_VERSION, *OTHER_KAFKA_VERSIONS)),
    *((KAFKA_VERSION, older) for older in OTHER_KAFKA_VERSIONS),
]


class Pair(NamedTuple):
    """Two running clusters, of two versions."""

    source: KafkaCluster | OldKafka
    destination: KafkaCluster

    def create(self, topic: str) -> None:
        """Create a topic at the source, with record batches of magic 2."""
        if isinstance(self.source, OldKafka):
            self.source.create_topic(topic, 2, PARTITIONS)
        else:
            create_topic(self.source.bootstrap, topic, PARTITIONS)

    def between(self, topic: str) -> tuple[str, ...]:
        return ("--from", self.source.bootstrap, "--to", self.destination.bootstrap, "--topics", topic)


@pytest.fixture(scope="module", params=PAIRS, ids=lambda each: "-to-".join(each))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    source, destination = request.param
    with ExitStack() as stack:
        older: KafkaCluster | OldKafka = (
            OldKafka() if source == OLD_KAFKA_VERSION else KafkaCluster(version=source)
        )
        stack.enter_context(older)
        yield Pair(older, stack.enter_context(KafkaCluster(version=destination)))


def succeed(verb: str, *arguments: str, state: Path) -> dict[str, Any]:
    """Run a verb, which has to exit with code 0, and return its last JSON object."""
    done = shoal(verb, *arguments, "--json", state=state)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_kind_of_batch_arrives_and_verifies_as_equal(pair: Pair, tmp_path: Path) -> None:
    pair.create("kinds")
    load_every_kind(pair.source.bootstrap, "kinds", PARTITIONS, create=False)
    summary = succeed("mirror", *pair.between("kinds"), "--once", state=tmp_path)
    source = read_topic(pair.source.bootstrap, "kinds")
    assert summary["records"] == sum(map(len, source.values()))
    assert_same_records(source, read_topic(pair.destination.bootstrap, "kinds"))
    assert succeed("verify", *pair.between("kinds"), state=tmp_path)["outcome"] == "equal"


def test_cutover_of_a_running_mirror_moves_records_and_groups(pair: Pair, tmp_path: Path) -> None:
    rng = Random(44)
    pair.create("orders")
    load(pair.source.bootstrap, "orders", rng)
    groups = [f"orders-{number}" for number in range(4)]
    before = {
        group: consume(pair.source.bootstrap, group, ["orders"], most=rng.randint(1, 20), reset="earliest")
        for group in groups
    }
    between = (*pair.between("orders"), "--groups", "orders-.*")
    with Shoal("mirror", "--json", *between, "--sync=configs", state=tmp_path) as mirror:
        mirror.wait_for(lambda line: line.get("records", 0) > 0)
        load(pair.source.bootstrap, "orders", rng, rounds=1)
        file = str(tmp_path / "cut.json")
        succeed("cutover", *between, "--certificate", file, state=tmp_path)
        mirror.send_signal(signal.SIGTERM)
        mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
    shown = succeed("groups", *between, "--prove", state=tmp_path)
    offsets = [offset for group in shown["groups"] for offset in group["offsets"]]
    assert {(each["exactness"], each["proof"]["is_same"]) for each in offsets} == {("exact", True)}
    expected = values(pair.source.bootstrap, "orders")
    assert values(pair.destination.bootstrap, "orders") == expected
    for group in groups:
        after = consume(pair.destination.bootstrap, group, ["orders"], reset="earliest")
        assert joined(before[group], after) == expected, group


@pytest.fixture(scope="module", params=OTHER_KAFKA_VERSIONS)
def locked(request: pytest.FixtureRequest) -> Iterator[LockedKafka]:
    with locked_kafka(request.param) as kafka:
        yield kafka


@pytest.mark.parametrize("login", ["certificate", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_verb_works_over_tls_with_each_login(locked: LockedKafka, login: str, tmp_path: Path) -> None:
    properties = {"ssl.truststore.type": "PEM", "ssl.truststore.location": locked.directory / "ca.pem"}
    if login == "certificate":
        locked.alice.write_pem(tmp_path / "alice.pem")
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": tmp_path / "alice.pem"}
        properties |= {"security.protocol": "SSL", **own}
        listener = "MUTUAL"
    else:
        own = {"sasl.mechanism": login, "sasl.jaas.config": jaas(login, "alice")}
        properties |= {"security.protocol": "SASL_SSL", **own}
        listener = "SASLTLS"
    file = tmp_path / "login.properties"
    file.write_text(java_properties({"bootstrap.servers": locked.cluster.listener(listener), **properties}))
    file.chmod(0o600)
    every_verb(locked.cluster.bootstrap, (file, file), f"topic-{login}", tmp_path)
