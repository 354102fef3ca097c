"""``--sync acls`` grants what concerns the mirrored topics and the selected groups, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rig import KafkaCluster, create_topic
from rig.wait import wait_until
from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource, create_acls, describe_acls
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.net.address import parse_bootstrap
from tests.integration.shared_spark import shoal
from tests.integration.test_groups import commit_at

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PREFIX = AclBinding(Resource.TOPIC, PatternType.PREFIXED, "o", "User:mallory", "*", AclOperation.READ, True)
DENIED = replace(PREFIX, principal="User:eve", allows=False)
GROUPS = AclBinding(Resource.GROUP, PatternType.LITERAL, "*", "User:*", "*", AclOperation.READ, True)
DENIED_GROUPS = replace(GROUPS, pattern=PatternType.PREFIXED, name="pay", allows=False)
ALL_GROUPS_BY_PREFIX = replace(GROUPS, pattern=PatternType.PREFIXED, name="app", principal="User:carol")
OF_SOURCE = {PREFIX, DENIED, GROUPS, DENIED_GROUPS, ALL_GROUPS_BY_PREFIX}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster that is both source and destination, with topics that only look like copies."""
    with KafkaCluster(config=AUTHORIZER) as kafka:
        for topic in ("orders", "copy.orders", "copy.ops-secrets"):
            create_topic(kafka.bootstrap, topic, partitions=1)
        for group in ("app", "pay", "*"):
            commit_at(kafka.bootstrap, group, "orders", {0: 0})
        yield kafka.bootstrap


@pytest.fixture(scope="module")
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientConfig("source", tuple(parse_bootstrap(bootstrap)))) as cluster:
        assert create_acls(cluster, OF_SOURCE) == {}
        wait_until(lambda: all_acls(cluster) == OF_SOURCE, "the source's ACLs are there")
        yield cluster


def all_acls(cluster: Cluster) -> set[AclBinding]:
    return {each for resource in Resource for each in describe_acls(cluster, resource)}


def literal(binding: AclBinding, name: str) -> AclBinding:
    return replace(binding, pattern=PatternType.LITERAL, name=name)


def mirror(bootstrap: str, state: Path, topics: str, *more: str) -> None:
    run = shoal(
        *("mirror", "--from", bootstrap, "--to", bootstrap, "--topics", topics, "--rename", r"(.*)=copy.\1"),
        *("--once", "--sync", "acls", *more),
        state=state,
    )
    assert run.returncode == 0, run.stderr


def test_prefixes_of_the_source_become_literals_of_copies(
    bootstrap: str, cluster: Cluster, tmp_path: Path
) -> None:
    expected = {literal(PREFIX, "copy.orders"), literal(DENIED, "copy.orders")}
    mirror(bootstrap, tmp_path, "orders")
    wait_until(lambda: all_acls(cluster) - OF_SOURCE >= expected, "the ACLs of the copy are there")
    assert all_acls(cluster) - OF_SOURCE == expected

    # A topic that is mirrored from now on. Both sides are one cluster, so the ACLs of groups have their
    # effect there already, and no other is created.
    create_topic(bootstrap, "orders.eu", partitions=1)
    mirror(bootstrap, tmp_path, "orders.*", "--groups", "(?!pay).*")
    expected |= {literal(PREFIX, "copy.orders.eu"), literal(DENIED, "copy.orders.eu")}
    wait_until(lambda: all_acls(cluster) - OF_SOURCE >= expected, "the further ACLs are there")
    assert all_acls(cluster) - OF_SOURCE == expected
