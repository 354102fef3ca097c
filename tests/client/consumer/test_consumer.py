"""The raw consumer on the embedded broker: records, whole batches, positions and commits."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer as TheirConsumer
from confluent_kafka import Producer as TheirProducer
from confluent_kafka import TopicPartition as TheirPartition

from shoal import Committed, ConsumerRecord, RawConsumer, RawRecord
from shoal.client.consumer import TimestampType
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ConfigError, NoPosition
from shoal.records import Codec, RecordBatch, read_header, read_records, verify_crc
from shoal_broker import Broker
from tests.client.consumer.consumed import FIRST, SECOND, consumer, raw, take
from tests.snapshots import Texts
from tests.world import batches
from tests.world.history import ABORT, COMMIT, History
from tests.world.waiting import wait_until


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


def test_poll_without_a_time_to_wait_returns_fetched_records(log: History, broker: Broker) -> None:
    log.plain(3)
    records: list[object] = []

    def has_all() -> bool:
        records.extend(ours.poll(0.0))
        return len(records) == 3

    with consumer(broker) as ours:
        ours.assign([FIRST])
        wait_until(has_all, 20)


@pytest.mark.parametrize("fetch_raw_bytes", [False, True])
def test_poll_returns_at_most_max_poll_records(log: History, broker: Broker, fetch_raw_bytes: bool) -> None:
    log.plain(*[3] * 20)
    with consumer(broker, max_poll_records=7, fetch_raw_bytes=fetch_raw_bytes) as ours:
        ours.assign([FIRST])
        found = [len(ours.poll(20)) for _ in range(2)]
    assert found == [7, 7]


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
        with pytest.raises(NoPosition, match=r"topic-0.*'none'"):
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
        with pytest.raises(ValueError, match=r"topic-7.*consumer"):
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
    with pytest.raises(ValueError, match=r"consumer.*closed"):
        ours.poll()
    assert list(ours) == []


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


# Configuration


@pytest.mark.parametrize(
    "properties",
    [
        {"fetch.raw.byte": True},
        {"grupo": "x"},
        {"max.poll.records": 0},
        {"fetch.raw.bytes": "yes"},
        {"auto.offset.reset": "smallest"},
        {"group.protocol": "consumer"},
        {"key.deserializer": "x.StringDeserializer"},
        {"session.timeout.ms": 100, "heartbeat.interval.ms": 100},
        {"group.id": "g", "partition.assignment.strategy": ["sticky"]},
        {"isolation.level": "serializable"},
        {"interceptor.classes": "x"},
    ],
)
def test_unsupported_property_value_is_refused(properties: dict[str, object], texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        RawConsumer({"bootstrap.servers": "localhost:1", **properties})
    texts(str(refused.value))
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
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
            with pytest.raises(ConfigError, match=r"consumer.*group"):
                wrong()
        with pytest.raises(ConfigError, match=r"subscribe.*group\.id"):
            ours.subscribe(["topic"])
    with consumer(broker, group_id="group") as ours:
        with pytest.raises(ConfigError, match="list of names"):
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
            with pytest.raises(ConfigError, match=re.escape(f"subscribe: {topic!r} ")):
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
                with pytest.raises(ValueError, match=r"offset.*negative"):
                    wrong()
        with pytest.raises(ConfigError, match=r"offsets.*partition"):
            ours.commit([FIRST])  # type: ignore[arg-type]
        assert ours.committed(FIRST) == {}


@pytest.mark.parametrize(("properties", "kind"), [("localhost:1", "str"), (None, "NoneType")])
def test_configuration_of_wrong_type_is_refused(properties: object, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"configuration.*{kind}"):
        RawConsumer(properties)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"property.*1"):
        RawConsumer({1: 2})  # type: ignore[dict-item]
