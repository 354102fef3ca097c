"""Faults of groups between real clusters; those at exact moments are in tests/mirroring/sync."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

import shoal
from rig import KafkaCluster, create_topic, wait_until
from rig.cluster import java_properties
from rig.consumers import GroupProtocol, consume
from rig.copying import Uncontrolled, run_copy_task
from rig.leaders import CONSUMER_OFFSETS, move_leaders
from rig.locked import LockedKafka, jaas
from shoal.client.cluster import Cluster, patiently
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.client.offsets import LATEST, list_offsets
from shoal.errors import ShoalError
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.group_selection import GroupSelection
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.sync import groups as rounds
from shoal.mirroring.sync.commit import commit_translations
from shoal.mirroring.sync.groups import GroupSync
from shoal.mirroring.sync.report import Action, GroupOffset
from shoal.net.address import parse_bootstrap
from tests.integration.shared_spark import shoal as run_shoal
from tests.integration.test_groups import PARTITIONS, commit_at, joined, load, values

pytestmark = pytest.mark.timeout(900)

#: Groups of a large cluster, and how often coordinators move while their offsets are translated.
THOUSANDS = 2_000
MOVES = 12


class Pair:
    """Two clusters, the position of a mirror of one topic between them, and the rounds of its groups."""

    def __init__(self, source: str, destination: str, topic: str, stack: ExitStack) -> None:
        self.topic = topic
        self.settings = CopySettings(
            ClientConfig("source", tuple(parse_bootstrap(source))),
            ClientConfig("destination", tuple(parse_bootstrap(destination))),
            f"mirror-of-{topic}",
            "rules",
        )
        self.source = stack.enter_context(Cluster(self.settings.source))
        self.destination = stack.enter_context(Cluster(self.settings.destination))
        create_topic(source, topic, PARTITIONS)
        create_topic(destination, topic, PARTITIONS)

    def mirror(self) -> None:
        """Copy up to the present ends."""
        self.source.refresh([self.topic])
        partitions = [shoal.TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        ends = list_offsets(
            self.source, dict.fromkeys(partitions, LATEST), self.settings.source.isolation_level
        )
        ranges = [
            CopyRange(self.topic, each.partition, self.topic, 0, end)
            for each, end in ends.items()
            if isinstance(end, int)
        ]
        assert run_copy_task(ranges, self.settings, Uncontrolled()).complete

    def sync(self, groups: str) -> GroupSync:
        return GroupSync(
            self.source,
            self.destination,
            self.settings,
            GroupSelection(groups),
        )

    def round(self, sync: GroupSync) -> list[GroupOffset]:
        report = sync.round({self.topic: self.topic}, apply=True)
        return [each for group in report.groups for each in group.offsets]

    def commit(self, cluster: Cluster, group: str, offset: int) -> None:
        key = shoal.TopicPartition(self.topic, 0)
        offsets = {key: Committed(offset, "")}
        # A cluster without groups creates their topic at the first request.
        assert patiently(lambda: commit_offsets(cluster, group, offsets, MemberId()), patience_s=30) == {}


@contextmanager
def pair_of(source: KafkaCluster, destination: KafkaCluster, topic: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        pair = Pair(source.bootstrap, destination.bootstrap, topic, stack)
        load(source.bootstrap, topic, Random(30), rounds=2)
        pair.mirror()
        yield pair


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.long), "consumer"])
def test_consumer_that_joins_between_a_translation_and_its_commit_is_left_alone(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    protocol: GroupProtocol,
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": destination_cluster.bootstrap,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )

    def joins(cluster: Cluster, group: str, rows: Sequence[GroupOffset]) -> list[GroupOffset]:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.2) is not None, "its first record", 60)
        return commit_translations(cluster, group, rows)

    with pair_of(source_cluster, destination_cluster, topic) as pair:
        commit_at(source_cluster.bootstrap, topic, topic, {0: 3})
        sync = pair.sync(re.escape(topic))
        with monkeypatch.context() as patched:
            patched.setattr(rounds, "commit_translations", joins)
            assert [each.action for each in pair.round(sync)] == [Action.ACTIVE]
        consumer.close()
        assert fetch_offsets(pair.destination, topic, None) == {}
        assert [each.action for each in pair.round(sync)] == [Action.WRITTEN]


@pytest.mark.long
def test_groups_follow_while_coordinators_of_both_clusters_move(topic: str) -> None:
    """No offset of the destination's own consumers is moved back, and no group is missed at the end."""
    followed, further = f"{topic}-followed", f"{topic}-further"
    with (
        KafkaCluster(brokers=3, heap="256m") as source,
        KafkaCluster(brokers=3, heap="256m") as destination,
        pair_of(source, destination, topic) as pair,
    ):
        first = shoal.TopicPartition(topic, 0)
        end = fetch_offsets(pair.source, pair.settings.group, [first])[first].offset
        sync = pair.sync(f"{topic}-.*")
        for cluster, offset in ((pair.source, 1), (pair.destination, 5)):
            pair.commit(cluster, further, offset)
        pair.commit(pair.source, followed, 0)
        moved = threading.Event()

        def move() -> None:
            for number in range(MOVES):
                cluster = (source, destination)[number % 2]
                move_leaders(cluster.bootstrap, CONSUMER_OFFSETS, 1)
            moved.set()

        moving = threading.Thread(target=move)
        moving.start()
        actions: set[Action] = set()
        while not moved.is_set():
            try:
                found = pair.round(sync)
            except ShoalError:
                continue  # the mirror's next round tries again
            actions |= {each.action for each in found if each.group == further}
        moving.join()
        assert actions <= {Action.FURTHER, Action.REFUSED}
        pair.commit(pair.source, followed, end)
        last = {each.group: each for each in pair.round(sync)}
        assert (last[followed].committed, last[followed].action) == (end, Action.WRITTEN)
        assert (last[further].present, last[further].action) == (5, Action.FURTHER)


@pytest.mark.long
def test_thousands_of_groups_follow_in_one_round_and_the_next_commits_nothing(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str
) -> None:
    with pair_of(source_cluster, destination_cluster, topic) as pair:
        for number in range(THOUSANDS):
            pair.commit(pair.source, f"{topic}-{number}", 1)
        sync = pair.sync(f"{topic}-.*")
        for action in (Action.WRITTEN, Action.UNCHANGED):
            offsets = pair.round(sync)
            assert len(offsets) == THOUSANDS
            assert {(each.action, each.exactness) for each in offsets} == {(action, Exactness.EXACT)}
        after = consume(destination_cluster.bootstrap, f"{topic}-7", [topic], reset="earliest")
        expected = values(source_cluster.bootstrap, topic)
        assert after == expected | {(topic, 0): expected[topic, 0][1:]}


def alter(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Reset the first partition of a group, as an operator does with Kafka's tool."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    (altered,) = admin.alter_consumer_group_offsets([wanted]).values()
    assert all(each.error is None for each in altered.result().topic_partitions)


def delete_group(bootstrap: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # without a name it would end before its future
    admin.delete_consumer_groups([group])[group].result()


def recreate(bootstrap: str, topic: str) -> None:
    """Delete a topic, and create it again once its offsets are gone, too."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic to be deleted")
    create_topic(bootstrap, topic, PARTITIONS)


def test_groups_follow_deletions_resets_and_topics_that_are_created_again(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    rng = Random(31)
    source, destination = source_cluster.bootstrap, destination_cluster.bootstrap
    create_topic(source, topic, PARTITIONS)
    load(source, topic, rng, rounds=6)  # the topic that takes its place stays shorter
    clusters = ("--from", source, "--to", destination, "--topics", topic)
    group = f"{topic}-app"

    def mirror(*more: str) -> int:
        return run_shoal("mirror", *clusters, "--once", *more, state=tmp_path).returncode

    def apply() -> Sequence[GroupOffset]:
        report = shoal.translate_offsets(source, destination, topic, re.escape(group), apply=True)
        (found,) = report.groups
        return found.offsets

    assert mirror() == 0
    # An operator resets the group, at one cluster and at the other.
    commit_at(source, group, topic, {0: 4})
    (row,) = apply()
    assert row.action is Action.WRITTEN
    alter(source, group, topic, 0)
    (row,) = apply()
    assert (row.translated, row.action) == (0, Action.WRITTEN)
    alter(destination, group, topic, 2)
    (row,) = apply()
    assert (row.present, row.action) == (2, Action.FURTHER)
    # The group is deleted at the destination.
    delete_group(destination, group)
    (row,) = apply()
    assert row.action is Action.WRITTEN
    # The source topic is created again, and the mirror continues behind the former records.
    delete_group(destination, group)
    recreate(source, topic)
    load(source, topic, rng, rounds=1)
    before = consume(source, group, [topic], most=3, reset="earliest")
    assert {each.action for each in apply()} == {Action.NO_POSITION}
    assert mirror("--continue-after", "source-reset") == 4
    offsets = apply()
    assert {(each.action, each.exactness) for each in offsets} == {(Action.WRITTEN, Exactness.EXACT)}
    begun = {each.partition.partition for each in offsets}
    after = consume(destination, group, [topic], reset="earliest")
    expected = values(source, topic)
    read = joined(before, after)
    for number in begun:
        assert read[topic, number] == expected[topic, number]
    # The copy is created again, and gets what the source writes from then on.
    recreate(destination, topic)
    assert {each.action for each in apply()} == {Action.NO_POSITION}
    load(source, topic, rng, rounds=1)
    assert mirror("--continue-after", "destination-loss,source-reset") in (0, 4)
    assert {each.action for each in apply()} == {Action.WRITTEN}


def test_refused_acls_and_groups_are_named_and_the_mirror_goes_on(
    locked_cluster: LockedKafka, topic: str, tmp_path: Path
) -> None:
    """Bob may copy the topic, and neither describe ACLs nor commit to the group."""
    kafka = locked_cluster.cluster.bootstrap
    create_topic(kafka, topic, PARTITIONS)
    create_topic(kafka, f"copy.{topic}", PARTITIONS)
    load(kafka, topic, Random(32), rounds=1)
    commit_at(kafka, f"{topic}-app", topic, {0: 1})
    locked_cluster.allow(
        "bob",
        ResourceType.TOPIC,
        f"copy.{topic}",
        *(AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
    )
    login = {
        "bootstrap.servers": locked_cluster.cluster.listener("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas("PLAIN", "bob"),
    }
    (tmp_path / "bob.properties").write_text(java_properties(login))
    (tmp_path / "bob.properties").chmod(0o600)
    done = run_shoal(
        *("mirror", "--from", kafka, "--to-config", str(tmp_path / "bob.properties"), "--topics", topic),
        *("--rename", r"(.*)=copy.\1", "--once", "--sync", "acls", "--groups", f"{topic}-.*"),
        state=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    expected = values(kafka, topic)
    for (_, number), copied in values(kafka, f"copy.{topic}").items():
        assert copied == expected[topic, number]
    assert "ACLs cannot follow: " in done.stderr
    assert f"'{topic}-app'" in done.stderr
    assert re.search(r"READ.*group", done.stderr)
