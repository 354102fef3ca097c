"""The raw consumer on the embedded broker: records, positions and commits."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest
from confluent_kafka import Consumer as TheirConsumer
from confluent_kafka import Producer as TheirProducer
from confluent_kafka import TopicPartition as TheirPartition

from shoal import Committed, ConsumerRecord, RawConsumer, RawRecord, RebalanceListener, TopicPartition
from shoal.broker import Broker, BrokerCluster
from shoal.client.consumer import TimestampType
from shoal.client.consumer.partitions import ConsumedPartition
from shoal.error_codes import ErrorCode
from shoal.errors import AccessRefused, BrokerError, ConfigError, CorruptBatch, NoPosition, UnsupportedBatch
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, RecordBatch, read_header, read_records, verify_crc
from tests import batches
from tests.two_brokers import ABORT, COMMIT, History, lose_tail, wait_until

pytestmark = pytest.mark.timeout(60)

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 2)
        yield running


@pytest.fixture
def log(broker: Broker) -> History:
    return History(broker.log("topic", 0))


def consumer(broker: Broker | BrokerCluster, **changes: object) -> RawConsumer:
    properties: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 50,
        "session.timeout.ms": 6000,
        "fetch.max.wait.ms": 50,
    }
    properties.update({name.replace("_", "."): value for name, value in changes.items()})
    return RawConsumer(properties)


def take(given: RawConsumer, count: int, timeout_s: float = 20.0) -> list[ConsumerRecord | RawRecord]:
    """Poll until there are so many."""
    records: list[ConsumerRecord | RawRecord] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count}"
        records += given.poll(0.2)
    return records


def raw(given: RawConsumer, count: int) -> list[RawRecord]:
    records = take(given, count)
    assert all(isinstance(record, RawRecord) for record in records)
    return records  # type: ignore[return-value]


def offsets(record: RawRecord) -> list[int]:
    """Decode a raw record's value, by its own header."""
    batch = RecordBatch(read_header(record.value), record.value)
    verify_crc(batch)
    return [each.offset for each in read_records(batch, 1 << 20)]


# Records


def test_records_equal_those_of_confluent_kafka(broker: Broker) -> None:
    producer = TheirProducer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    for number in range(100):
        key = None if number % 3 == 0 else b"k%d" % number
        value = None if number % 5 == 0 else b"v%d" % number
        producer.produce("topic", value, key, 0, timestamp=1_000 + number, headers=[("h", b"x"), ("n", None)])
    producer.flush()
    with consumer(broker) as ours:
        ours.assign([FIRST])
        records = take(ours, 100)
    for number, record in enumerate(records):
        assert record == ConsumerRecord(
            "topic",
            0,
            number,
            1_000 + number,
            TimestampType.CREATE_TIME,
            None if number % 3 == 0 else b"k%d" % number,
            None if number % 5 == 0 else b"v%d" % number,
            (("h", b"x"), ("n", None)),
            record.leader_epoch,
        )


def test_record_has_the_log_append_time_of_its_batch(log: History, broker: Broker) -> None:
    log.plain(3, flags=batches.LOG_APPEND_TIME)
    with consumer(broker) as ours:
        ours.assign([FIRST])
        times = {(record.timestamp, record.timestamp_type) for record in take(ours, 3)}  # type: ignore[union-attr]
    assert times == {(log.base_timestamp + 2, TimestampType.LOG_APPEND_TIME)}


@pytest.mark.parametrize("fetch_raw_bytes", [False, True])
def test_poll_returns_at_most_max_poll_records(log: History, broker: Broker, fetch_raw_bytes: bool) -> None:
    log.plain(*[3] * 20)
    with consumer(broker, max_poll_records=7, fetch_raw_bytes=fetch_raw_bytes) as ours:
        ours.assign([FIRST])
        found = [len(ours.poll(20)) for _ in range(2)]
    assert found == [7, 7]


def test_old_messages_are_decoded(log: History, broker: Broker) -> None:
    inner = [batches.message(1, b"a", offset=0), batches.message(1, b"b", offset=1)]
    log.store(batches.wrapper(1, Codec.GZIP, [bytes(each) for each in inner], offset=1))
    with consumer(broker) as ours:
        ours.assign([FIRST])
        assert [(record.offset, record.value) for record in take(ours, 2)] == [(0, b"a"), (1, b"b")]


# Whole batches


@pytest.mark.parametrize("codec", Codec)
def test_raw_record_has_the_bytes_of_the_batch(log: History, broker: Broker, codec: Codec) -> None:
    log.plain(2)
    stored = log.batch(5, codec=codec, leader_epoch=0)
    log.store(stored)
    with consumer(broker, fetch_raw_bytes=True) as ours:
        ours.assign([FIRST])
        _, record = raw(ours, 2)
    assert (record.topic, record.partition, record.key, record.headers) == ("topic", 0, None, ())
    assert (record.base_offset, record.offset, record.record_count) == (2, 6, 5)
    assert (record.codec, record.max_timestamp) == (codec, log.base_timestamp + 4)
    assert record.value == stored
    assert record.value.readonly
    with pytest.raises(TypeError):
        record.value[0] = 1


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(0, TimestampType.CREATE_TIME), (batches.LOG_APPEND_TIME, TimestampType.LOG_APPEND_TIME)],
)
def test_raw_record_of_a_batch_has_its_timestamp_type(
    log: History, broker: Broker, flags: int, expected: TimestampType
) -> None:
    log.plain(2, flags=flags)
    with consumer(broker, fetch_raw_bytes=True) as ours:
        ours.assign([FIRST])
        (record,) = raw(ours, 1)
    assert record.timestamp_type is expected


def test_values_stay_valid_after_later_polls_and_close(log: History, broker: Broker) -> None:
    with consumer(broker, fetch_raw_bytes=True) as ours:
        ours.assign([FIRST])
        kept, expected = [], []
        for _ in range(20):
            stored = log.batch(3)
            log.store(stored)
            expected.append(bytes(stored))
            kept += raw(ours, 1)
    assert [bytes(record.value) for record in kept] == expected


@pytest.mark.parametrize("codec", Codec)
def test_batch_that_contains_the_position_is_cropped(log: History, broker: Broker, codec: Codec) -> None:
    log.plain(10, 4, codec=codec)
    with consumer(broker, fetch_raw_bytes=True) as ours:
        ours.assign([FIRST])
        ours.seek(FIRST, 7)
        cropped, whole = raw(ours, 2)
        assert ours.position(FIRST) == 14
    assert (cropped.base_offset, cropped.offset, cropped.record_count, cropped.codec) == (7, 9, 3, codec)
    assert offsets(cropped) == [7, 8, 9]
    assert (whole.base_offset, whole.offset) == (10, 13)


def test_raw_batch_with_holes_counts_its_records(log: History, broker: Broker) -> None:
    log.holed(5, [1, 4])
    with consumer(broker, fetch_raw_bytes=True) as ours:
        ours.assign([FIRST])
        (record,) = raw(ours, 1)
        assert (record.base_offset, record.offset, record.record_count) == (0, 4, 3)
        assert offsets(record) == [0, 2, 3]
        ours.seek(FIRST, 3)
        (cropped,) = raw(ours, 1)
        assert (cropped.base_offset, cropped.offset, cropped.record_count) == (3, 3, 1)
        assert ours.position(FIRST) == 5


def test_raw_old_messages_become_batches(log: History, broker: Broker) -> None:
    log.store(batches.message(0, b"a", offset=0))
    inner = [batches.message(1, b"b", offset=1), batches.message(1, b"c", offset=2)]
    log.store(batches.wrapper(1, Codec.SNAPPY, [bytes(each) for each in inner], offset=2))
    with consumer(broker, fetch_raw_bytes=True) as ours:
        ours.assign([FIRST])
        first, second = raw(ours, 2)
    assert (first.base_offset, first.offset, first.codec) == (0, 0, Codec.NONE)
    assert (second.base_offset, second.offset, second.record_count) == (1, 2, 2)
    assert second.codec is Codec.SNAPPY
    assert offsets(second) == [1, 2]


@pytest.mark.parametrize("fetch_raw_bytes", [False, True])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_control_batches_are_dropped_and_aborted_ones_if_read_committed(
    log: History, broker: Broker, isolation: str, fetch_raw_bytes: bool
) -> None:
    log.plain(1).transaction(2, 2, ends=ABORT).empty().transaction(3, ends=COMMIT, producer_id=78).plain(1)
    expected = log.committed if isolation == "read_committed" else log.uncommitted
    with consumer(broker, fetch_raw_bytes=fetch_raw_bytes, isolation_level=isolation) as ours:
        ours.assign([FIRST])
        wait_until(lambda: ours.poll(0.05) is not None and ours.position(FIRST) == log.next_offset)
        ours.seek_to_beginning()
        records: list[ConsumerRecord | RawRecord] = []
        while ours.position(FIRST) < log.next_offset:
            records += ours.poll(0.2)
    count = sum(record.record_count if isinstance(record, RawRecord) else 1 for record in records)
    assert count == len(expected)


def test_batch_larger_than_all_limits_is_returned(broker: Broker) -> None:
    broker.create_topic("large", 1, {"max.message.bytes": "20000000"})
    large = History(broker.log("large", 0))
    stored = large.batch(1)
    value = b"x" * 6_000_000
    stored = batches.batch([value], base_offset=0, base_timestamp=large.base_timestamp)
    large.store(stored)
    large.plain(1)
    with consumer(broker, fetch_raw_bytes=True, fetch_max_bytes=1024, max_partition_fetch_bytes=1024) as ours:
        ours.assign([TopicPartition("large", 0)])
        first, second = raw(ours, 2)
    assert first.value == stored
    assert second.offset == 1


# Positions


def test_position_without_commit_follows_auto_offset_reset(log: History, broker: Broker) -> None:
    log.plain(3)
    with consumer(broker, auto_offset_reset="latest") as ours:
        ours.assign([FIRST])
        assert ours.position(FIRST) == 3
    with consumer(broker, auto_offset_reset="earliest") as ours:
        ours.assign([FIRST])
        assert ours.position(FIRST) == 0
    with consumer(broker, auto_offset_reset="none") as ours:
        ours.assign([FIRST])
        with pytest.raises(NoPosition, match=r"topic-0: the group has no committed .* is 'none'; seek"):
            ours.poll(20)
        ours.seek(FIRST, 2)
        assert [record.offset for record in take(ours, 1)] == [2]


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 3), ("latest", 6)])
def test_out_of_range_offset_is_reset(log: History, broker: Broker, reset: str, offset: int) -> None:
    log.plain(2, 4)
    broker.log("topic", 0).delete_records(2)
    with consumer(broker, auto_offset_reset=reset, max_poll_records=1) as ours:
        ours.assign([FIRST])
        ours.seek(FIRST, 100)
        # From the earliest on there is something to read, and the first of it comes at once.
        wait_until(lambda: bool(ours.poll(0.05)) or (reset == "latest" and ours.position(FIRST) != 100))
        assert ours.position(FIRST) == offset


def test_out_of_range_offset_without_reset_raises(log: History, broker: Broker) -> None:
    log.plain(2)
    with consumer(broker, auto_offset_reset="none") as ours:
        ours.assign([FIRST])
        ours.seek(FIRST, 100)
        with pytest.raises(BrokerError, match="topic-0 at offset 100") as raised:
            take(ours, 1)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_seek_pause_and_resume_change_the_next_records(log: History, broker: Broker) -> None:
    log.plain(2, 2)
    History(broker.log("topic", 1)).plain(5)
    with consumer(broker) as ours:
        ours.assign([FIRST, SECOND])
        ours.pause(SECOND)
        assert ours.paused == {SECOND}
        assert {record.partition for record in take(ours, 4)} == {0}
        assert ours.poll(0.2) == []
        ours.resume(SECOND)
        assert [record.offset for record in take(ours, 5)] == [0, 1, 2, 3, 4]
        ours.seek_to_end(SECOND)
        assert ours.position(SECOND) == 5
        ours.seek(FIRST, 3)
        assert [record.offset for record in take(ours, 1)] == [3]
        with pytest.raises(ValueError, match="topic-7 is not assigned to this consumer"):
            ours.seek(("topic", 7), 0)
        with pytest.raises(ValueError, match="not negative"):
            ours.seek(FIRST, -1)


def test_fetched_records_of_a_paused_partition_are_kept(log: History, broker: Broker) -> None:
    log.plain(4)
    with consumer(broker, max_poll_records=1) as ours:
        ours.assign([FIRST])
        take(ours, 1)
        ours.pause(FIRST)
        assert ours.poll(0.1) == []
        ours.resume(FIRST)
        assert [record.offset for record in take(ours, 1)] == [1]


# Committing


def test_commit_of_a_raw_record_has_the_next_offset_of_the_batch(log: History, broker: Broker) -> None:
    log.plain(3, 4)
    with consumer(broker, group_id="group", fetch_raw_bytes=True) as ours:
        ours.assign([FIRST])
        record, _ = raw(ours, 2)
        assert ours.commit(record, metadata="with words") == {FIRST: Committed(3, "with words")}
        assert ours.committed(FIRST, SECOND) == {FIRST: Committed(3, "with words")}
        ours.commit()
        assert ours.committed() == {FIRST: Committed(7, "")}
        assert ours.committed([FIRST, ("topic", 1)]) == {FIRST: Committed(7, "")}
        assert ours.committed(("topic", 0)) == ours.committed({FIRST}) == {FIRST: Committed(7, "")}
        assert ours.committed([]) == {}
        ours.commit({FIRST: 4, SECOND: Committed(9, "own")}, metadata="other")
        assert ours.committed(FIRST, SECOND) == {FIRST: Committed(4, "other"), SECOND: Committed(9, "own")}
    theirs = TheirConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "group"})
    (seen,) = theirs.committed([TheirPartition("topic", 0)], timeout=30)
    assert seen.offset == 4
    theirs.close()


def test_commit_during_iteration_covers_only_seen_records(log: History, broker: Broker) -> None:
    log.plain(3, 4)
    with consumer(broker, group_id="group") as ours:
        ours.subscribe(["topic"])
        for record in ours:
            ours.commit()
            assert ours.committed(FIRST)[FIRST].offset == record.offset + 1
            if record.offset == 6:
                break
    with pytest.raises(ValueError, match="the consumer is closed"):
        ours.poll()
    assert list(ours) == []


def test_commit_after_transient_error_is_repeated(log: History, broker: Broker) -> None:
    with consumer(broker, group_id="group") as ours:
        for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            broker.faults.add(ApiKey.OFFSET_COMMIT, error=code)
        broker.faults.add(ApiKey.OFFSET_COMMIT, drop="after")
        ours.commit({FIRST: 3})
        assert ours.committed(FIRST) == {FIRST: Committed(3, "")}


def test_commit_with_too_large_metadata_raises(broker: Broker) -> None:
    with consumer(broker, group_id="group") as ours, pytest.raises(BrokerError) as raised:
        ours.commit({FIRST: 3}, metadata="x" * 5000)
    assert raised.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_enable_auto_commit_commits_positions(log: History, broker: Broker) -> None:
    log.plain(3, 4)
    automatic = {"group_id": "group", "enable_auto_commit": True}
    with consumer(broker, auto_commit_interval_ms=50, **automatic) as ours:
        ours.subscribe(["topic"])
        take(ours, 7)
        wait_until(lambda: ours.poll(0.05) == [] and ours.committed(FIRST) == {FIRST: Committed(7, "")})
    log.plain(2)
    with consumer(broker, auto_commit_interval_ms=100_000, **automatic) as ours:
        ours.subscribe(["topic"])
        assert [record.offset for record in take(ours, 2)] == [7, 8]
    with consumer(broker, group_id="group") as ours:
        assert ours.committed(FIRST) == {FIRST: Committed(9, "")}


# Groups


class Telling(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, list[str]]] = []

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", sorted(map(str, partitions))))

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", sorted(map(str, partitions))))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_read_everything_once(broker: Broker, log: History, strategy: str) -> None:
    History(broker.log("topic", 1)).plain(5)
    log.plain(5)
    shared = {"group_id": "group", "partition_assignment_strategy": strategy}
    with consumer(broker, **shared) as first, consumer(broker, **shared) as second:
        told = Telling()
        first.subscribe(["topic"], told)

        def has_all() -> bool:
            first.poll(0.05)
            return len(first.assignment) == 2

        wait_until(has_all)  # else both may be in the first generation
        second.subscribe(["topic"])

        def is_shared() -> bool:
            for each in (first, second):
                each.poll(0.05)
            return len(first.assignment) == len(second.assignment) == 1

        wait_until(is_shared)
        assert first.assignment | second.assignment == {FIRST, SECOND}
        assert sorted(first.group_assignment().values()) == [[FIRST], [SECOND]]
        assert first.group_assignment()[first.member_id] == list(first.assignment)
        assert told.events[0][0] == "assigned"
        assert ("revoked", ["topic-0", "topic-1"]) in told.events or strategy == "cooperative-sticky"


def test_listener_can_commit_revoked_and_seek_assigned_partitions(broker: Broker, log: History) -> None:
    log.plain(5)

    class Committing(RebalanceListener):
        def __init__(self, owner: RawConsumer) -> None:
            self.owner = owner

        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            self.owner.commit({each: self.owner.position(each) for each in partitions}, metadata="revoked")

        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            if FIRST in partitions:
                self.owner.seek(FIRST, 3)

    with consumer(broker, group_id="group") as ours:
        ours.subscribe(["topic"], Committing(ours))
        assert [record.offset for record in take(ours, 2)] == [3, 4]
    with consumer(broker, group_id="group") as ours:
        assert ours.committed(FIRST) == {FIRST: Committed(5, "revoked")}


def test_listener_is_called_if_commits_are_not_authorized(broker: Broker, log: History) -> None:
    log.plain(5)
    told = Telling()
    ours = consumer(broker, group_id="group", enable_auto_commit=True)
    ours.subscribe(["topic"], told)
    take(ours, 5)
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        ours.close()
    assert told.events[-1] == ("revoked", ["topic-0", "topic-1"])
    assert ours.assignment == frozenset()


def test_commit_of_an_expired_member_raises(broker: Broker, log: History) -> None:
    log.plain(5)
    with consumer(broker, group_id="group", max_poll_interval_ms=300) as slow:
        slow.subscribe(["topic"])
        take(slow, 5)
        wait_until(lambda: broker.groups.read("group", lambda group: len(group.members)) == 0)
        with consumer(broker, group_id="group", max_poll_interval_ms=10_000) as other:
            other.subscribe(["topic"])
            assert len(take(other, 5)) == 5
            with pytest.raises(BrokerError) as raised:
                slow.commit()
            assert raised.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            slow.poll(0.0)
            assert slow.assignment == frozenset()


def test_pattern_subscription_assigns_each_matching_topic(broker: Broker, log: History) -> None:
    log.plain(2)
    with consumer(broker, group_id="group") as ours:
        ours.subscribe(re.compile("t.p.c"))
        take(ours, 2)
        assert ours.assignment == {FIRST, SECOND}
        ours.unsubscribe()
        assert ours.assignment == frozenset()
        assert broker.groups.read("group", lambda group: len(group.members)) == 0
        ours.assign([FIRST])
        assert len(take(ours, 2)) == 2


# Errors


@pytest.mark.parametrize("fetch_raw_bytes", [False, True])
def test_consumer_follows_moved_leaders(fetch_raw_bytes: bool) -> None:
    with BrokerCluster(2) as cluster:
        cluster.create_topic("topic", 2)
        log = History(cluster.nodes[0].log("topic", 0))
        with consumer(cluster, fetch_raw_bytes=fetch_raw_bytes) as ours:
            ours.assign([FIRST])
            seen: list[int] = []
            for number in range(6):
                cluster.move_leader("topic", 0, number % 2 + 1)
                log.plain(2, leader_epoch=log.log.leader_epoch)
                seen += [record.offset for record in take(ours, 1 if fetch_raw_bytes else 2)]
            assert seen == ([1, 3, 5, 7, 9, 11] if fetch_raw_bytes else list(range(12)))


def test_consumer_follows_stopped_and_restarted_nodes() -> None:
    with BrokerCluster(2) as cluster:
        cluster.create_topic("topic", 1)
        log = History(cluster.nodes[0].log("topic", 0))
        with consumer(cluster, request_timeout_ms=2000) as ours:
            ours.assign([FIRST])
            for node_id in (1, 2):
                log.plain(1, leader_epoch=log.log.leader_epoch)
                take(ours, 1)
                cluster.stop_node(node_id)
                log.plain(1, leader_epoch=log.log.leader_epoch)
                take(ours, 1)
                cluster.start_node(node_id)


@pytest.mark.parametrize("drop", ["before", "within"])
def test_fetch_on_a_lost_connection_is_repeated(log: History, broker: Broker, drop: str) -> None:
    log.plain(2, 2)
    for _ in range(3):
        broker.faults.add(ApiKey.FETCH, drop=drop)  # type: ignore[arg-type]
    with consumer(broker) as ours:
        ours.assign([FIRST])
        assert [record.offset for record in take(ours, 4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH])
@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_transient_errors_are_retried(log: History, broker: Broker, api: ApiKey, code: ErrorCode) -> None:
    log.plain(2)
    fault = broker.faults.add(api, error=code)
    with consumer(broker, group_id="group") as ours:
        ours.assign([FIRST])
        take(ours, 2)
    assert fault.hits == 1


def test_truncated_log_resets_the_position(broker: Broker) -> None:
    with BrokerCluster(1) as cluster:
        cluster.create_topic("topic", 1)
        log = History(cluster.nodes[0].log("topic", 0))
        log.plain(2, 2)
        with consumer(cluster) as ours:
            ours.assign([FIRST])
            take(ours, 4)
            shorter = lose_tail(cluster.nodes[0], "topic", 2)
            cluster.move_leader("topic", 0, 1)
            again = History(shorter)
            again.plain(1, leader_epoch=shorter.leader_epoch)
            wait_until(lambda: ours.poll(0.05) is not None and ours.position(FIRST) == 3)


def test_truncated_log_without_reset_raises() -> None:
    with BrokerCluster(1) as cluster:
        cluster.create_topic("topic", 1)
        History(cluster.nodes[0].log("topic", 0)).plain(2, 2)
        with consumer(cluster, auto_offset_reset="none") as ours:
            ours.assign([FIRST])
            ours.seek(FIRST, 0)
            take(ours, 4)
            shorter = lose_tail(cluster.nodes[0], "topic", 2)
            cluster.move_leader("topic", 0, 1)
            with pytest.raises(BrokerError, match=r"topic-0 at offset 4 .*truncated to 2; seek to continue"):
                take(ours, 1)
            History(shorter).plain(1, leader_epoch=shorter.leader_epoch)
            ours.seek(FIRST, 2)
            assert [record.offset for record in take(ours, 1)] == [2]


def test_missing_topic_is_read_once_created(broker: Broker) -> None:
    with consumer(broker) as ours:
        ours.assign([("late", 0)])
        ours.seek(("late", 0), 0)
        assert ours.poll(0.3) == []
        broker.create_topic("late")
        History(broker.log("late", 0)).plain(2)
        take(ours, 2)


def test_damaged_batch_raises_after_earlier_records_and_can_be_skipped(log: History, broker: Broker) -> None:
    log.plain(2)
    damaged = log.batch(3)
    damaged[-1] ^= 1
    log.store(damaged)
    log.plain(2)
    for raw_bytes in (False, True):
        with consumer(broker, fetch_raw_bytes=raw_bytes) as ours:
            ours.assign([FIRST])
            before = take(ours, 1)
            assert before[-1].offset == 1
            for _ in range(2):
                with pytest.raises(CorruptBatch, match="topic-0, after offset 1: its CRC is"):
                    take(ours, 1)
            ours.seek(FIRST, 5)
            assert take(ours, 1)[-1].offset in (5, 6)
    with consumer(broker, fetch_raw_bytes=True, check_crcs=False) as ours:
        ours.assign([FIRST])
        assert [record.offset for record in raw(ours, 3)] == [1, 4, 6]


def test_batch_beyond_the_decompression_limit_raises_only_if_decompressed(
    log: History, broker: Broker
) -> None:
    stored = batches.batch([b"x" * 1_000_000], codec=Codec.GZIP, base_timestamp=log.base_timestamp)
    log.store(stored)
    small = {"shoal_max_decompressed_bytes": 10_000}
    with consumer(broker, **small) as ours:
        ours.assign([FIRST])
        with pytest.raises(UnsupportedBatch, match=r"topic-0.*shoal\.max\.decompressed\.bytes"):
            take(ours, 1)
    with consumer(broker, fetch_raw_bytes=True, **small) as ours:
        ours.assign([FIRST])
        assert raw(ours, 1)[0].value == stored


def test_collected_records_are_returned_before_a_fetch_error(
    log: History, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.plain(2)
    with consumer(broker) as ours:
        ours.assign([FIRST])
        send = ours._fetching.send

        def refused_behind_the_first(states: Mapping[TopicPartition, ConsumedPartition]) -> None:
            if states[FIRST].position:
                raise AccessRefused("a broker", "its password was changed")
            send(states)

        monkeypatch.setattr(ours._fetching, "send", refused_behind_the_first)
        assert [record.offset for record in take(ours, 2)] == [0, 1]
        with pytest.raises(AccessRefused):
            ours.poll(20)


@pytest.mark.parametrize("goes_on", [False, True])
def test_records_of_an_interrupted_poll_are_returned_again(
    log: History, broker: Broker, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    def interrupted(states: Mapping[TopicPartition, ConsumedPartition]) -> None:
        assert states[FIRST].position == 4, "nothing was collected"
        raise KeyboardInterrupt

    log.plain(5)
    with consumer(broker, group_id="group", enable_auto_commit=True, max_poll_records=2) as ours:
        ours.assign([FIRST])
        assert [record.offset for record in take(ours, 2)] == [0, 1]
        with monkeypatch.context() as patch:
            patch.setattr(ours._fetching, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ours.poll(5)
        if goes_on:
            assert [record.offset for record in take(ours, 2)] == [2, 3]
    with consumer(broker, group_id="group") as ours:
        assert ours.committed(FIRST) == {FIRST: Committed(4 if goes_on else 2, "")}


def test_unauthorized_topic_raises(log: History, broker: Broker) -> None:
    log.plain(1)
    broker.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with consumer(broker) as ours:
        ours.assign([FIRST])
        with pytest.raises(BrokerError, match="fetching topic-0 at offset 0"):
            take(ours, 1)
        take(ours, 1)


def test_poll_returns_at_records_or_timeout(log: History, broker: Broker) -> None:
    with consumer(broker, fetch_max_wait_ms=25_000) as ours:
        ours.assign([FIRST])
        began_at = time.monotonic()
        assert ours.poll(0.3) == []
        assert time.monotonic() - began_at < 15
        threading.Timer(0.2, log.plain, [1]).start()
        assert len(ours.poll(20)) == 1
        assert time.monotonic() - began_at < 20


# Configuration


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"fetch.raw.byte": True}, "there is no property 'fetch.raw.byte'; did you mean fetch.raw.bytes?"),
        ({"grupo": "x"}, "there is no property 'grupo'"),
        ({"max.poll.records": 0}, "max.poll.records=0 is not a number from 1 to 2147483647"),
        ({"fetch.raw.bytes": "yes"}, "fetch.raw.bytes=yes is neither true nor false"),
        ({"auto.offset.reset": "smallest"}, "auto.offset.reset=smallest is none of earliest, latest, none"),
        ({"group.protocol": "consumer"}, "group.protocol=consumer is none of classic"),
        ({"key.deserializer": "x.StringDeserializer"}, "keys and values are bytes here; remove it"),
        (
            {"session.timeout.ms": 100, "heartbeat.interval.ms": 100},
            "heartbeat.interval.ms must be less than session.timeout.ms",
        ),
        (
            {"group.id": "g", "partition.assignment.strategy": ["sticky"]},
            "unknown assignor 'sticky'; shoal has range, roundrobin, cooperative-sticky",
        ),
        ({"isolation.level": "serializable"}, "is neither read_committed nor read_uncommitted"),
        ({"interceptor.classes": "x"}, "interceptor.classes=x is not supported; remove it"),
    ],
)
def test_unsupported_property_value_is_refused(properties: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        RawConsumer({"bootstrap.servers": "localhost:1", **properties})
    with pytest.raises(ConfigError, match=r"the consumer's configuration: no bootstrap\.servers"):
        RawConsumer({})


def test_java_assignor_names_and_irrelevant_properties_are_accepted(broker: Broker) -> None:
    java = "org.apache.kafka.clients.consumer."
    strategies = f"{java}RangeAssignor, {java}CooperativeStickyAssignor"
    with consumer(
        broker,
        group_id="group",
        partition_assignment_strategy=strategies,
        receive_buffer_bytes=65536,
        key_deserializer="org.apache.kafka.common.serialization.ByteArrayDeserializer",
    ) as ours:
        ours.subscribe(["topic"])
        wait_until(lambda: ours.poll(0.05) == [] and len(ours.assignment) == 2)


def test_group_methods_without_group_and_subscribe_after_assign_raise(broker: Broker) -> None:
    with consumer(broker) as ours:
        for wrong in (ours.commit, ours.committed, ours.group_assignment):
            with pytest.raises(ConfigError, match=r"needs a group\.id"):
                wrong()
        with pytest.raises(ConfigError, match=r"subscribe needs a group\.id"):
            ours.subscribe(["topic"])
    with consumer(broker, group_id="group") as ours:
        with pytest.raises(ConfigError, match=re.escape("give a list of names, or a pattern")):
            ours.subscribe("topic")
        ours.subscribe(["topic"])
        with pytest.raises(ConfigError, match="cannot go together"):
            ours.assign([FIRST])
        ours.unsubscribe()
        ours.assign([FIRST])
        with pytest.raises(ConfigError, match="cannot go together"):
            ours.subscribe(["topic"])


@pytest.mark.parametrize("partition", ["topic", "topic-0", ("topic",), ("topic", "0"), ("topic", -1), (5, 0)])
def test_invalid_partition_argument_is_refused(broker: Broker, partition: object) -> None:
    sentence = re.escape(
        f"invalid partition {partition!r}. Use TopicPartition(topic, number), or such a pair"
    )
    with consumer(broker, group_id="group") as ours:
        for wrong in (
            lambda: ours.assign([partition]),  # type: ignore[list-item]
            lambda: ours.seek(partition, 0),  # type: ignore[arg-type]
            lambda: ours.committed(partition),  # type: ignore[arg-type]
            lambda: ours.commit({partition: 0}),  # type: ignore[dict-item]
        ):
            with pytest.raises(ConfigError, match=sentence):
                wrong()


def test_invalid_topic_name_is_refused_without_a_request(broker: Broker) -> None:
    with consumer(broker, group_id="group") as ours:
        for topic in (b"topic", None, FIRST):
            with pytest.raises(ConfigError, match=re.escape(f"subscribe: {topic!r} is not a topic's name")):
                ours.subscribe([topic])  # type: ignore[list-item]


def test_invalid_offset_is_refused(broker: Broker) -> None:
    with consumer(broker, group_id="group") as ours:
        ours.assign([FIRST])
        for offset in (-1, "5", 1.5, None):
            for wrong in (
                lambda offset=offset: ours.seek(FIRST, offset),
                lambda offset=offset: ours.commit({FIRST: offset}),
                lambda offset=offset: ours.commit({FIRST: Committed(offset, "")}),
            ):
                with pytest.raises(ValueError, match="an offset is a whole number that is not negative"):
                    wrong()
        with pytest.raises(ConfigError, match="give a record, or the next offsets by partition"):
            ours.commit([FIRST])  # type: ignore[arg-type]
        assert ours.committed(FIRST) == {}


@pytest.mark.parametrize(("properties", "kind"), [("localhost:1", "str"), (None, "NoneType")])
def test_configuration_of_wrong_type_is_refused(properties: object, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"configuration is a dict of properties, not of type {kind}"):
        RawConsumer(properties)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="there is no property 1"):
        RawConsumer({1: 2})  # type: ignore[dict-item]
