"""The further ACLs that ``--dry-run`` lists for what follows the records, on clusters with authorizers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from rig import create_topic
from rig.locked import LockedKafka, locked_kafka
from rig.wait import wait_until
from shoal.client.admin import alter_topic_configs, describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.mirroring.model.follow_options import FollowOptions, Sync
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.sync.acls import follow_acls
from shoal.mirroring.sync.configs import follow_configs
from shoal.mirroring.sync.one_round import translate_offsets
from shoal.mirroring.sync.report import Action
from shoal.net.address import parse_bootstrap
from tests.integration.shared_spark import shoal
from tests.integration.test_dry_run import Acls, properties, written
from tests.integration.test_rights import grant

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PATIENCE_S = 300
TOPIC, GROUP = "followed", "billing"
THE_CLUSTER = "cluster", "kafka-cluster"
WHAT_FOLLOWS = ("--groups", GROUP, "--sync", "configs,acls")

FURTHER = {
    ("source", "group", GROUP, "DESCRIBE"),
    ("source", *THE_CLUSTER, "DESCRIBE"),
    ("destination", "group", GROUP, "READ"),
    ("destination", "topic", TOPIC, "ALTER_CONFIGS"),
    ("destination", *THE_CLUSTER, "ALTER"),
}


@dataclass
class Clusters:
    """Both clusters; Bob mirrors from one to the other."""

    source: LockedKafka
    destination: LockedKafka
    directory: Path
    changes: int = 0

    def arguments(self, user: str) -> list[str]:
        found = ["mirror", "--topics", TOPIC]
        for option, kafka in (("--from-config", self.source), ("--to-config", self.destination)):
            found += [option, written(self.directory / f"{user}{option}.properties", properties(kafka, user))]
        return found

    def plan(self, *more: str) -> dict[str, Any]:
        """Return the output of a dry run by Alice, who may do everything."""
        command = [*self.arguments("alice"), "--dry-run", "--once", "--json", *more]
        run = shoal(*command, state=self.directory)
        assert run.returncode == 0, run.stderr
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    def change_the_source(self) -> None:
        """Let group, configuration and ACLs need another change at the destination."""
        self.changes += 1
        bootstrap = self.source.cluster.bootstrap
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.changes)], asynchronous=False)
        consumer.close()
        with Cluster(ClientConfig("source", tuple(parse_bootstrap(bootstrap)))) as cluster:
            value = {"retention.ms": str(10_000_000 + self.changes)}
            assert alter_topic_configs(cluster, {TOPIC: value}) == {}
        self.source.allow(f"carol-{self.changes}", ResourceType.TOPIC, TOPIC, AclOperation.READ)

    def complaints_of_bob(self, group: str) -> list[str]:
        """Let all of it follow under Bob's name."""
        source, destination = (
            ClientConfig.from_properties(name, properties(kafka, "bob"))[0]
            for name, kafka in (("source", self.source), ("destination", self.destination))
        )
        mirror = MirrorOptions(source, destination, TopicSelection(TOPIC), group=group, groups=GROUP)
        follow = FollowOptions(sync=frozenset({Sync.CONFIGS, Sync.ACLS}))
        names = {TOPIC: TOPIC}
        found: list[str] = []
        try:
            report = translate_offsets(mirror, apply=True)
            found += [each.problem for each in report.untranslated]
            found += [] if report.groups else ["the group is not listed"]
            every = [each for one in report.groups for each in one.offsets]
            found += [each.detail for each in every if each.action is Action.REFUSED]
        except ShoalError as error:
            found.append(str(error))
        with Cluster(source) as left, Cluster(destination) as right:
            for compare in (
                partial(follow_configs, left, right, names, follow),
                partial(follow_acls, left, right, names, group, follow),
            ):
                try:
                    left.refresh([TOPIC])
                    right.refresh([TOPIC])
                    found += map(str, compare().refused)
                except ShoalError as error:
                    found.append(str(error))
        return found

    def followed(self) -> tuple[int, str, bool]:
        """Return the group's offset, the configuration and whether Carol may read, at the destination."""
        bootstrap = self.destination.cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        request = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0)])
        (offset,) = admin.list_consumer_group_offsets([request])[GROUP].result(30).topic_partitions
        with Cluster(ClientConfig("destination", tuple(parse_bootstrap(bootstrap)))) as cluster:
            configs = describe_topic_configs(cluster, [TOPIC])[TOPIC]
        acls = Acls(self.destination, f"carol-{self.changes}").all()
        return offset.offset, str(configs["retention.ms"].value), ("topic", TOPIC, "READ") in acls


@pytest.fixture
def clusters(locked_cluster: LockedKafka, tmp_path: Path) -> Iterator[Clusters]:
    Acls(locked_cluster).remove_all()  # those that other tests of the same cluster left
    create_topic(locked_cluster.cluster.bootstrap, TOPIC, partitions=1)
    producer = Producer({"bootstrap.servers": locked_cluster.cluster.bootstrap})
    for number in range(100):
        producer.produce(TOPIC, f"record {number}", partition=0)
    assert producer.flush(60) == 0
    with ExitStack() as stack:
        stack.callback(Acls(locked_cluster).remove_all)
        destination = stack.enter_context(locked_kafka())
        yield Clusters(locked_cluster, destination, tmp_path)


def test_further_acls_of_followers_are_sufficient_and_each_is_needed(clusters: Clusters) -> None:
    clusters.change_the_source()
    plan = clusters.plan(*WHAT_FOLLOWS)
    group = plan["group"]["name"]
    printed, without = (
        {tuple(acl[each] for each in ("cluster", "resource_type", "resource", "operation")) for acl in acls}
        for acls in (plan["acls"], clusters.plan()["acls"])
    )
    assert printed - without == FURTHER
    # ALTER_CONFIGS implies it.
    assert without - printed == {("destination", "topic", TOPIC, "DESCRIBE_CONFIGS")}

    grant(clusters.source, plan["acl_commands"], clusters.directory)
    acls = {"source": Acls(clusters.source), "destination": Acls(clusters.destination)}
    for side, of_bob in acls.items():
        wanted = {acl[1:] for acl in printed if acl[0] == side}
        wait_until(partial(of_bob.are, wanted), f"the {side} to know the ACLs", PATIENCE_S)
    command = [*clusters.arguments("bob"), "--once", "--json", *WHAT_FOLLOWS]
    run = shoal(*command, state=clusters.directory)
    assert run.returncode == 0, run.stderr
    # The cluster may delay its first producer id; nothing else causes a warning.
    warnings = [line for line in run.stderr.splitlines() if "producer id" not in line]
    assert [line for line in warnings if "created at" not in line] == []
    assert clusters.followed() == (1, "10000001", True)

    for side, *acl in sorted(FURTHER):
        clusters.change_the_source()
        of_bob = acls[side]
        of_bob.remove(*acl)
        wait_until(partial(of_bob.lack, *acl), "the broker to know that", PATIENCE_S)
        wait_until(lambda: bool(clusters.complaints_of_bob(group)), f"a complaint without {acl}", PATIENCE_S)
        of_bob.add(*acl)
        wait_until(lambda: not clusters.complaints_of_bob(group), "no complaints", PATIENCE_S)
        assert clusters.followed() == (clusters.changes, str(10_000_000 + clusters.changes), True)
