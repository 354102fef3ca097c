"""Several batches of a partition in a request between real clusters: with the agent, and without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rig import KafkaCluster, assert_same_records, create_topic, dump_partition, read_topic, wait_until
from rig.agent import agent_jar
from rig.cluster import QUICK_JVM
from rig.load import CODECS, await_leaders, load_batches
from rig.made_records import random_records
from rig.proxy import Disturbance, Proxies, Step
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.multi_batch import marked, query_multi_batch
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.net.address import parse_bootstrap
from shoal.protocol.apis import ApiKey
from shoal.timing import DEFAULT_TIMING
from shoal.topic_partition import TopicPartition
from tests.world.control import Watched
from tests.world.task import run_copy_task

pytestmark = pytest.mark.timeout(600)

#: Number of requests that ask for support.
QUESTIONS = 2
BATCHES = 60
LEADER, FOLLOWER = 2, 1
WHOLE_LOG = 10**9


@pytest.fixture(scope="module")
def destination() -> Iterator[KafkaCluster]:
    """Two brokers with the agent; only the follower is a controller, and never killed."""
    agent = [f"-javaagent:{agent_jar()}"]
    with KafkaCluster(
        brokers=2, broker_jvm={LEADER: agent, FOLLOWER: agent}, jvm=QUICK_JVM, behind_proxies=True
    ) as cluster:
        yield cluster


@pytest.fixture
def proxies(destination: KafkaCluster) -> Iterator[Proxies]:
    with Proxies(destination.proxied_ports) as running:
        yield running


def client(name: str, servers: str) -> ClientConfig:
    return ClientConfig(name, tuple(parse_bootstrap(servers)), request_timeout_ms=10_000)


def load(source: KafkaCluster, topic: str, batches: int = BATCHES) -> int:
    """Load batches of two records, with every codec; return the number of records."""
    dice = Random(topic)
    load_batches(
        source.bootstrap,
        topic,
        ((0, random_records(dice, 2, 40), CODECS[number % len(CODECS)]) for number in range(batches)),
    )
    return batches * 2


def create_both(source: KafkaCluster, destination: KafkaCluster, topic: str) -> None:
    create_topic(source.bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": destination.bootstrap, "log_level": 0})
    new = NewTopic(topic, replica_assignment=[[LEADER, FOLLOWER]], num_partitions=1)
    admin.create_topics([new])[topic].result()
    for node_id in (LEADER, FOLLOWER):
        wait_until(partial(knows, destination.address(node_id), topic), f"{topic} at {node_id}")
    await_leaders(destination.bootstrap, topic)


def knows(address: str, topic: str) -> bool:
    """Whether a broker returns the leader of a topic's only partition."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    found = admin.list_topics(timeout=10).topics.get(topic)
    return found is not None and 0 in found.partitions and found.partitions[0].leader == LEADER


def copy(settings: CopySettings, topic: str, records: int) -> Watched:
    control = Watched()
    result = run_copy_task([CopyRange(topic, 0, topic, 0, records)], settings, control)
    assert (result.complete, result.stopped) == (True, ()), control.waited_for
    return control


def settings_of(source: KafkaCluster, servers: str, topic: str) -> CopySettings:
    return CopySettings(
        client("source", source.bootstrap),
        client("destination", servers),
        topic,
        "rules",
        timing=replace(DEFAULT_TIMING, commit_interval_s=0.001),
    )


def assert_same(source: KafkaCluster, destination: KafkaCluster, topic: str) -> None:
    assert_same_records(read_topic(source.bootstrap, topic), read_topic(destination.bootstrap, topic))


def test_batches_are_sent_together_unchanged(
    source_cluster: KafkaCluster, destination: KafkaCluster, proxies: Proxies, topic: str
) -> None:
    create_both(source_cluster, destination, topic)
    records = load(source_cluster, topic)
    settings = settings_of(source_cluster, proxies.bootstrap, topic)
    copy(settings, topic, records)
    assert proxies.responses(ApiKey.PRODUCE) <= QUESTIONS + 3
    assert_same(source_cluster, destination, topic)
    theirs = dump_partition(source_cluster.partition_dir(topic, 0))
    ours = dump_partition(destination.partition_dir(topic, 0, LEADER))
    assert [each.base_offset for each in ours] == [each.base_offset for each in theirs]
    assert [each.base_sequence for each in ours] == [each.base_offset for each in ours]
    assert [each.codec for each in ours] == [each.codec for each in theirs]


@pytest.mark.parametrize(
    "step", [pytest.param(Step.BEFORE_REQUEST, marks=pytest.mark.long), Step.AFTER_REQUEST]
)
def test_leader_killed_with_batches_in_flight_leaves_an_exact_copy(
    source_cluster: KafkaCluster, destination: KafkaCluster, proxies: Proxies, topic: str, step: Step
) -> None:
    create_both(source_cluster, destination, topic)
    records = load(source_cluster, topic)
    met = Disturbance(ApiKey.PRODUCE, step, after=QUESTIONS, stall_s=2.0)
    proxies.disturb(met)

    def kill() -> None:
        wait_until(lambda: met.hits > 0, "the request with many batches")
        destination.kill(LEADER)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        copy(settings_of(source_cluster, proxies.bootstrap, topic), topic, records)
    finally:
        killer.join()
        destination.start(LEADER)
    assert met.hits == 1
    assert_same(source_cluster, destination, topic)


def test_stock_broker_is_probed_and_receives_single_batches(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str
) -> None:
    for each in (source_cluster, destination_cluster):
        create_topic(each.bootstrap, topic)
    records = load(source_cluster, topic, 12)
    settings = settings_of(source_cluster, destination_cluster.bootstrap, topic)
    said_before = destination_cluster.output(1, WHOLE_LOG)  # by tests before this one
    with Cluster(settings.destination) as cluster:
        cluster.refresh([topic])
        assert not any(read_topic(destination_cluster.bootstrap, topic).values())
    assert "ERROR" not in destination_cluster.output(1, WHOLE_LOG).removeprefix(said_before)
    copy(settings, topic, records)
    assert_same(source_cluster, destination_cluster, topic)


def test_probe_of_a_follower_is_answered_and_leaves_nothing(
    destination: KafkaCluster, source_cluster: KafkaCluster, topic: str
) -> None:
    create_both(source_cluster, destination, topic)
    partition = TopicPartition(topic, 0)
    with Cluster(client("destination", destination.bootstrap)) as cluster:
        cluster.refresh([topic])
        for node_id in (LEADER, FOLLOWER):
            for client_id, takes in ((marked("shoal"), True), ("shoal", False)):
                with cluster.connect(node_id, client_id=client_id) as connection:
                    assert query_multi_batch(connection, {partition: None}) == {partition: takes}
    assert not any(read_topic(destination.bootstrap, topic).values())
    assert dump_partition(destination.partition_dir(topic, 0, LEADER)) == []
