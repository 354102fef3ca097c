"""The raw consumer and producer against real Kafka, in groups with Java's console consumer."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest

from rig import (
    CODECS,
    KafkaCluster,
    assert_same_records,
    create_topic,
    describe_group,
    load_every_kind,
    read_topic,
    wait_until,
)
from rig.jars import tool_command
from rig.process import spawn, tail
from shoal import RawConsumer, RawProducer, RawRecord, TopicPartition
from shoal.client.cluster import Cluster, patiently
from shoal.client.config import ClientConfig
from shoal.protocol.apis import ApiKey
from shoal.protocol.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from shoal.records import RecordBatch, read_header, verify_crc

pytestmark = pytest.mark.timeout(300)

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"

ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
}


#: So long that a member without CPU stays in the group; if a member ends, it leaves its group.
SESSION_TIMEOUT_MS = 30_000


class JavaMember:
    """A console consumer in a group; its lines are ``Partition:N<tab>value``."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str, directory: Path) -> None:
        config = directory / f"{group}.properties"
        config.write_text(
            f"partition.assignment.strategy={ASSIGNORS[strategy]}\n"
            f"heartbeat.interval.ms=300\nsession.timeout.ms={SESSION_TIMEOUT_MS}\n"
            "auto.offset.reset=earliest\nauto.commit.interval.ms=100\n"
        )
        self.log = directory / f"{group}.log"
        arguments = tool_command(CONSOLE_CONSUMER)
        arguments += ["--bootstrap-server", bootstrap, "--topic", topic]
        arguments += ["--group", group, "--command-config", str(config)]
        arguments += ["--formatter-property", "print.partition=true"]
        self._process = spawn(arguments, self.log)

    def lines(self) -> list[tuple[int, str]]:
        text = self.log.read_text(errors="replace")
        return [(int(number), value) for number, value in re.findall(r"^Partition:(\d+)\t(.*)$", text, re.M)]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def __str__(self) -> str:
        return tail(self.log)


@contextmanager
def java_member(
    bootstrap: str, group: str, topic: str, strategy: str, directory: Path
) -> Iterator[JavaMember]:
    member = JavaMember(bootstrap, group, topic, strategy, directory)
    try:
        yield member
    finally:
        member.stop()


class OurMember:
    """A raw consumer without raw bytes, polled by a thread."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        self.consumer = RawConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": ASSIGNORS[strategy],
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 300,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "auto.commit.interval.ms": 100,
            }
        )
        self.consumer.subscribe([topic])
        self.lines: list[tuple[int, str]] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self._stopped = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.consumer:
                while not self._stopped.is_set():
                    for record in self.consumer.poll(0.1):
                        assert record.value is not None
                        self.lines.append((record.partition, bytes(record.value).decode()))
                    self.owned = self.consumer.assignment
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(30)
        assert self.failure is None, self.failure


@contextmanager
def our_member(bootstrap: str, group: str, topic: str, strategy: str) -> Iterator[OurMember]:
    member = OurMember(bootstrap, group, topic, strategy)
    try:
        yield member
    finally:
        member.stop()


def described(bootstrap: str, group: str) -> list[tuple[bytes, bytes]]:
    """Return each member's subscription and assignment as raw bytes."""
    config, _ = ClientConfig.from_properties("source", {"bootstrap.servers": bootstrap})
    with Cluster(config) as cluster:
        # A cluster's first group has no coordinator for a moment.
        coordinator = patiently(lambda: cluster.coordinator(group), patience_s=30)
        response = coordinator.request(
            ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=False
        )
    return [
        (bytes(member.member_metadata), bytes(member.member_assignment))
        for each in response.groups
        if each.group_state == "Stable"
        for member in each.members
    ]


def has_members(bootstrap: str, group: str, count: int, partitions: int) -> Callable[[], bool]:
    """Return a check whether this many members share all partitions evenly."""

    def check() -> bool:
        dealt = [decode_assignment(assignment) for _, assignment in described(bootstrap, group)]
        return len(dealt) == count and sorted(map(len, dealt)) == [partitions // count] * count

    return check


def send_lines(bootstrap: str, topic: str, lines: Sequence[str]) -> None:
    with RawProducer({"bootstrap.servers": bootstrap}) as producer:
        futures = [producer.send(topic, line.encode(), key=line.encode()) for line in lines]
    for future in futures:
        assert future.result().offset >= 0


@pytest.mark.parametrize(
    ("strategy", "leads"),
    [
        ("range", "java"),
        ("roundrobin", "ours"),
        pytest.param("roundrobin", "java", marks=pytest.mark.long),
    ],
)
def test_group_is_shared_with_a_java_consumer(
    source_cluster: KafkaCluster, topic: str, tmp_path: Path, strategy: str, leads: str
) -> None:
    bootstrap = source_cluster.bootstrap
    create_topic(bootstrap, topic, 4)
    both = has_members(bootstrap, topic, 2, 4)

    def play(ours: OurMember, java: JavaMember) -> None:
        try:
            wait_until(both, "both members with two partitions each", 60)
            for subscription, assignment in described(bootstrap, topic):
                # Java's and shoal's: byte for byte the same encoding.
                assert decode_subscription(subscription).topics == [topic]
                assert encode_assignment(decode_assignment(assignment)) == assignment
            lines = [f"line {number}" for number in range(400)]
            send_lines(bootstrap, topic, lines)
            wait_until(lambda: len(ours.lines) + len(java.lines()) >= 400, "all lines read", 60)
            assert sorted(value for _, value in [*ours.lines, *java.lines()]) == sorted(lines)
            assert not {number for number, _ in ours.lines} & {number for number, _ in java.lines()}
        except BaseException:
            print(java)
            raise

    if leads == "ours":
        with our_member(bootstrap, topic, topic, strategy) as ours:
            wait_until(lambda: len(ours.owned) == 4, "our member with all partitions", 60)
            with java_member(bootstrap, topic, topic, strategy, tmp_path) as java:
                play(ours, java)
            wait_until(lambda: len(ours.owned) == 4, "our member with all partitions again", 60)
    else:
        with java_member(bootstrap, topic, topic, strategy, tmp_path) as java:
            wait_until(has_members(bootstrap, topic, 1, 4), "the Java member with all partitions", 60)
            with our_member(bootstrap, topic, topic, strategy) as ours:
                play(ours, java)
            wait_until(has_members(bootstrap, topic, 1, 4), "the Java member with all partitions again", 60)


def test_raw_batches_are_copied_unchanged(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str
) -> None:
    loaded = load_every_kind(source_cluster.bootstrap, topic)
    create_topic(destination_cluster.bootstrap, topic, 4)
    consumer_properties = {
        "bootstrap.servers": source_cluster.bootstrap,
        "group.id": topic,
        "fetch.raw.bytes": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    producer_properties = {"bootstrap.servers": destination_cluster.bootstrap, "send.raw.bytes": True}
    codecs: set[str] = set()
    with RawConsumer(consumer_properties) as consumer, RawProducer(producer_properties) as producer:
        consumer.subscribe([topic])
        copied, expected = 0, sum(map(len, loaded.values()))
        deadline = time.monotonic() + 120
        while copied < expected:
            assert time.monotonic() < deadline, f"{copied} of {expected} records"
            records = consumer.poll(0.5)
            for record in records:
                assert isinstance(record, RawRecord)
                verify_crc(RecordBatch(read_header(record.value), record.value))
                codecs.add(record.codec.name.lower())
                producer.send(topic, record)
                copied += record.record_count
            if records:
                producer.flush()
                consumer.commit(metadata="copied")
        assert not consumer.poll(1.0)  # only loaded records
        committed = consumer.committed()
    assert codecs == set(CODECS)
    assert all(each.metadata == "copied" for each in committed.values())
    assert_same_records(
        read_topic(source_cluster.bootstrap, topic), read_topic(destination_cluster.bootstrap, topic)
    )
    seen = describe_group(source_cluster.bootstrap, topic)
    assert {TopicPartition(*key): each.current_offset for key, each in seen.items()} == {
        partition: each.offset for partition, each in committed.items()
    }


def test_records_of_the_producer_are_read_by_java(source_cluster: KafkaCluster, topic: str) -> None:
    bootstrap = source_cluster.bootstrap
    create_topic(bootstrap, topic, 3)
    for codec in CODECS:
        with RawProducer({"bootstrap.servers": bootstrap, "compression.type": codec}) as producer:
            for number in range(100):
                text = f"{codec} {number}".encode()
                producer.send(topic, b"value " + text, key=b"key " + text, headers={"h": b"x", "n": None})
    arguments = tool_command(CONSOLE_CONSUMER)
    arguments += ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
    arguments += ["--max-messages", "500"]
    for shown in ("key", "headers", "partition"):
        arguments += ["--formatter-property", f"print.{shown}=true"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert sorted(line[3] for line in lines) == sorted(
        f"value {codec} {number}" for codec in CODECS for number in range(100)
    )
    assert {line[1] for line in lines} == {"h:x,n:null"}
    assert all(line[2] == line[3].replace("value", "key") for line in lines)


def test_keys_have_the_partitions_of_java_s_producer(source_cluster: KafkaCluster, topic: str) -> None:
    bootstrap = source_cluster.bootstrap
    keys = [f"key {number} \N{SNOWMAN}" * (number % 5 + 1) for number in range(200)]
    for name in (f"{topic}-java", f"{topic}-ours"):
        create_topic(bootstrap, name, 7)
    arguments = tool_command(CONSOLE_PRODUCER)
    arguments += ["--bootstrap-server", bootstrap, "--topic", f"{topic}-java"]
    arguments += ["--reader-property", "parse.key=true"]
    lines = "".join(f"{key}\tvalue\n" for key in keys)
    subprocess.run(arguments, input=lines, text=True, timeout=120, check=True, capture_output=True)
    with RawProducer({"bootstrap.servers": bootstrap}) as producer:
        for key in keys:
            producer.send(f"{topic}-ours", b"value", key=key.encode())

    def partitions(name: str) -> dict[int, list[bytes]]:
        read = read_topic(bootstrap, name)
        return {partition: sorted(each.key or b"" for each in records) for partition, records in read.items()}

    assert partitions(f"{topic}-ours") == partitions(f"{topic}-java")


def test_killed_brokers_leave_an_exact_copy(topic: str) -> None:
    with KafkaCluster(brokers=1, config={"offsets.topic.num.partitions": 1}) as cluster:
        create_topic(cluster.bootstrap, topic, 3)
        properties = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        sent, read = 0, list[bytes]()
        with (
            RawProducer({"bootstrap.servers": cluster.bootstrap, "batch.size": 1000}) as producer,
            RawConsumer(properties) as consumer,
        ):
            consumer.subscribe([topic])
            for kill in (False, True):
                # Many of the batches are in flight when the broker is killed.
                for _ in range(500):
                    producer.send(topic, b"%d" % sent)
                    sent += 1
                if kill:
                    cluster.kill(1)
                    cluster.start(1)
                deadline = time.monotonic() + 90
                while len(read) < sent:
                    assert time.monotonic() < deadline, f"{len(read)} of {sent} read"
                    read += [bytes(each.value or b"") for each in consumer.poll(0.1)]
            assert consumer.commit()
        expected = [b"%d" % number for number in range(sent)]
        assert sorted(read, key=int) == expected
        stored = [each.value or b"" for each in chain(*read_topic(cluster.bootstrap, topic).values())]
        assert sorted(stored, key=int) == expected
