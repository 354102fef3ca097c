"""A partition that is stuck does not delay the others, on real Kafka; a mirror ends in time.

One mirror copies the topics of all tests. If a test ends it, the next one starts another.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)

from rig import wait_until
from rig.cluster import KafkaCluster, start_in_parallel
from rig.read import digest_topic
from rig.shoal import Shoal, hasty
from shoal.topic_partition import TopicPartition

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

BROKERS = 3

#: If SIGSTOP stops a broker, it stays the leader of its partitions: it stalls, and is not replaced.
CONFIG = {
    "broker.session.timeout.ms": 600_000,
    "num.network.threads": 2,
    "num.io.threads": 4,
    # If a follower stalls, it is out of sync after 5 s instead of 30.
    "replica.lag.time.max.ms": 5_000,
}

#: Several windows pass while a partition is stuck: it must not delay their ends and beginnings either.
SLICE_S = 5
STUCK_FOR_S = 10.0

#: Interval between records of each partition.
INTERVAL_S = 0.05

#: Limit of an unaffected record's delay: far less than a request's timeout, 30 s.
LONGEST_DELAY_S = 12.0
USUAL_DELAY_S = 2.0

#: One partition on each broker, on both sides.
SPREAD = [TopicPartition("spread", number) for number in range(BROKERS)]

#: Led by broker 1 on both sides, so that all of these share requests. The first needs a follower, broker 2.
REPLICATED = TopicPartition("replicated", 0)
NEIGHBOURS = [TopicPartition("neighbours", number) for number in range(2)]
LIMITED, REFUSED = (TopicPartition("limited", number) for number in range(2))

TOPICS = ("spread", "replicated", "neighbours", "limited")
GROUP = "stuck"

#: From the command to the first record, on a busy machine.
START_WITHIN_S = 300.0


@contextmanager
def stalled(cluster: KafkaCluster, node_id: int) -> Iterator[None]:
    """Stop a broker's process: it neither answers nor disconnects."""
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


def bootstrap_from(cluster: KafkaCluster, node_id: int) -> str:
    """Return all bootstrap servers, a certain one first."""
    others = [each for each in cluster.node_ids if each != node_id]
    return ",".join(map(cluster.address, [node_id, *others]))


class Traffic:
    """Sends records to partitions of the source on request, and reads them at the destination.

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
                "group.id": "traffic",  # required by librdkafka, never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._consumer.assign([ConfluentPartition(*each, 0) for each in partitions])
        self.sent: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        #: Of each record: its number, its time of sending, and of arrival.
        self._arrived: dict[TopicPartition, list[tuple[int, float, float]]] = defaultdict(list)
        self._no_more = threading.Event()
        self._over = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Send continuously; then wait until everything has arrived, once and in order.

        The block begins when records of each partition arrive.
        """
        self._no_more.clear()
        sender = threading.Thread(target=self._send, daemon=True)
        before = dict(self.sent)
        sender.start()
        try:
            for partition in self._partitions:
                self._await(partition, before[partition] + 1, START_WITHIN_S)
            yield
        finally:
            self._no_more.set()
            sender.join()
        for partition in self._partitions:
            self._await(partition, self.sent[partition], 120.0)
            assert [number for number, _, _ in self._arrived[partition]] == list(range(self.sent[partition]))

    def _send(self) -> None:
        while not self._no_more.wait(INTERVAL_S):
            for partition in self._partitions:
                value = f"{self.sent[partition]} {time.monotonic()}".encode()
                self._producer.produce(partition.topic, value, partition=partition.partition)
                self.sent[partition] += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _receive(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is not None:
                    continue  # a broker is stopped; if a record never arrives, the end of `flowing` fails
                now = time.monotonic()
                number, sent = message.value().split()
                partition = TopicPartition(message.topic(), message.partition())
                self._arrived[partition].append((int(number), float(sent), now))

    def _await(self, partition: TopicPartition, records: int, timeout_s: float) -> None:
        def have_arrived() -> bool:
            return len(self._arrived[partition]) >= records

        wait_until(have_arrived, f"{records} records of {partition}", timeout_s)

    def go_on_for(self, seconds: float) -> tuple[float, float]:
        """Let traffic flow; return the beginning and the end of that time."""
        since = time.monotonic()
        wait_until(lambda: time.monotonic() - since >= seconds, "traffic", timeout_s=seconds + 60)
        return since, time.monotonic()

    def delays_s(self, partition: TopicPartition, sent_in: tuple[float, float]) -> list[float]:
        """Return the delays of records that were sent in a time; all of them have arrived."""
        since, until = sent_in
        return [arrived - sent for _, sent, arrived in self._arrived[partition] if since <= sent < until]

    def __enter__(self) -> Self:
        self._receiver.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._receiver.join()
        with closing(self._consumer):
            pass


class Setting:
    """Two clusters, traffic, and a mirror that runs if a test asks for it.

    Inside a ``with`` block.
    """

    def __init__(self, source: KafkaCluster, destination: KafkaCluster, state: Path) -> None:
        self.source = source
        self.destination = destination
        for cluster, replicated in ((source, [1]), (destination, [1, 2])):
            create(cluster, "spread", [[1], [2], [3]])
            create(cluster, "replicated", [replicated], min_insync_replicas=str(len(replicated)))
            create(cluster, "neighbours", [[1], [1]])
            create(cluster, "limited", [[1], [1]])
        self.traffic = Traffic(source, destination, *SPREAD, REPLICATED, *NEIGHBOURS, LIMITED)
        self._state = state
        self._running: Shoal | None = None

    def mirror(self) -> Shoal:
        """Return the running mirror, or start one."""
        if self._running is None:
            self._running = Shoal(
                "mirror",
                "--json",
                # The broker that stalls would otherwise be the first bootstrap server.
                *("--from", self.source.bootstrap, "--to", bootstrap_from(self.destination, 2)),
                *("--topics", ",".join(TOPICS), "--group", GROUP),
                state=self._state,
                program=hasty(places_look_s=SLICE_S, commit_interval_s=1.0),
            )
        return self._running

    def end_mirror(self) -> dict[str, Any]:
        """End it by SIGTERM, and return its summary."""
        mirror, self._running = self.mirror(), None
        with mirror:
            mirror.send_signal(signal.SIGTERM)
            return mirror.wait()

    def assert_same(self, *topics: str) -> None:
        for topic in topics:
            source, copy = (digest_topic(each.bootstrap, topic) for each in (self.source, self.destination))
            assert source == copy

    def __enter__(self) -> Self:
        self.traffic.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.traffic.__exit__()
        if self._running is not None:
            self._running.__exit__()


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    clusters = (KafkaCluster(brokers=BROKERS, config=CONFIG, heap="256m") for _ in range(2))
    with start_in_parallel(*clusters) as (source, destination):  # noqa: SIM117 -- the clusters run by now
        with Setting(source, destination, tmp_path_factory.mktemp("state")) as running:
            yield running


def wait(reasons: Mapping[TopicPartition, str], *, alone: bool = False) -> Callable[[dict[str, Any]], bool]:
    """Whether progress reports that these partitions wait; ``alone``: and that no other one waits."""

    def check(line: dict[str, Any]) -> bool:
        waiting = line["waiting"]
        if alone and waiting.keys() != {str(each) for each in reasons}:
            return False
        return all(reason in waiting.get(str(each), "") for each, reason in reasons.items())

    return check


def assert_unaffected(
    traffic: Traffic, partition: TopicPartition, before: tuple[float, float], meanwhile: tuple[float, float]
) -> None:
    """Check that a partition's records had the same delays while another was stuck."""
    usual, now = traffic.delays_s(partition, before), traffic.delays_s(partition, meanwhile)
    print(f"{partition}: {_in_ms(usual)}; meanwhile {_in_ms(now)}; load {os.getloadavg()[0]:.0f}")
    sent_for_s = meanwhile[1] - meanwhile[0]
    assert len(now) > sent_for_s / INTERVAL_S / 4  # the test itself had enough CPU
    assert max(now) < max(LONGEST_DELAY_S, 2 * max(usual))
    assert statistics.median(now) < max(USUAL_DELAY_S, 2 * statistics.median(usual))


def _in_ms(delays_s: Sequence[float]) -> str:
    usual, longest = statistics.median(delays_s) * 1000, max(delays_s) * 1000
    return f"{len(delays_s)} records in {usual:.0f} ms, at most {longest:.0f}"


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


def coordinator_of(cluster: KafkaCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    return int(admin.describe_consumer_groups([group])[group].result(60).coordinator.id)


def test_stalled_destination_broker_delays_only_its_partitions(
    setting: Setting,
) -> None:
    mirror, traffic, destination = setting.mirror(), setting.traffic, setting.destination
    stuck = {SPREAD[1]: destination.address(2), REPLICATED: "NOT_ENOUGH_REPLICAS"}
    with traffic.flowing():
        before = traffic.go_on_for(2 * SLICE_S)
        with stalled(destination, 2):
            began = time.monotonic()
            mirror.wait_for(wait(stuck), timeout_s=60)
            until = traffic.go_on_for(STUCK_FOR_S)[1]
            # And these alone: another may have waited for a moment.
            line = mirror.wait_for(wait(stuck, alone=True), timeout_s=30)
            assert line["stopped"] == {}
        mirror.wait_for(lambda line: not line["waiting"], timeout_s=90)
    for partition in (SPREAD[0], SPREAD[2], *NEIGHBOURS, LIMITED):
        assert_unaffected(traffic, partition, before, (began, until))
    setting.assert_same(*TOPICS)


@pytest.mark.long
def test_stalled_source_coordinator_delays_only_its_partitions(
    setting: Setting,
) -> None:
    mirror, traffic, source = setting.mirror(), setting.traffic, setting.source
    with traffic.flowing():
        before = traffic.go_on_for(2 * SLICE_S)
        coordinator = coordinator_of(source, GROUP)
        stuck = SPREAD[coordinator - 1]
        with stalled(source, coordinator):
            began = time.monotonic()
            mirror.wait_for(wait({stuck: source.address(coordinator)}), timeout_s=15)
            # Less than the session of the mirror's group.
            until = traffic.go_on_for(10.0)[1]
        mirror.wait_for(lambda line: not line["waiting"], timeout_s=90)
    for partition in SPREAD:
        if partition != stuck:
            assert_unaffected(traffic, partition, before, (began, until))
    ends = {each: log_end(setting.destination, each) for each in (*SPREAD, REPLICATED, *NEIGHBOURS, LIMITED)}
    wait_until(lambda: ends.items() <= committed(source, GROUP).items(), "the commit of all positions")
    setting.assert_same(*TOPICS)


@pytest.mark.long
def test_mirror_stops_in_time_while_a_leader_stalls(setting: Setting) -> None:
    traffic, destination = setting.traffic, setting.destination
    mirror = setting.mirror()
    with traffic.flowing():
        with stalled(destination, 2):
            mirror.wait_for(wait({SPREAD[1]: destination.address(2)}), timeout_s=60)
            summary = setting.end_mirror()
            assert mirror.exit_code == 0, mirror.stderr
            assert destination.address(2) in summary["waiting"][str(SPREAD[1])]
            positions = committed(setting.source, GROUP)
            for partition in (SPREAD[0], SPREAD[2]):
                # All batches are copied as they are, from offset 0 on: offsets are the same.
                behind = log_end(destination, partition) - positions[partition]
                # On a busy machine an answer may take longer than the mirror waits for it at its end
                # (Timing.end_patience_s). It names that partition, and the next mirror finds the batch.
                assert behind == 0 or (behind > 0 and str(partition) in summary["waiting"]), behind
        setting.mirror()
    setting.assert_same(*TOPICS)
