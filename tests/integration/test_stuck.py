"""A partition that is stuck is alone, on real Kafka: the others arrive as before; a mirror ends in time."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from rig import wait_until
from rig.cluster import KafkaCluster, start_in_parallel
from rig.load import load_batch
from rig.read import digest_topic
from rig.record import Record
from shoal.topic_partition import TopicPartition
from tests.integration.mirror_process import MirrorProcess

#: Longer than what it waits for itself, on a busy machine.
pytestmark = pytest.mark.timeout(900)

BROKERS = 3

#: A broker that is stopped by SIGSTOP stays the leader of what it leads: it stalls, and is not replaced.
CONFIG = {
    "broker.session.timeout.ms": 600_000,
    "num.network.threads": 2,
    "num.io.threads": 4,
    # A follower that stalls is out of sync after 5 s instead of 30.
    "replica.lag.time.max.ms": 5_000,
}

#: Several of these pass while something is stuck: it must not hold up their ends and beginnings either.
SLICE_S = 5
STUCK_FOR_S = 15.0

#: A record to each partition so often.
INTERVAL_S = 0.05

#: What an unaffected record may take while something is stuck: far less than a request's time-out, 30 s.
LONGEST_DELAY_S = 12.0
USUAL_DELAY_S = 2.0

#: From the command to the first record, on a busy machine.
START_WITHIN_S = 300.0

#: From SIGTERM to the end of the process: 3 s for the slice, and Spark's own end on a busy machine.
END_WITHIN_S = 12.0


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    clusters = (KafkaCluster(brokers=BROKERS, config=CONFIG, heap="256m") for _ in range(2))
    with start_in_parallel(*clusters) as (source, destination):
        yield source, destination


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all mirrors: from the second on they start sooner."""
    return tmp_path_factory.mktemp("state")


@contextmanager
def stalled(cluster: KafkaCluster, node_id: int) -> Iterator[None]:
    """Let a broker neither answer nor hang up."""
    process_id = cluster.process_id(node_id)
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


def create(cluster: KafkaCluster, topic: str, replicas: Sequence[Sequence[int]], **config: str) -> None:
    """Create a topic whose partitions are on certain brokers; the first of each leads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = NewTopic(
        topic,
        len(replicas),
        replica_assignment=[list(each) for each in replicas],
        config={name.replace("_", "."): value for name, value in config.items()},
    )
    admin.create_topics([wanted])[topic].result(60)

    def is_led() -> bool:
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(partitions) == len(replicas) and all(each.leader > 0 for each in partitions.values())

    wait_until(is_led, f"leaders of {topic}")


def configure(cluster: KafkaCluster, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def bootstrap_from(cluster: KafkaCluster, node_id: int) -> str:
    """Return all bootstrap servers, a certain one first."""
    others = [each for each in cluster.node_ids if each != node_id]
    return ",".join(map(cluster.address, [node_id, *others]))


class Traffic:
    """
    Sends records to partitions of the source all the time, and sees them arrive at the destination.

    Inside a ``with`` block.

    """

    def __init__(self, source: KafkaCluster, destination: KafkaCluster, *partitions: TopicPartition) -> None:
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": source.bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": destination.bootstrap,
                "group.id": "traffic",  # demanded by librdkafka, never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._consumer.assign([ConfluentPartition(*each, 0) for each in partitions])
        self.sent: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        #: Of each record: its number, when it was sent, when it arrived.
        self._arrived: dict[TopicPartition, list[tuple[int, float, float]]] = defaultdict(list)
        self._no_more = threading.Event()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]

    def _send(self) -> None:
        for number in itertools.count():
            for partition in self._partitions:
                value = f"{number} {time.monotonic()}".encode()
                self._producer.produce(partition.topic, value, partition=partition.partition)
                self.sent[partition] += 1
            self._producer.poll(0)
            if self._no_more.wait(INTERVAL_S):
                self._producer.flush(60)
                return

    def _receive(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is not None:
                    continue  # of a broker that is stopped; what does not arrive is found at the end
                now = time.monotonic()
                number, sent = message.value().split()
                partition = TopicPartition(message.topic(), message.partition())
                self._arrived[partition].append((int(number), float(sent), now))

    def arrived(self, partition: TopicPartition) -> int:
        return len(self._arrived[partition])

    def go_on_for(self, seconds: float) -> tuple[float, float]:
        """Let traffic flow; return from when to when."""
        since = time.monotonic()
        wait_until(lambda: time.monotonic() - since >= seconds, "traffic", timeout_s=seconds + 60)
        return since, time.monotonic()

    def delays_s(self, partition: TopicPartition, sent_in: tuple[float, float]) -> list[float]:
        """Return how long records took that were sent in a time; all of them have arrived."""
        since, until = sent_in
        return [arrived - sent for _, sent, arrived in self._arrived[partition] if since <= sent < until]

    def _has_all(self, partition: TopicPartition) -> bool:
        return self.arrived(partition) >= self.sent[partition]

    def has_any(self, partition: TopicPartition) -> bool:
        return self.arrived(partition) > 0

    def finish(self, timeout_s: float = 120.0) -> None:
        """Send no more; wait until everything has arrived, and check that it did once and in order."""
        self._no_more.set()
        self._threads[0].join()
        for partition in self._partitions:
            wait_until(
                partial(self._has_all, partition),
                f"the rest of {partition}",
                timeout_s,
            )
        for partition in self._partitions:
            assert [number for number, _, _ in self._arrived[partition]] == list(range(self.sent[partition]))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._no_more.set()
        self._over.set()
        for thread in self._threads:
            thread.join()
        with closing(self._consumer):
            pass


def run_mirror(source: str, destination: str, topics: str, state: Path, *more: str) -> MirrorProcess:
    return MirrorProcess(
        *("--from", source, "--to", destination, "--topics", topics, "--slice", str(SLICE_S), *more),
        state=state,
    )


def names(partition: TopicPartition, what: str) -> Callable[[dict[str, Any]], bool]:
    """Whether progress says that a partition waits for something."""
    return lambda line: what in line["waiting"].get(str(partition), "")


def names_only(partition: TopicPartition, what: str) -> Callable[[dict[str, Any]], bool]:
    """Whether progress says that of all partitions this one alone waits, and for that."""
    is_named = names(partition, what)
    return lambda line: is_named(line) and line["waiting"].keys() == {str(partition)}


def await_flow(traffic: Traffic, *partitions: TopicPartition) -> None:
    for partition in partitions:
        wait_until(partial(traffic.has_any, partition), str(partition), START_WITHIN_S)


def assert_unaffected(
    traffic: Traffic, partition: TopicPartition, before: tuple[float, float], meanwhile: tuple[float, float]
) -> None:
    """Check that records of a partition arrived in no other time while another was stuck."""
    usual, now = traffic.delays_s(partition, before), traffic.delays_s(partition, meanwhile)
    print(f"{partition}: {_in_ms(usual)}; meanwhile {_in_ms(now)}; load {os.getloadavg()[0]:.0f}")
    sent_for_s = meanwhile[1] - meanwhile[0]
    assert len(now) > sent_for_s / INTERVAL_S / 4  # the test itself was not starved
    assert max(now) < max(LONGEST_DELAY_S, 2 * max(usual))
    assert statistics.median(now) < max(USUAL_DELAY_S, 2 * statistics.median(usual))


def _in_ms(delays_s: Sequence[float]) -> str:
    usual, longest = statistics.median(delays_s) * 1000, max(delays_s) * 1000
    return f"{len(delays_s)} records in {usual:.0f} ms, at most {longest:.0f}"


def assert_same(source: KafkaCluster, destination: KafkaCluster, *topics: str) -> None:
    for topic in topics:
        assert digest_topic(source.bootstrap, topic) == digest_topic(destination.bootstrap, topic)


def one_on_each(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(BROKERS)]


def test_a_destination_leader_that_stalls_holds_up_its_own_partitions_only(
    both: tuple[KafkaCluster, KafkaCluster], topic: str, state: Path
) -> None:
    source, destination = both
    for cluster in both:
        create(cluster, topic, [[1], [2], [3]])
    first, stuck, last = one_on_each(topic)
    # The one that stalls is the first that anybody would ask.
    with (
        run_mirror(source.bootstrap, bootstrap_from(destination, 2), topic, state) as mirror,
        Traffic(source, destination, first, stuck, last) as traffic,
    ):
        await_flow(traffic, first, stuck, last)
        before = traffic.go_on_for(2 * SLICE_S)
        with stalled(destination, 2):
            began = time.monotonic()
            mirror.wait_for(names(stuck, destination.address(2)), timeout_s=60)
            until = traffic.go_on_for(STUCK_FOR_S)[1]
            # And it alone: another may have waited for a moment.
            line = mirror.wait_for(names_only(stuck, destination.address(2)), timeout_s=30)
            assert line["stopped"] == {}
        mirror.wait_for(lambda line: not line["waiting"], timeout_s=60)
        traffic.finish()
        for partition in (first, last):
            assert_unaffected(traffic, partition, before, (began, until))
        mirror.send_signal(signal.SIGTERM)
        summary = mirror.wait()
    assert mirror.exit_code == 0, mirror.stderr
    assert summary["waiting"] == {}
    assert_same(source, destination, topic)


def test_a_partition_without_enough_replicas_does_not_hold_up_its_neighbours(
    both: tuple[KafkaCluster, KafkaCluster], topic: str, state: Path
) -> None:
    """Neighbours of the same leaders: they are fetched and sent in the same requests."""
    source, destination = both
    create(source, f"{topic}.well", [[1], [1]])
    create(source, f"{topic}.stuck", [[1]])
    create(destination, f"{topic}.well", [[1], [1]])
    create(destination, f"{topic}.stuck", [[1, 2]], min_insync_replicas="2")
    stuck = TopicPartition(f"{topic}.stuck", 0)
    well = [TopicPartition(f"{topic}.well", number) for number in range(2)]
    with (
        run_mirror(source.bootstrap, destination.bootstrap, rf"{topic}\..*", state) as mirror,
        Traffic(source, destination, stuck, *well) as traffic,
    ):
        await_flow(traffic, stuck, *well)
        before = traffic.go_on_for(2 * SLICE_S)
        with stalled(destination, 2):  # a follower
            began = time.monotonic()
            mirror.wait_for(names(stuck, "NOT_ENOUGH_REPLICAS"), timeout_s=60)
            until = traffic.go_on_for(STUCK_FOR_S)[1]
            line = mirror.wait_for(names_only(stuck, "NOT_ENOUGH_REPLICAS"), timeout_s=30)
            assert line["stopped"] == {}
        mirror.wait_for(lambda line: not line["waiting"], timeout_s=90)
        traffic.finish()
        for partition in well:
            assert_unaffected(traffic, partition, before, (began, until))
        mirror.send_signal(signal.SIGTERM)
        mirror.wait()
    assert mirror.exit_code == 0, mirror.stderr
    assert_same(source, destination, f"{topic}.well", f"{topic}.stuck")


def test_a_partition_that_is_refused_for_good_stops_by_name_and_the_others_go_on(
    both: tuple[KafkaCluster, KafkaCluster], topic: str, state: Path
) -> None:
    source, destination = both
    for cluster in both:
        create(cluster, topic, [[1], [1]])
    well, refused = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with (
        run_mirror(source.bootstrap, destination.bootstrap, topic, state) as mirror,
        Traffic(source, destination, well) as traffic,
    ):
        await_flow(traffic, well)
        configure(destination, topic, "max.message.bytes", "20000")  # a mirror does not begin with that
        before = traffic.go_on_for(2 * SLICE_S)
        began = time.monotonic()
        small, large = (Record(None, bytes(size), (), 1_600_000_000_000) for size in (100, 50_000))
        load_batch(source.bootstrap, topic, refused.partition, [small])
        load_batch(source.bootstrap, topic, refused.partition, [large])
        load_batch(source.bootstrap, topic, refused.partition, [small])
        line = mirror.wait_for(lambda line: str(refused) in line["stopped"], timeout_s=60)
        until = traffic.go_on_for(3 * SLICE_S)[1]
        assert "MESSAGE_TOO_LARGE" in line["stopped"][str(refused)]
        assert "raise max.message.bytes of the destination topic" in line["stopped"][str(refused)]
        traffic.finish()
        assert_unaffected(traffic, well, before, (began, until))
        mirror.send_signal(signal.SIGTERM)
        summary = mirror.wait()
    assert mirror.exit_code == 1
    assert summary["stopped"].keys() == {str(refused)}
    counts = {number: each.count for number, each in digest_topic(destination.bootstrap, topic).items()}
    assert counts == {0: traffic.sent[well], 1: 1}  # what came before the batch, and nothing behind it


def committed(source: KafkaCluster, group: str) -> dict[TopicPartition, int]:
    admin = AdminClient({"bootstrap.servers": source.bootstrap, "log_level": 0})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {
        TopicPartition(each.topic, each.partition): each.offset
        for each in asked[group].result(60).topic_partitions
    }


def log_end(cluster: KafkaCluster, partition: TopicPartition) -> int:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "traffic", "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        _, end = consumer.get_watermark_offsets(ConfluentPartition(*partition), timeout=30)
    return int(end)


def test_a_mirror_ends_in_time_while_a_leader_stalls_and_goes_on_from_there(
    both: tuple[KafkaCluster, KafkaCluster], topic: str, state: Path
) -> None:
    source, destination = both
    for cluster in both:
        create(cluster, topic, [[1], [2], [3]])
    first, stuck, last = one_on_each(topic)
    ends = (source.bootstrap, bootstrap_from(destination, 2), topic, state)
    with Traffic(source, destination, first, stuck, last) as traffic:
        with run_mirror(*ends) as mirror:
            await_flow(traffic, first, stuck, last)
            with stalled(destination, 2):
                mirror.wait_for(names(stuck, destination.address(2)), timeout_s=60)
                asked = time.monotonic()
                mirror.send_signal(signal.SIGTERM)
                summary = mirror.wait()
                took_s = time.monotonic() - asked
                print(f"SIGTERM to the end: {took_s:.1f} s, load {os.getloadavg()[0]:.0f}")
                assert mirror.exit_code == 0, mirror.stderr
                assert destination.address(2) in summary["waiting"][str(stuck)]
                positions = committed(source, summary["group"])
                for partition in (first, last):
                    # All batches are copied as they are, from offset 0 on: offsets are the same.
                    assert positions[partition] == log_end(destination, partition)
            assert took_s < END_WITHIN_S
        with run_mirror(*ends) as mirror:
            traffic.finish()
            mirror.send_signal(signal.SIGTERM)
            mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
    assert_same(source, destination, topic)


def coordinator_of(cluster: KafkaCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    return int(admin.describe_consumer_groups([group])[group].result(60).coordinator.id)


def test_a_source_broker_that_stalls_holds_up_what_it_leads_only_although_it_keeps_the_positions(
    both: tuple[KafkaCluster, KafkaCluster], topic: str, state: Path
) -> None:
    source, destination = both
    for cluster in both:
        create(cluster, topic, [[1], [2], [3]])
    partitions = one_on_each(topic)
    more = ("--group", topic, "--commit-interval-ms", "1000")
    with (
        run_mirror(source.bootstrap, destination.bootstrap, topic, state, *more) as mirror,
        Traffic(source, destination, *partitions) as traffic,
    ):
        await_flow(traffic, *partitions)
        before = traffic.go_on_for(2 * SLICE_S)
        coordinator = coordinator_of(source, topic)
        stuck = partitions[coordinator - 1]
        well = [each for each in partitions if each != stuck]
        with stalled(source, coordinator):
            began = time.monotonic()
            mirror.wait_for(names(stuck, source.address(coordinator)), timeout_s=15)
            # Less than the session of the mirror's group.
            until = traffic.go_on_for(10.0)[1]
        mirror.wait_for(lambda line: not line["waiting"], timeout_s=90)
        traffic.finish()
        for partition in well:
            assert_unaffected(traffic, partition, before, (began, until))
        mirror.send_signal(signal.SIGTERM)
        summary = mirror.wait()
    assert mirror.exit_code == 0, mirror.stderr
    assert summary["waiting"] == {}
    positions = committed(source, topic)
    assert positions == {each: log_end(destination, each) for each in partitions}
    assert_same(source, destination, topic)
