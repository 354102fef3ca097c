"""The ACLs that ``--dry-run`` lists, and its effects, against real Kafka with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
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
from rig.locked import LockedKafka, jaas
from rig.read import digest_topic
from rig.wait import wait_until
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.mirroring.assignment import end_offsets, partitions_of
from shoal.mirroring.driver.group_lock import GroupLock
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.create import prepare
from tests.copying import Uncontrolled, run_copy_task
from tests.integration.shared_spark import shoal
from tests.integration.test_rights import grant

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

TOPIC, COPY = "orders", "copy.orders"

#: For a mirror that has its ACLs; if one is refused, it retries by itself.
PATIENCE_S = 60
RENAME = r"(.*)=copy.\1"


@pytest.fixture
def kafka(locked_cluster: LockedKafka) -> Iterator[LockedKafka]:
    """A cluster in which Bob has no ACLs, before and after the test."""
    create_topic(locked_cluster.cluster.bootstrap, TOPIC, partitions=2)
    load(locked_cluster)
    acls = Acls(locked_cluster)
    acls.remove_all()
    yield locked_cluster
    acls.remove_all()


def load(kafka: LockedKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.cluster.bootstrap})
    for number in range(100):
        producer.produce(TOPIC, f"record {number}", partition=number % 2)
    assert producer.flush(60) == 0


def properties(kafka: LockedKafka, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.cluster.listener("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas("PLAIN", user),
    }


def written(path: Path, values: Mapping[str, str]) -> str:
    path.write_text(java_properties(values))
    path.chmod(0o600)
    return str(path)


def arguments(kafka: LockedKafka, user: str, directory: Path) -> list[str]:
    file = written(directory / f"{user}.properties", properties(kafka, user))
    return ["mirror", "--from-config", file, "--to-config", file, "--topics", TOPIC, "--rename", RENAME]


def planned(kafka: LockedKafka, directory: Path) -> dict[str, Any]:
    """Return the output of a dry run by Alice, who may do everything."""
    run = shoal(*arguments(kafka, "alice", directory), "--dry-run", "--once", "--json", state=directory)
    assert (run.returncode, run.stderr) == (0, "")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


class Acls:
    """The ACLs of a user at the brokers."""

    def __init__(self, kafka: LockedKafka, user: str = "bob") -> None:
        self._kafka = kafka
        self._user = user
        self._admin = AdminClient({"bootstrap.servers": kafka.cluster.bootstrap})

    def are(self, wanted: set[tuple[str, str, str]]) -> bool:
        return self.all() == wanted

    def lack(self, *acl: str) -> bool:
        return acl not in self.all()

    def all(self) -> set[tuple[str, str, str]]:
        found = self._kafka.acls_of(self._user)
        return {(_TYPE_NAMES[each.restype], each.name, each.operation.name) for each in found}

    def remove_all(self) -> None:
        self._kafka.forbid_everything(self._user)

    def remove(self, resource_type: str, name: str, operation: str) -> None:
        one = AclBindingFilter(
            _TYPES[resource_type],
            name,
            ResourcePatternType.LITERAL,
            f"User:{self._user}",
            None,
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        assert len(self._admin.delete_acls([one])[one].result(30)) == 1

    def add(self, resource_type: str, name: str, operation: str) -> None:
        self._kafka.allow(self._user, _TYPES[resource_type], name, AclOperation[operation])


_TYPES = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}
_TYPE_NAMES = {value: key for key, value in _TYPES.items()}


def mirrored(kafka: LockedKafka, group: str) -> list[str]:
    """Act as a mirror under Bob's name, without Spark; return the warnings and the reasons for stops."""
    source, destination = (
        ClientConfig.from_properties(name, properties(kafka, "bob"))[0] for name in ("source", "destination")
    )
    options = MirrorOptions(source, destination, TopicSelection(TOPIC, rename=RENAME), group=group)
    complaints: list[str] = []
    try:
        with Cluster(source) as left, Cluster(destination) as right:
            complaints += prepare(options, left, right, patience_s=10.0).warnings
            partitions = partitions_of(left, [TOPIC])
            ends = end_offsets(left, partitions, source.isolation_level)
        with GroupLock(source, group, "test", lambda *_: None) as lock:
            lock.acquire(partitions, 10.0)
        ranges = [CopyRange(TOPIC, each.partition, COPY, 0, ends[each]) for each in partitions]
        result = run_copy_task(
            ranges, CopySettings(source, destination, group, options.rules()), Uncontrolled()
        )
        complaints += map(str, result.stopped)
    except ShoalError as error:
        complaints.append(str(error))
    return complaints


def dry_run_of_bob(kafka: LockedKafka, directory: Path) -> str:
    return shoal(*arguments(kafka, "bob", directory), "--dry-run", state=directory).stderr


def _complaint_of(acl: tuple[str, str, str]) -> str:
    resource_type, name, operation = acl
    if resource_type == "cluster":
        return f"allow {operation} on the cluster"
    return f"{resource_type} {name}"


@pytest.mark.long
def test_printed_acls_are_sufficient_and_each_is_needed(kafka: LockedKafka, tmp_path: Path) -> None:
    found = planned(kafka, tmp_path)
    group = found["group"]["name"]
    printed = {(acl["resource_type"], acl["resource"], acl["operation"]) for acl in found["acls"]}
    acls = Acls(kafka)
    grant(kafka, found["acl_commands"], tmp_path)
    wait_until(lambda: acls.all() == printed, "the broker to know the ACLs")

    # Without CREATE the missing copy stays missing; with it, the mirror succeeds without a warning.
    creation = ("topic", COPY, "CREATE")
    acls.remove(*creation)
    wait_until(lambda: acls.all() == printed - {creation}, "the broker to know that")
    wait_until(
        lambda: any("TOPIC_AUTHORIZATION_FAILED" in each for each in mirrored(kafka, group)),
        "a mirror that may not create its copy",
        PATIENCE_S,
    )
    assert COPY not in AdminClient({"bootstrap.servers": kafka.cluster.bootstrap}).list_topics().topics
    acls.add(*creation)
    wait_until(lambda: acls.all() == printed, "the broker to know the ACLs")
    run = shoal(*arguments(kafka, "bob", tmp_path), "--once", "--json", state=tmp_path)
    assert run.returncode == 0, run.stderr
    # The cluster may delay its first producer id; nothing else causes a warning.
    assert all("producer id" in line for line in run.stderr.splitlines()), run.stderr
    assert_copied(kafka, 100)

    # If one of the others is missing, a running mirror fails, and so does a dry run of the same user.
    for acl in sorted(printed - {creation}):
        load(kafka)
        acls.remove(*acl)
        # Otherwise the mirror would copy everything, and no longer need the ACL.
        wait_until(partial(acls.are, printed - {acl}), "the broker to know that")
        wait_until(lambda: bool(mirrored(kafka, group)), f"a mirror without {acl} to complain", PATIENCE_S)
        assert _complaint_of(acl).casefold() in dry_run_of_bob(kafka, tmp_path).casefold()
        acls.add(*acl)
        wait_until(lambda: acls.all() == printed, "the broker to know the ACLs")
        wait_until(lambda: not mirrored(kafka, group), "a mirror without warnings or stops", PATIENCE_S)
    assert dry_run_of_bob(kafka, tmp_path) == ""
    # If all topics exist, no mirror needs CREATE.
    acls.remove(*creation)
    wait_until(lambda: acls.all() == printed - {creation}, "the broker to know that")
    load(kafka)
    assert mirrored(kafka, group) == []
    assert_copied(kafka, 100 * (len(printed) + 1))


def assert_copied(kafka: LockedKafka, records: int) -> None:
    source, copy = (digest_topic(kafka.cluster.bootstrap, each) for each in (TOPIC, COPY))
    assert source == copy
    assert sum(each.count for each in source.values()) == records


def test_dry_run_leaves_the_cluster_unchanged(tmp_path: Path) -> None:
    with KafkaCluster() as cluster:
        create_topic(cluster.bootstrap, TOPIC)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        run = shoal(
            *("mirror", "--from", cluster.bootstrap, "--to", cluster.bootstrap, "--dry-run"),
            *("--topics", TOPIC, "--rename", RENAME),
            state=tmp_path,
        )
        assert (run.returncode, run.stderr) == (0, "")
        assert f"{TOPIC}  {COPY}" in run.stdout
        # Not even Kafka's own topic for groups.
        assert set(admin.list_topics(timeout=30).topics) == {TOPIC}
        assert admin.list_consumer_groups().result(30).valid == []
        assert list(tmp_path.rglob("*")) == []
