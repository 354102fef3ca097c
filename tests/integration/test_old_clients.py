"""Real clients from 0.8.2 to 2.8.2 read and write in all their formats, through the gateway on Kafka 4.

`make test-clusters` has the clients that differ most; `make test-night` all others.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
from rig.made_records import FIRST_TIMESTAMP, random_records
from rig.old_clients import OLD_CLIENTS, Member, OldClient, OldClientFailed
from rig.read import Isolation
from rig.shoal import serve_gateway

PARTITIONS = 3

NOT_LONG = {"kafka-python 2.0.2 as of 0.8.2", "Java 0.9.0.1", "Java 0.10.2.2"}


#: The clients' messages for error codes that are newer than they are.
REFUSED = re.compile("unexpected error|unsupported|unknown error|unknown compression type", re.IGNORECASE)


#: A topic that has every kind of batch, and compacted ones of one partition, with their codecs.
EVERY_KIND = "every-kind"
HOLED = {f"holes-{codec}": codec for codec in OLD_CODECS}


@dataclass(frozen=True)
class Server:
    """The gateway.

    Attributes:
        address: Its address, for old clients.
        beside: The address of the cluster behind it, for current clients.
    """

    address: str
    beside: str

    def contents(self, topic: str, client: OldClient) -> dict[int, list[Record]]:
        """Return the records, with their offsets, that a current client reads with this client's isolation.

        A client from Fetch 4 on could have requested that of transactions; before, the gateway does.
        """
        isolation: Isolation = "read_uncommitted" if client.fetch_version >= 4 else "read_committed"
        return read_topic(self.beside, topic, isolation)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with KafkaCluster() as kafka, serve_gateway(kafka.bootstrap) as running:
        load_every_kind(kafka.bootstrap, EVERY_KIND, PARTITIONS, codecs=OLD_CODECS)
        load_compacted(kafka, HOLED)
        yield Server(running.address, kafka.bootstrap)


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


@pytest.mark.parametrize("settings", [{}, {"max.partition.fetch.bytes": 10_000}], ids=["", "small fetches"])
@each_client()
def test_every_record_of_every_kind_of_batch_is_read(
    server: Server, client: OldClient, settings: dict[str, int]
) -> None:
    contents = server.contents(EVERY_KIND, client)
    assert {len(each.value or b"") > 500_000 for of in contents.values() for each in of} == {True, False}
    read = client.read(
        server.address, EVERY_KIND, partitions=PARTITIONS, records=count(contents), settings=settings
    )
    assert_same(read, as_seen(client, contents))


@each_client()
def test_compacted_records_are_read_at_their_offsets(server: Server, client: OldClient) -> None:
    for topic in HOLED:
        contents = server.contents(topic, client)
        read = client.read(server.address, topic, partitions=1, records=count(contents))
        assert_same(read, as_seen(client, contents))


@each_client(of=lambda client: client.fetch_version < 10)
def test_zstd_is_refused(server: Server, client: OldClient, topic: str) -> None:
    create_topic(server.beside, topic)
    load_batch(server.beside, topic, 0, RECORDS, "zstd")
    assert_refused(server, client, topic)


def assert_refused(server: Server, client: OldClient, topic: str) -> None:
    """Some clients end with an error, some retry and log it; none returns a record."""
    with contextlib.suppress(OldClientFailed), client.follower(server.address, topic, 1) as reader:
        wait_until(lambda: REFUSED.search(reader.errors()) is not None, f"{client.name} to be refused", 60)
    assert reader.records == {}


# Groups


@each_client()
def test_group_continues_from_its_commit(server: Server, client: OldClient, topic: str) -> None:
    contents = server.contents(EVERY_KIND, client)
    expected = as_seen(client, contents)
    group = f"readers-{topic}"
    parts = [count(contents) // 2, count(contents) - count(contents) // 2]
    first, second = (
        client.read_and_commit(server.address, EVERY_KIND, group, records=each) for each in parts
    )
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
