"""Real clients from 0.8.2 to 2.8.2 read and write in all their formats.

They do so through the gateway on Kafka 4, and on Kafka 3.9. The latter shows that the tests expect only
Kafka's own behaviour.

`make test-clusters` has the clients that differ most; `make test-night` all others, and Kafka 3.9.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from rig import (
    OLD_CODECS,
    KafkaCluster,
    Record,
    create_topic,
    load_batch,
    load_every_kind,
    read_topic,
    wait_until,
)
from rig.compaction import load_compacted
from rig.jars import KAFKA_3_VERSION
from rig.made_records import FIRST_TIMESTAMP, random_records
from rig.old_clients import OLD_CLIENTS, Member, OldClient, OldClientFailed, console_consumer
from rig.read import Isolation
from rig.shoal import serve_gateway

PARTITIONS = 3

NOT_LONG = {
    "kafka-python 2.0.2 as of 0.8.2",
    "Java 0.9.0.1",
    "Java 0.10.2.2",
}


#: The clients' messages for error codes that are newer than they are.
REFUSED = re.compile("unexpected error|unsupported|unknown error|unknown compression type", re.IGNORECASE)
#: Kafka 3.9 sends null instead of messages then, which Java 0.9 cannot read.
REFUSED_BY_KAFKA_3 = re.compile(f"{REFUSED.pattern}|error reading field 'record_set'", re.IGNORECASE)


@dataclass
class Server:
    """The server of old clients, and its topics.

    Attributes:
        address: Address for old clients.
        kafka: The cluster, to which current clients connect: itself, or the one behind a gateway.
        is_kafka_3: Whether it behaves as Kafka 3 did, which shoal improves in some cases.
    """

    address: str
    kafka: KafkaCluster
    is_kafka_3: bool = False
    _contents: dict[tuple[str, Isolation], dict[int, list[Record]]] = field(default_factory=dict)
    _holed: list[str] = field(default_factory=list)

    @property
    def beside(self) -> str:
        """The address for current clients."""
        return self.kafka.bootstrap

    def every_kind(self, client: OldClient) -> tuple[str, dict[int, list[Record]]]:
        """Return a topic that has every kind of batch, and its records with their offsets."""
        topic = "every-kind"
        if not any(known == topic for known, _ in self._contents):
            load_every_kind(self.beside, topic, PARTITIONS, codecs=OLD_CODECS)
            if self.is_kafka_3:
                # If a log ends with transaction markers, Kafka sends padding alone, which clients read as a
                # message that is too large.
                for partition in range(PARTITIONS):
                    load_batch(self.beside, topic, partition, RECORDS)
        return topic, self._known_contents(topic, client)

    def readable_bit_by_bit(self, client: OldClient) -> tuple[str, dict[int, list[Record]]]:
        """Return the same; or a topic without transactions, if markers stop clients or double records."""
        if not self.is_kafka_3:
            return self.every_kind(client)
        topic = "plain"
        if not any(known == topic for known, _ in self._contents):
            create_topic(self.beside, topic, PARTITIONS)
            for codec, partition in itertools.product(OLD_CODECS, range(PARTITIONS)):
                load_batch(self.beside, topic, partition, RECORDS, codec)
        return topic, self._known_contents(topic, client)

    def with_holes(self) -> list[str]:
        """Return compacted topics of one partition."""
        if not self._holed:
            self._holed = compact(self.kafka)
        return self._holed

    def contents(self, topic: str, client: OldClient) -> dict[int, list[Record]]:
        """Return the records that a current client reads with this client's isolation."""
        return read_topic(self.beside, topic, self._isolation(client))

    def once(self, read: dict[int, list[Record]]) -> dict[int, list[Record]]:
        """Return the read records without those that Kafka 3.9 sends twice.

        If its response begins with a transaction marker, the batch after that is in it twice; some clients
        return both.
        """
        if not self.is_kafka_3:
            return read
        unique: dict[int, list[Record]] = {}
        for partition, records in read.items():
            of_partition = unique.setdefault(partition, [])
            for record in records:
                if not of_partition or record.offset > of_partition[-1].offset:
                    of_partition.append(record)
        return unique

    def _known_contents(self, topic: str, client: OldClient) -> dict[int, list[Record]]:
        key = topic, self._isolation(client)
        if key not in self._contents:
            self._contents[key] = self.contents(topic, client)
        return self._contents[key]

    def _isolation(self, client: OldClient) -> Isolation:
        """Return the isolation for a client that does not support transactions, or has not requested it.

        From Fetch 4 on it could have; before, Kafka returned all records.
        """
        return "read_uncommitted" if self.is_kafka_3 or client.fetch_version >= 4 else "read_committed"


def compact(kafka: KafkaCluster) -> list[str]:
    topics = {f"holes-{codec}": codec for codec in OLD_CODECS}
    load_compacted(kafka, topics)
    return list(topics)


@contextmanager
def gateway() -> Iterator[Server]:
    with KafkaCluster() as kafka, serve_gateway(kafka.bootstrap) as running:
        yield Server(running.address, kafka)


@contextmanager
def kafka_3() -> Iterator[Server]:
    with KafkaCluster(version=KAFKA_3_VERSION) as kafka:
        yield Server(kafka.bootstrap, kafka, is_kafka_3=True)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(gateway, id="gateway"),
        pytest.param(kafka_3, id="Kafka 3.9", marks=pytest.mark.long),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as running:
        yield running


def each_client(*, of: Callable[[OldClient], bool] = lambda client: True) -> pytest.MarkDecorator:
    """Run a test with each client of a kind."""
    return pytest.mark.parametrize(
        "client",
        [
            pytest.param(each, id=each.name, marks=() if each.name in NOT_LONG else pytest.mark.long)
            for each in OLD_CLIENTS
            if of(each)
        ],
    )


def as_seen(client: OldClient, contents: Mapping[int, Sequence[Record]]) -> dict[int, list[Record]]:
    return {
        partition: [client.as_seen(record) for record in records] for partition, records in contents.items()
    }


def count(contents: Mapping[int, Sequence[Record]]) -> int:
    return sum(map(len, contents.values()))


def assert_same(read: Mapping[int, Sequence[Record]], expected: Mapping[int, Sequence[Record]]) -> None:
    """Compare everything, offsets too, and name the first record that differs."""
    for partition, records in expected.items():
        found = read.get(partition, [])
        for mine, theirs in itertools.zip_longest(found, records):
            assert mine == theirs, f"partition {partition}: {len(found)} of {len(records)} records"
    assert set(read) <= set(expected)


# Reading


@each_client()
def test_every_record_of_every_kind_of_batch_is_read(server: Server, client: OldClient) -> None:
    topic, contents = server.every_kind(client)
    assert {len(each.value or b"") > 500_000 for of in contents.values() for each in of} == {True, False}
    read = client.read(server.address, topic, partitions=PARTITIONS, records=count(contents))
    assert_same(server.once(read), as_seen(client, contents))


@each_client()
def test_compacted_records_are_read_at_their_offsets(server: Server, client: OldClient) -> None:
    for topic in server.with_holes():
        contents = server.contents(topic, client)
        read = client.read(server.address, topic, partitions=1, records=count(contents))
        assert_same(server.once(read), as_seen(client, contents))


@each_client()
def test_batches_larger_than_a_fetch_are_read(server: Server, client: OldClient) -> None:
    if server.is_kafka_3 and client.fetch_version < 3:
        pytest.skip("Kafka keeps to the limit of versions that promise nothing, and the client cannot go on")
    topic, contents = server.readable_bit_by_bit(client)
    read = client.read(
        server.address,
        topic,
        partitions=PARTITIONS,
        records=count(contents),
        settings={"max.partition.fetch.bytes": 10_000},
    )
    assert_same(server.once(read), as_seen(client, contents))


@each_client(of=lambda client: client.fetch_version < 10)
def test_zstd_is_refused(server: Server, client: OldClient, topic: str) -> None:
    create_topic(server.beside, topic)
    load_batch(server.beside, topic, 0, RECORDS, "zstd")
    assert_refused(server, client, topic)


def assert_refused(server: Server, client: OldClient, topic: str) -> None:
    """Some clients end with an error, some retry and log it; none returns a record."""
    said = REFUSED_BY_KAFKA_3 if server.is_kafka_3 else REFUSED
    with contextlib.suppress(OldClientFailed), client.follower(server.address, topic, 1) as reader:
        wait_until(lambda: said.search(reader.errors()) is not None, f"{client.name} to be refused", 60)
    assert reader.records == {}


# Groups


@each_client()
def test_group_continues_from_its_commit(server: Server, client: OldClient, topic: str) -> None:
    loaded, contents = server.readable_bit_by_bit(client)
    expected = as_seen(client, contents)
    group = f"readers-{topic}"
    parts = [count(contents) // 2, count(contents) - count(contents) // 2]
    first, second = (client.read_and_commit(server.address, loaded, group, records=each) for each in parts)
    assert count(first) == parts[0]
    assert_same({each: first.get(each, []) + second.get(each, []) for each in contents}, expected)


#: If a member lacks CPU for some seconds, it stays in the group.
MEMBER_SETTINGS = {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 500}


@each_client(of=lambda client: client.joins_groups)
def test_members_of_a_group_share_the_partitions(server: Server, client: OldClient, topic: str) -> None:
    create_topic(server.beside, topic, PARTITIONS)
    with ExitStack() as stack:
        members = [
            stack.enter_context(client.member(server.address, topic, topic, MEMBER_SETTINGS))
            for _ in range(2)
        ]

        def have_shared() -> bool:
            listen(members)
            shares = [set(each.assigned) for each in members]
            return (
                all(shares) and not set.intersection(*shares) and set.union(*shares) == set(range(PARTITIONS))
            )

        wait_until(have_shared, "two members with partitions of their own", timeout_s=120)
        for partition in range(PARTITIONS):
            load_batch(server.beside, topic, partition, RECORDS, OLD_CODECS[partition])
        contents = server.contents(topic, client)

        def have_read() -> bool:
            listen(members)
            return sum(count(each.records) for each in members) >= count(contents)

        wait_until(have_read, "the members to read", timeout_s=60)
        for each in members:
            assert set(each.records) == set(each.assigned)
        assert_same({**members[0].records, **members[1].records}, as_seen(client, contents))


def listen(members: Sequence[Member]) -> None:
    for each in members:
        each.listen()


# Writing

RECORDS = [
    Record(None, b"no key", (), FIRST_TIMESTAMP),
    Record(b"no value", None, (), FIRST_TIMESTAMP + 1),
    Record(b"", b"empty key", (), FIRST_TIMESTAMP + 2),
    Record(b"empty value", b"", (), FIRST_TIMESTAMP + 3),
    *(
        Record(b"key %d" % each, b"value %d " % each * each, (), FIRST_TIMESTAMP + each)
        for each in range(200)
    ),
]


@each_client()
def test_records_of_an_old_client_are_read_by_a_current_one(
    server: Server, client: OldClient, topic: str
) -> None:
    rng = random.Random(topic)
    create_topic(server.beside, topic, PARTITIONS)
    sent: dict[int, list[Record]] = {}
    for codec in OLD_CODECS:
        large = [
            replace(each, headers=())
            for each in random_records(rng, 100, 3000)
            if (each.key, each.value) != (None,) * 2
        ]
        records = [(number % PARTITIONS, record) for number, record in enumerate([*RECORDS, *large])]
        settings = {"compression.type": codec, "linger.ms": 50, "acks": "all"}
        if codec == "none" and client.dots == "_":
            del settings["compression.type"]
        acknowledged = client.produce(server.address, topic, records, settings)
        for (partition, record), (where, offset) in zip(records, acknowledged, strict=True):
            assert where == partition
            timestamp = record.timestamp if client.produced_magic else -1
            kind = record.timestamp_type if client.produced_magic else "none"
            sent.setdefault(partition, []).append(
                replace(record, offset=offset, timestamp=timestamp, timestamp_type=kind)
            )
    read = read_topic(server.beside, topic)
    if not client.produced_magic:
        # The client had no timestamp to send. The log has -1, which some clients accept as a time.
        read = {
            each: [replace(record, timestamp_type="none") for record in records]
            for each, records in read.items()
        }
    assert_same(
        read, {each: sorted(records, key=lambda record: record.offset) for each, records in sent.items()}
    )


@each_client()
def test_records_of_an_old_client_are_read_by_itself(server: Server, client: OldClient, topic: str) -> None:
    create_topic(server.beside, topic)
    client.produce(server.address, topic, [(0, record) for record in RECORDS])
    read = client.read(server.address, topic, partitions=1, records=len(RECORDS))
    assert [(each.key, each.value, each.offset) for each in read[0]] == [
        (each.key, each.value, offset) for offset, each in enumerate(RECORDS)
    ]


# Brokers that stop and start


@pytest.mark.long
@each_client(of=lambda client: client.name in NOT_LONG)
def test_restarted_leader_loses_no_record(client: OldClient, topic: str) -> None:
    with KafkaCluster(brokers=2) as kafka, serve_gateway(kafka.bootstrap) as running:
        create_topic(kafka.bootstrap, topic, 2, replication_factor=2)
        settings = {"metadata.max.age.ms": 1000, "reconnect.backoff.ms": 100, "retry.backoff.ms": 100}
        with client.follower(running.address, topic, 2, settings) as follower:

            def has_read(records: int) -> bool:
                follower.listen()
                return count(follower.records) >= records

            changes: list[Callable[[], object]] = [
                lambda: None,
                lambda: kafka.kill(2),
                lambda: kafka.start(2),
            ]
            for step, change in enumerate(changes, 1):
                change()
                for partition in range(2):
                    load_batch(kafka.address(1), topic, partition, RECORDS, OLD_CODECS[step], idempotent=True)
                expected = step * 2 * len(RECORDS)
                wait_until(partial(has_read, expected), f"{expected} records", timeout_s=90)
            assert_same(follower.records, as_seen(client, read_topic(kafka.address(1), topic)))


# Kafka's console consumer


@pytest.mark.parametrize("fetch_version", [1, 3, None], ids=["Fetch 1", "Fetch 3", "any Fetch"])
def test_console_consumer_prints_every_record(server: Server, topic: str, fetch_version: int | None) -> None:
    create_topic(server.beside, topic)
    for codec in OLD_CODECS:
        load_batch(server.beside, topic, 0, TEXTS, codec)
    lines = console_consumer(
        server.address, topic, len(OLD_CODECS) * len(TEXTS), group=topic, fetch_version=fetch_version
    )
    expected = []
    for record in read_topic(server.beside, topic)[0]:
        timestamp = "NO_TIMESTAMP" if fetch_version == 1 else f"CreateTime:{record.timestamp}"
        headers = "name:header" if fetch_version is None else "NO_HEADERS"
        key, value = (record.key or b"").decode(), (record.value or b"").decode()
        expected.append(f"{timestamp}\tPartition:0\tOffset:{record.offset}\t{headers}\t{key}\t{value}")
    assert lines == expected


TEXTS = [
    Record(b"key %d" % each, b"value %d" % each, (("name", b"header"),), FIRST_TIMESTAMP + each)
    for each in range(100)
]
