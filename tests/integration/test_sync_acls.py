"""ACLs and configurations that follow a topic to its copy, on real Kafka with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import (
    AclOperation as ConfluentOperation,
)

from rig import create_topic
from rig.locked import LockedKafka
from rig.wait import wait_until
from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource, create_acls, describe_acls
from shoal.client.admin import alter_topic_configs, describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.mirroring.model.follow_options import FollowOptions, Sync
from shoal.mirroring.sync.acls import follow_acls, missing_at_destination
from shoal.mirroring.sync.configs import follow_configs
from shoal.net.address import parse_bootstrap
from tests.integration.shared_spark import shoal

NAMES = {"synced": "copy.synced"}
FOLLOW = FollowOptions(sync=frozenset({Sync.CONFIGS, Sync.ACLS}))

MAY_READ = AclBinding(
    Resource.TOPIC, PatternType.LITERAL, "synced", "User:carol", "*", AclOperation.READ, True
)
BINDINGS = (
    MAY_READ,
    replace(MAY_READ, principal="User:mallory", allows=False),
    replace(MAY_READ, principal="User:dave", operation=AclOperation.WRITE),
    replace(MAY_READ, principal="User:erin", pattern=PatternType.PREFIXED, name="syn", host="10.0.0.1"),
    replace(MAY_READ, resource=Resource.GROUP, name="app-", pattern=PatternType.PREFIXED),
)


@pytest.fixture(scope="module")
def bootstrap(locked_cluster: LockedKafka) -> str:
    """A cluster with a topic and its copy."""
    for topic in (*NAMES, *NAMES.values()):
        create_topic(locked_cluster.cluster.bootstrap, topic, partitions=1)
    return locked_cluster.cluster.bootstrap


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientConfig("source", tuple(parse_bootstrap(bootstrap)))) as cluster:
        yield cluster
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        ConfluentOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for removed in admin.delete_acls([every]).values():
        removed.result()
    with Cluster(ClientConfig("source", tuple(parse_bootstrap(bootstrap)))) as cluster:
        wait_until(lambda: not all_acls(cluster), "no ACL is there")


def all_acls(cluster: Cluster) -> set[AclBinding]:
    return {each for resource in Resource for each in describe_acls(cluster, resource)}


def create(cluster: Cluster, *bindings: AclBinding) -> None:
    """Create ACLs, and wait until the broker has applied them."""
    assert create_acls(cluster, bindings) == {}
    wait_until(lambda: set(bindings) <= all_acls(cluster), "the ACLs are there")


def test_described_acls_are_those_that_were_created(cluster: Cluster) -> None:
    create(cluster, *BINDINGS)
    assert set(BINDINGS) <= all_acls(cluster)


def test_acls_follow_the_topic_once(cluster: Cluster) -> None:
    create(cluster, *BINDINGS)
    compared = follow_acls(cluster, cluster, NAMES, "shoal-1", FOLLOW, compare_only=True)
    missing = missing_at_destination(cluster, cluster, NAMES, "shoal-1", FOLLOW).missing
    done = follow_acls(cluster, cluster, NAMES, "shoal-1", FOLLOW)
    wait_until(lambda: set(missing) <= all_acls(cluster), "the created ACLs are there")
    after = follow_acls(cluster, cluster, NAMES, "shoal-1", FOLLOW)
    expected = [replace(BINDINGS[1], name="copy.synced"), replace(MAY_READ, name="copy.synced")]
    expected.append(replace(BINDINGS[3], pattern=PatternType.LITERAL, name="copy.synced"))
    assert (len(compared.changes), len(compared.differences)) == (0, len(expected))
    assert sorted(missing) == sorted(expected)
    assert not missing[0].allows
    assert (len(done.changes), done.differences, done.refused) == (1, [], [])
    assert (after.changes, after.differences) == ([], [])


def test_configurations_follow_the_topic_in_both_directions(cluster: Cluster) -> None:
    changes = {"retention.ms": "1000000", "segment.ms": "700000", "min.insync.replicas": "1"}
    assert alter_topic_configs(cluster, {"synced": changes}) == {}
    report = follow_configs(cluster, cluster, NAMES, FOLLOW)
    assert report.changes == ["topic copy.synced: retention.ms=1000000, segment.ms=700000, as at the source"]
    assert (report.differences, report.refused) == ([], [])
    assert follow_configs(cluster, cluster, NAMES, FOLLOW).changes == []
    assert alter_topic_configs(cluster, {"synced": {"segment.ms": None}}) == {}
    (change,) = follow_configs(cluster, cluster, NAMES, FOLLOW).changes
    assert "segment.ms has its default" in change
    copy = describe_topic_configs(cluster, ["copy.synced"])["copy.synced"]
    assert (copy["retention.ms"].value, copy["segment.ms"].set_on_topic) == ("1000000", False)


def test_refused_configuration_is_named(cluster: Cluster) -> None:
    refused = alter_topic_configs(cluster, {"synced": {"retention.ms": "soon"}})
    assert "INVALID_CONFIG" in str(refused["synced"])


def test_mirror_lets_configurations_and_acls_follow(cluster: Cluster, bootstrap: str, tmp_path: Path) -> None:
    create(cluster, BINDINGS[0])
    assert alter_topic_configs(cluster, {"synced": {"delete.retention.ms": "5000"}}) == {}
    clusters = ["--from", bootstrap, "--to", bootstrap, "--topics", "synced", "--rename", r"(.*)=copy.\1"]
    plan = json.loads(shoal("mirror", *clusters, "--dry-run", "--json", state=tmp_path).stdout)
    for difference in (
        "topic copy.synced: delete.retention.ms=5000",
        f"{replace(MAY_READ, name='copy.synced')}:",
    ):
        assert any(each.startswith(difference) for each in plan["differences"])
    done = shoal("mirror", *clusters, "--once", "--sync", "configs,acls", state=tmp_path)
    assert done.returncode == 0, done.stderr
    copy = describe_topic_configs(cluster, ["copy.synced"])["copy.synced"]
    assert copy["delete.retention.ms"].value == "5000"
    followed = replace(MAY_READ, name="copy.synced")
    wait_until(lambda: followed in all_acls(cluster), "the ACL of the copy is there")
    plan = json.loads(shoal("mirror", *clusters, "--dry-run", "--json", state=tmp_path).stdout)
    assert plan["differences"] == []
