"""Half an hour of many batches in a request, during leader failures: every record once, in order."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rig import KafkaCluster, wait_until
from rig.agent import agent_jar, newest_of_each_line
from rig.jars import KAFKA_VERSION
from rig.process import peak_rss_of
from shoal.errors import ShoalError
from shoal.records import split
from tests.integration.raw_producer import ALL_CODECS, Identity, RawProducer

SOAK_S = float(os.environ.get("SHOAL_AGENT_SOAK_S", "1800"))

MOST_IN_FLIGHT = 5

#: Before each response: limits the log to a size that can be read again in minutes.
PAUSE_S = 0.03

#: Between two disturbances; a killed broker may register again after its session of 4 s.
QUIET_S = 20.0

#: Transient errors, after which a request is sent again: the leader moved, or its followers are late.
PASSING = frozenset({3, 5, 6, 7, 19, 20, 74, 75})


@dataclass
class Writer:
    """Writes to one partition, and records its expected contents.

    Attributes:
        counts: Number of the records in each batch, in order.
        pending: Unacknowledged requests: the sequence of each, and its batches.
    """

    kafka: KafkaCluster
    topic: str
    partition: int
    random: Random
    next_sequence: int = 0
    counts: array[int] = field(default_factory=lambda: array("B"))
    pending: deque[tuple[int, list[bytearray]]] = field(default_factory=deque)
    connections: int = 0
    requests: int = 0

    def run(self, over: threading.Event) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        deadline = time.monotonic() + SOAK_S + 300
        while (not over.is_set() or self.pending) and time.monotonic() < deadline:
            with (
                suppress(ShoalError, KafkaException, OSError),
                RawProducer(self.kafka.address(self._leader(admin))) as producer,
            ):
                self.connections += 1
                self._write(producer, over)
            over.wait(0.2)
        assert not self.pending, f"partition {self.partition} was not written to its end"

    def _leader(self, admin: AdminClient) -> int:
        # If a broker has just started, it may not have all of them yet.
        found = admin.list_topics(self.topic, timeout=5).topics[self.topic].partitions.get(self.partition)
        if found is None or found.leader < 1:
            raise OSError("no leader")
        return int(found.leader)

    def _write(self, producer: RawProducer, over: threading.Event) -> None:
        """Resend the unacknowledged requests, in order, and continue, until one fails."""
        for _, batches in self.pending:
            producer.send(self.topic, batches, partition=self.partition)
        in_flight = len(self.pending)
        while in_flight or not over.is_set():
            while in_flight < MOST_IN_FLIGHT and not over.is_set():
                batches = self._more()
                producer.send(self.topic, batches, partition=self.partition)
                in_flight += 1
            over.wait(PAUSE_S)
            outcome = producer.receive()
            in_flight -= 1
            if outcome.error_code in PASSING:
                return
            sequence, _ = self.pending.popleft()
            assert outcome[2:4] == (0, sequence), outcome
            self.requests += 1

    def _more(self) -> list[bytearray]:
        first, batches = self.next_sequence, []
        for _ in range(self.random.choice((1, 2, 5, 20, 50))):
            records = self.random.randint(1, 8)
            codec = self.random.choice(ALL_CODECS)
            identity = Identity(producer_id=4_000_000 + self.partition)
            batches.append(identity.batch(self.next_sequence, records, codec))
            self.counts.append(records)
            self.next_sequence += records
        self.pending.append((first, batches))
        return batches

    def batches(self) -> Iterator[tuple[int, int]]:
        """Yield base offset and count of each sent batch."""
        return zip(accumulate(self.counts, initial=0), self.counts, strict=False)

    def values(self) -> Iterator[bytes]:
        for sequence, records in self.batches():
            for number in range(records):
                yield b"value %d %d " % (sequence, number) * 4

    def assert_read(self) -> None:
        """Compare with a consumer's records, and with the segments of broker 1."""
        config = {"bootstrap.servers": self.kafka.bootstrap, "group.id": "soak", "check.crcs": True}
        consumer = Consumer({**config, "enable.auto.commit": False, "log_level": 0})
        with closing(consumer):
            consumer.assign([TopicPartition(self.topic, self.partition, 0)])
            expected = enumerate(self.values())
            left = self.next_sequence
            while left:
                messages = consumer.consume(10_000, 60)
                assert messages, f"{left} records are missing"
                for message, (offset, value) in zip(messages, expected, strict=False):
                    assert (message.error(), message.offset(), message.value()) == (None, offset, value)
                left -= len(messages)
            assert consumer.get_watermark_offsets(TopicPartition(self.topic, self.partition)) == (
                0,
                self.next_sequence,
            )
        segments = sorted(self.kafka.partition_dir(self.topic, self.partition).glob("*.log"))
        stored = chain.from_iterable(split(memoryview(file.read_bytes())) for file in segments)
        for batch, expected_batch in zip(stored, self.batches(), strict=True):
            assert (batch.header.base_offset, batch.header.records_count) == expected_batch


@pytest.mark.long
@pytest.mark.timeout(SOAK_S + 1200)
@pytest.mark.parametrize("version", [KAFKA_VERSION, newest_of_each_line()[0]])
def test_records_are_exact_while_brokers_die_in_turn(version: str, topic: str) -> None:
    agent = [f"-javaagent:{agent_jar()}"]
    brokers = dict.fromkeys((1, 2, 3), agent)
    with KafkaCluster(brokers=3, version=version, broker_jvm=brokers, heap="384m") as kafka:
        assignment = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        new = NewTopic(topic, 3, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[topic].result()
        writers = [Writer(kafka, topic, number, Random(number)) for number in range(3)]
        over = threading.Event()
        with ThreadPoolExecutor() as pool:
            running = [pool.submit(writer.run, over) for writer in writers]
            try:
                disturbances = disturb(kafka, admin, topic, running)
            finally:
                over.set()
            for each in running:
                each.result()
        memory = [peak_rss_of(kafka.process_id(node_id)) // 2**20 for node_id in (1, 2, 3)]
        for writer in writers:
            writer.assert_read()
        requests, batches = sum(each.requests for each in writers), sum(len(each.counts) for each in writers)
        records = sum(each.next_sequence for each in writers)
        print(
            f"\nKafka {version}, {SOAK_S:.0f} s: {requests} requests, {batches} batches, {records} records, "
            f"{disturbances} disturbances, {sum(each.connections for each in writers)} connections; "
            f"0 lost, 0 doubled, 0 reordered; brokers' peaks {memory} MB"
        )


def _is_past(until: float) -> bool:
    return time.monotonic() >= until


def disturb(kafka: KafkaCluster, admin: AdminClient, topic: str, running: Sequence[Future[None]]) -> int:
    """Kill or stop one broker after the other, each when all are in sync, until the time is over."""
    random = Random(topic)
    end = time.monotonic() + SOAK_S
    disturbances = 0
    while time.monotonic() < end:
        quiet_until = min(end, time.monotonic() + QUIET_S)
        wait_until(partial(_is_past, quiet_until), "a quiet while", QUIET_S + 10)
        assert not any(each.done() for each in running), [each.exception() for each in running if each.done()]
        if time.monotonic() >= end:
            break
        node_id = 1 + disturbances % 3
        random.choice((kafka.kill, kafka.stop))(node_id)
        kafka.start(node_id)
        wait_until(lambda: all_in_sync(admin, topic), "all replicas to be in sync", 180)
        disturbances += 1
    return disturbances


def all_in_sync(admin: AdminClient, topic: str) -> bool:
    try:
        partitions = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
    except KafkaException:
        return False
    return all(len(each.isrs) == 3 for each in partitions)
