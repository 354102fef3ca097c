"""The ACLs that ``--dry-run`` lists are enough, and each is needed, on real Kafka with authorizers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from rig import KafkaCluster, create_topic
from rig.cluster import java_properties
from rig.locked import LockedKafka, jaas, locked_kafka
from rig.read import digest_topic
from rig.wait import wait_until
from shoal.client.admin import alter_topic_configs, describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.mirroring.assignment import end_offsets, partitions_of
from shoal.mirroring.driver.group_lock import GroupLock
from shoal.mirroring.model.copy_options import CopySettings, copy_rules
from shoal.mirroring.model.follow_options import FollowOptions, Sync
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.create import prepare
from shoal.mirroring.sync.acls import follow_acls
from shoal.mirroring.sync.configs import follow_configs
from shoal.mirroring.sync.one_round import translate_offsets
from shoal.mirroring.sync.report import Action
from shoal.net.address import parse_bootstrap
from shoal.timing import Timing
from tests.integration.shared_spark import shoal
from tests.integration.test_rights import grant
from tests.world.task import run_copy_task

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(1800)

#: The limits of each of Bob's steps: to prepare topics, and to join his group.
STEP_S = 10.0
TIMING = Timing(patience_s=STEP_S)
#: Two of his looks, since one may have begun before the brokers knew a change. Besides both steps, each of a
#: task, a translation, configurations and ACLs may wait for a response: 30 s by default.
PATIENCE_S = 2 * (2 * STEP_S + 4 * 30.0)
TOPIC, GROUP = "followed", "billing"
RECORDS = 100
THE_CLUSTER = "cluster", "kafka-cluster"
WHAT_FOLLOWS = ("--groups", GROUP, "--sync", "configs,acls")

#: Cluster, type and name of the resource, operation.
Acl = tuple[str, ...]

#: The ACLs that what follows the records needs besides.
FURTHER: set[Acl] = {
    ("source", "group", GROUP, "DESCRIBE"),
    ("source", *THE_CLUSTER, "DESCRIBE"),
    ("destination", "group", GROUP, "READ"),
    ("destination", "topic", TOPIC, "ALTER_CONFIGS"),
    ("destination", *THE_CLUSTER, "ALTER"),
}
CREATION: Acl = ("destination", "topic", TOPIC, "CREATE")

_TYPES = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}
_NAMES = {value: key for key, value in _TYPES.items()}


@dataclass
class Clusters:
    """Both clusters; Bob mirrors from one to the other, and all that can follow does."""

    sides: dict[str, LockedKafka]
    directory: Path
    changes: int = 0

    def bootstrap(self, side: str) -> str:
        return self.sides[side].cluster.bootstrap

    def properties(self, side: str, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.sides[side].cluster.listener("SASL"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas("PLAIN", user),
        }

    def arguments(self, user: str) -> list[str]:
        found = ["mirror", "--topics", TOPIC]
        for option, side in (("--from-config", "source"), ("--to-config", "destination")):
            file = self.directory / f"{user}-{side}.properties"
            file.write_text(java_properties(self.properties(side, user)))
            file.chmod(0o600)
            found += [option, str(file)]
        return found

    def plan(self, *more: str) -> dict[str, Any]:
        """Return the output of a dry run by Alice, who may do everything."""
        command = [*self.arguments("alice"), "--dry-run", "--once", "--json", *more]
        run = shoal(*command, state=self.directory)
        assert run.returncode == 0, run.stderr
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    def dry_run_of_bob(self) -> str:
        return shoal(*self.arguments("bob"), "--dry-run", state=self.directory).stderr

    def change_the_source(self) -> None:
        """Let records, group, configuration and ACLs need another change at the destination."""
        self.changes += 1
        bootstrap = self.bootstrap("source")
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, f"record {self.changes} {number}", partition=0)
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.changes)], asynchronous=False)
        consumer.close()
        with Cluster(ClientConfig("source", tuple(parse_bootstrap(bootstrap)))) as cluster:
            value = {"retention.ms": _retention_ms(self.changes)}
            assert alter_topic_configs(cluster, {TOPIC: value}) == {}
        self.sides["source"].allow(f"carol-{self.changes}", ResourceType.TOPIC, TOPIC, AclOperation.READ)

    def assert_followed(self) -> None:
        """Check records, the group's offset, the configuration and whether Carol may read."""
        bootstrap = self.bootstrap("destination")
        assert digest_topic(bootstrap, TOPIC) == digest_topic(self.bootstrap("source"), TOPIC)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        request = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0)])
        (offset,) = admin.list_consumer_group_offsets([request])[GROUP].result(30).topic_partitions
        assert offset.offset == self.changes
        with Cluster(ClientConfig("destination", tuple(parse_bootstrap(bootstrap)))) as cluster:
            retention = describe_topic_configs(cluster, [TOPIC])[TOPIC]["retention.ms"]
        assert retention.value == _retention_ms(self.changes)
        assert ("destination", "topic", TOPIC, "READ") in self.acls_of(f"carol-{self.changes}")

    # ACLs

    def acls_of(self, user: str) -> set[Acl]:
        return {
            (side, _NAMES[each.restype], each.name, each.operation.name)
            for side, kafka in self.sides.items()
            for each in kafka.acls_of(user)
        }

    def has(self, acls: set[Acl]) -> None:
        """Wait until the brokers know that Bob has these ACLs alone."""
        wait_until(lambda: self.acls_of("bob") == acls, "the brokers to know the ACLs", PATIENCE_S)

    def remove(self, acl: Acl) -> None:
        side, kind, name, operation = acl
        one = AclBindingFilter(
            _TYPES[kind],
            name,
            ResourcePatternType.LITERAL,
            "User:bob",
            None,
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap(side)})
        assert len(admin.delete_acls([one])[one].result(30)) == 1

    def add(self, acl: Acl) -> None:
        side, kind, name, operation = acl
        self.sides[side].allow("bob", _TYPES[kind], name, AclOperation[operation])

    # Bob

    def complaints_of_bob(self, group: str, *, follows: bool = True) -> list[str]:
        """
        Act as a mirror under Bob's name, without Spark; return its warnings and the reasons for stops.

        Args:
            follows: Whether groups, configuration and ACLs follow: then Bob's own READ does, too.

        """
        source, destination = (
            replace(ClientConfig.from_properties(side, self.properties(side, "bob"))[0], timing=TIMING)
            for side in self.sides
        )
        options = MirrorOptions(source, destination, TopicSelection(TOPIC), group=group, groups=GROUP)
        follow, names = FollowOptions(sync=frozenset({Sync.CONFIGS, Sync.ACLS})), {TOPIC: TOPIC}
        found: list[str] = []
        with Cluster(source) as left, Cluster(destination) as right:
            steps: list[Callable[[], Sequence[str]]] = [
                partial(_complaints_of_copying, options, group, left, right),
                partial(_complaints_of_translating, options),
                lambda: [*map(str, follow_configs(left, right, names, changes=True).refused)],
                lambda: [*map(str, follow_acls(left, right, names, group, follow, changes=True).refused)],
            ]
            for step in steps if follows else steps[:1]:
                try:
                    left.refresh([TOPIC])
                    right.refresh([TOPIC])
                    found += step()
                except ShoalError as error:
                    found.append(str(error))
        return found

    def wait_for_complaints_without(self, acl: Acl, group: str) -> None:
        def complain() -> bool:
            return bool(self.complaints_of_bob(group, follows=acl in FURTHER))

        wait_until(complain, f"a complaint without {acl}", PATIENCE_S)


def _retention_ms(change: int) -> str:
    """Return less with each change: a mirror warns of a copy that keeps less than its source."""
    return str(10_000_000 - change)


def _complaints_of_copying(
    options: MirrorOptions, group: str, left: Cluster, right: Cluster
) -> Sequence[str]:
    warnings = prepare(options, left, right).warnings
    partitions = partitions_of(left, [TOPIC])
    ends = end_offsets(left, partitions)
    with GroupLock(options.source, group, "test", lambda *_: None) as lock:
        lock.acquire(partitions, STEP_S)
    ranges = [CopyRange(TOPIC, each.partition, TOPIC, 0, ends[each]) for each in partitions]
    settings = CopySettings(options.source, options.destination, group, copy_rules(options.source))
    return [*warnings, *map(str, run_copy_task(ranges, settings).stopped)]


def _complaints_of_translating(options: MirrorOptions) -> Sequence[str]:
    report = translate_offsets(options, apply=True)
    refused = [each.detail for one in report.groups for each in one.offsets if each.action is Action.REFUSED]
    not_listed = [] if report.groups else ["the group is not listed"]
    return [*(each.problem for each in report.untranslated), *not_listed, *refused]


@pytest.fixture
def clusters(locked_cluster: LockedKafka, tmp_path: Path) -> Iterator[Clusters]:
    locked_cluster.forbid_everything("bob")  # what other tests of the same cluster left
    create_topic(locked_cluster.cluster.bootstrap, TOPIC, partitions=1)
    with locked_kafka() as destination:
        yield Clusters({"source": locked_cluster, "destination": destination}, tmp_path)
    locked_cluster.forbid_everything("bob")


def _words_for(acl: Acl) -> str:
    _, kind, name, operation = acl
    return f"allow {operation} on the cluster" if kind == "cluster" else f"{kind} {name}"


@pytest.mark.long
def test_printed_acls_are_sufficient_and_each_is_needed(clusters: Clusters) -> None:
    clusters.change_the_source()
    plan = clusters.plan(*WHAT_FOLLOWS)
    group = plan["group"]
    printed, without = (
        {tuple(acl[each] for each in ("cluster", "resource_type", "resource", "operation")) for acl in acls}
        for acls in (plan["acls"], clusters.plan()["acls"])
    )
    assert printed - without == FURTHER
    # ALTER_CONFIGS implies it.
    assert without - printed == {("destination", "topic", TOPIC, "DESCRIBE_CONFIGS")}
    grant(clusters.sides["source"], plan["acl_commands"], clusters.directory)
    clusters.has(printed)

    # Without CREATE the missing copy stays missing; with it, the mirror succeeds without a warning.
    clusters.remove(CREATION)
    clusters.has(printed - {CREATION})
    wait_until(
        lambda: "TOPIC_AUTHORIZATION_FAILED" in str(clusters.complaints_of_bob(group, follows=False)),
        "a mirror that may not create its copy",
        PATIENCE_S,
    )
    admin = AdminClient({"bootstrap.servers": clusters.bootstrap("destination")})
    assert TOPIC not in admin.list_topics().topics
    clusters.add(CREATION)
    clusters.has(printed)
    command = [*clusters.arguments("bob"), "--once", "--json", *WHAT_FOLLOWS]
    run = shoal(*command, state=clusters.directory)
    assert run.returncode == 0, run.stderr
    # The cluster may delay its first producer id; nothing else causes a warning.
    warnings = [line for line in run.stderr.splitlines() if "producer id" not in line]
    assert [line for line in warnings if "created at" not in line] == []
    clusters.assert_followed()

    # If one of the others is missing, a running mirror complains, and so does a dry run of the same user.
    for acl in sorted(printed - {CREATION}):
        clusters.change_the_source()
        clusters.remove(acl)
        clusters.has(printed - {acl})
        clusters.wait_for_complaints_without(acl, group)
        if acl not in FURTHER:
            assert _words_for(acl).casefold() in clusters.dry_run_of_bob().casefold()
        clusters.add(acl)
        clusters.has(printed)
        wait_until(lambda: not clusters.complaints_of_bob(group), "no complaints", PATIENCE_S)
        clusters.assert_followed()
    # These clusters have no TLS; of that alone the dry run warns.
    assert [line for line in clusters.dry_run_of_bob().splitlines() if "without TLS" not in line] == []
    # If all topics exist, no mirror needs CREATE.
    clusters.remove(CREATION)
    clusters.has(printed - {CREATION})
    clusters.change_the_source()
    assert clusters.complaints_of_bob(group) == []
    clusters.assert_followed()


def test_dry_run_leaves_the_cluster_unchanged(tmp_path: Path) -> None:
    with KafkaCluster() as cluster:
        create_topic(cluster.bootstrap, TOPIC)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        run = shoal(
            *("mirror", "--from", cluster.bootstrap, "--to", cluster.bootstrap, "--dry-run"),
            *("--topics", TOPIC, "--rename", r"(.*)=copy.\1"),
            state=tmp_path,
        )
        assert (run.returncode, run.stderr) == (0, "")
        assert f"{TOPIC}  copy.{TOPIC}" in run.stdout
        # Not even Kafka's own topic for groups.
        assert set(admin.list_topics(timeout=30).topics) == {TOPIC}
        assert admin.list_consumer_groups().result(30).valid == []
        assert list(tmp_path.rglob("*")) == []
