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
from confluent_kafka.admin import AclOperation as ConfluentOperation

from rig import create_topic
from rig.locked import LockedKafka
from rig.wait import wait_until
from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource, create_acls, describe_acls
from shoal.client.admin import alter_topic_configs, describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.net.address import parse_bootstrap
from tests.integration.shared_spark import shoal

NAMES = {"synced": "copy.synced"}
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


def test_mirror_lets_configurations_and_acls_follow(cluster: Cluster, bootstrap: str, tmp_path: Path) -> None:
    create(cluster, *BINDINGS)
    assert alter_topic_configs(cluster, {"synced": {"delete.retention.ms": "5000"}}) == {}
    clusters = ["--from", bootstrap, "--to", bootstrap, "--topics", "synced", "--rename", r"(.*)=copy.\1"]

    def differences() -> list[str]:
        plan = shoal("mirror", *clusters, "--dry-run", "--json", state=tmp_path).stdout
        found: list[str] = json.loads(plan)["differences"]
        return found

    followed = {
        replace(each, name="copy.synced", pattern=PatternType.LITERAL)
        for each in (BINDINGS[0], BINDINGS[1], BINDINGS[3])
    }
    before = differences()
    for difference in ("topic copy.synced: delete.retention.ms=5000", *(f"{each}:" for each in followed)):
        assert any(each.startswith(difference) for each in before)
    done = shoal("mirror", *clusters, "--once", "--sync", "configs,acls", state=tmp_path)
    assert done.returncode == 0, done.stderr
    copy = describe_topic_configs(cluster, ["copy.synced"])["copy.synced"]
    assert copy["delete.retention.ms"].value == "5000"
    wait_until(
        lambda: {each for each in all_acls(cluster) if each.name == "copy.synced"} == followed,
        "the ACLs of the copy",
    )
    assert differences() == []
