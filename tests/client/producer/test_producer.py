"""The raw producer on the embedded broker: stored records, acknowledgements and errors."""

from __future__ import annotations

import array
import random
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from shoal import RawConsumer, RawProducer, RawRecord, RecordMetadata, TopicPartition
from shoal.broker import Broker, BrokerCluster
from shoal.error_codes import ErrorCode
from shoal.errors import (
    BrokerError,
    BufferFull,
    ConfigError,
    CorruptBatch,
    DeliveryTimedOut,
    UnsupportedBatch,
)
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, fingerprint, read_header
from tests import batches
from tests.two_brokers import History, answers, batches_of, content_of, wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 2)
        yield running


@pytest.fixture
def generous() -> Iterator[Broker]:
    """A broker that takes several batches of a partition in a request."""
    with Broker(config={"shoal.multi.batch.produce": "true"}) as running:
        running.create_topic("topic", 2)
        yield running


def producer(broker: Broker | BrokerCluster, **changes: object) -> RawProducer:
    properties: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": 0,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 50,
    }
    properties.update({name.replace("_", "."): value for name, value in changes.items()})
    return RawProducer(properties)


def values(broker: Broker, partition: int = 0, topic: str = "topic") -> list[bytes | None]:
    return [each.value for each in content_of(broker.log(topic, partition))]


def results(futures: list[Future[RecordMetadata]]) -> list[int]:
    return [future.result(20).offset for future in futures]


def some_batches(count: int, records: int = 3, codec: Codec = Codec.NONE) -> list[bytes]:
    return [
        bytes(
            batches.batch(
                [b"%d of %d" % (number, each) for number in range(records)],
                codec=codec,
                base_offset=100 + each * records,
                base_timestamp=int(time.time() * 1000),
                producer_id=4711,
                producer_epoch=3,
                base_sequence=each * records,
            )
        )
        for each in range(count)
    ]


def expected_values(count: int, records: int = 3) -> list[bytes]:
    return [b"%d of %d" % (number, each) for each in range(count) for number in range(records)]


# Records


@pytest.mark.parametrize("codec", Codec)
def test_records_are_stored_as_given(broker: Broker, codec: Codec) -> None:
    with producer(broker, compression_type=codec.name.lower(), linger_ms=20) as ours:
        futures = [
            ours.send(
                "topic",
                None if number % 5 == 0 else b"v%d" % number,
                key=None if number % 3 == 0 else b"k%d" % number,
                partition=0,
                headers={"h": b"x", "n": None},
                timestamp_ms=1_000_000 + number,
            )
            for number in range(100)
        ]
    assert results(futures) == list(range(100))
    assert futures[7].result() == RecordMetadata("topic", 0, 7, 7, 1_000_007)
    stored = content_of(broker.log("topic", 0))
    assert [(each.key, each.value, each.headers, each.timestamp) for each in stored] == [
        (
            None if number % 3 == 0 else b"k%d" % number,
            None if number % 5 == 0 else b"v%d" % number,
            (("h", b"x"), ("n", None)),
            1_000_000 + number,
        )
        for number in range(100)
    ]
    assert {batch.header.codec_id for batch in batches_of(broker.log("topic", 0))} == {codec}


def test_linger_makes_few_batches_and_full_ones_are_sent_at_once(broker: Broker) -> None:
    with producer(broker, linger_ms=60_000, delivery_timeout_ms=120_000, batch_size=10_000) as ours:
        futures = [ours.send("topic", b"x" * 100, partition=0) for _ in range(250)]
        futures[70].result(20)
        assert not futures[-1].done()
        ours.flush()
        assert all(future.done() for future in futures)
    sizes = [batch.header.records_count for batch in batches_of(broker.log("topic", 0))]
    assert len(sizes) == 4
    assert max(sizes) <= 100


def test_records_with_a_key_share_a_partition_and_others_spread_by_batch(broker: Broker) -> None:
    broker.create_topic("many", 8)
    with producer(broker, batch_size=1000, linger_ms=1000) as ours:
        by_key = [ours.send("many", b"", key=b"the same") for _ in range(50)]
        without = [ours.send("many", b"x" * 100) for _ in range(400)]
        assert ours.partitions_for("many") == 8
    assert len({future.result().partition for future in by_key}) == 1
    assert len({future.result().partition for future in without}) > 3
    sizes = [
        batch.header.records_count for number in range(8) for batch in batches_of(broker.log("many", number))
    ]
    assert sum(sizes) / len(sizes) > 3


def test_new_partitions_are_noticed(broker: Broker) -> None:
    with producer(broker, metadata_max_age_ms=50) as ours:
        assert ours.partitions_for("topic") == 2
        topic = broker.topics.get("topic")
        assert topic
        broker.topics.grow(topic, 3)
        wait_until(lambda: ours.partitions_for("topic") == 3 or not ours.send("topic", b"x").result(10))
        assert ours.send("topic", b"x", partition=2).result(10).offset >= 0


def test_partition_newer_than_the_metadata_is_found(broker: Broker) -> None:
    with producer(broker) as ours:
        assert ours.partitions_for("topic") == 2
        broker.topics.grow(broker.topics.topic("topic"), 3)
        assert ours.send("topic", b"x", partition=2).result(10).offset == 0


def test_invalid_timestamp_is_refused_and_the_producer_continues(broker: Broker) -> None:
    with producer(broker) as ours:
        for nonsense in (1.5, 2**63, "now"):
            with pytest.raises(ConfigError, match="is not a number of milliseconds since 1970"):
                ours.send("topic", b"x", partition=0, timestamp_ms=nonsense)  # type: ignore[arg-type]
        assert ours.send("topic", b"x", partition=0, timestamp_ms=0).result(10).offset == 0
        assert ours.failure is None


def test_metadata_has_the_log_append_time(broker: Broker) -> None:
    broker.create_topic("append", 1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    with producer(broker) as ours:
        told = ours.send("append", b"x", timestamp_ms=5).result(10).timestamp
    assert before <= told <= int(time.time() * 1000)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_record_with_acks_0_has_no_offset(broker: Broker, acks: object) -> None:
    with producer(broker, acks=acks) as ours:
        future = ours.send("topic", b"x", partition=0)
        assert future.result(10).offset == (-1 if acks == 0 else 0)
    wait_until(lambda: values(broker) == [b"x"])
    (batch,) = batches_of(broker.log("topic", 0))
    assert (batch.header.producer_id >= 0) == (acks == "all")


def test_batch_too_large_for_the_topic_is_split(broker: Broker) -> None:
    broker.create_topic("small", 1, {"max.message.bytes": "1000"})
    with producer(broker, batch_size=100_000, linger_ms=100) as ours:
        futures = [ours.send("small", b"%04d" % number * 25) for number in range(100)]
        huge = ours.send("small", b"x" * 5000)
        last = ours.send("small", b"last")
    assert sorted(results(futures)) == list(range(100))
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        huge.result()
    assert values(broker, topic="small") == [b"%04d" % number * 25 for number in range(100)] + [b"last"]
    assert last.result().offset == 100


# Whole batches


@pytest.mark.parametrize("codec", Codec)
def test_raw_batch_is_sent_unchanged_with_another_producer_id(broker: Broker, codec: Codec) -> None:
    given = some_batches(4, codec=codec)
    with producer(broker, send_raw_bytes=True) as ours:
        futures = [ours.send("topic", value=each, partition=0) for each in given]
    assert [future.result()[:4] for future in futures] == [
        ("topic", 0, 3 * number + 2, 3 * number) for number in range(4)
    ]
    assert values(broker) == expected_values(4)
    stored = batches_of(broker.log("topic", 0))
    for number, (each, sent) in enumerate(zip(stored, given, strict=True)):
        assert each.view[61:] == sent[61:]
        assert each.header.producer_id != 4711
        assert each.header.base_sequence == 3 * number
        assert fingerprint(each) == fingerprint(batches.view(sent))


@pytest.mark.parametrize("flags", [batches.LOG_APPEND_TIME, batches.TRANSACTIONAL, 0x40])
def test_raw_batch_attributes_of_the_broker_are_cleared(broker: Broker, flags: int) -> None:
    given = batches.batch(2, flags=flags, producer_id=4711, producer_epoch=0)
    with producer(broker, send_raw_bytes=True) as ours:
        assert ours.send("topic", memoryview(given), partition=1).result(10).offset == 1
    (stored,) = batches_of(broker.log("topic", 1))
    assert stored.header.attributes == 0


def test_raw_records_go_from_a_consumer_to_a_producer(broker: Broker, generous: Broker) -> None:
    history = History(broker.log("topic", 1)).plain(3, 1, 5).holed(4, [2]).plain(2)
    properties = {"bootstrap.servers": broker.bootstrap, "fetch.raw.bytes": True}
    with RawConsumer(properties) as consumer, producer(generous, send_raw_bytes=True) as ours:
        consumer.assign([("topic", 1)])
        consumer.seek(("topic", 1), 1)
        records: list[RawRecord] = []
        while consumer.position(("topic", 1)) < history.next_offset:
            records += consumer.poll(1)  # type: ignore[arg-type]
        for record in records:
            ours.send("topic", record)
    assert content_of(generous.log("topic", 1)) == history.committed[1:]


def test_raw_batches_with_holes_or_old_messages_are_rebuilt(broker: Broker) -> None:
    holed = batches.batch([b"a", b"b", b"c"], holes=[1], codec=Codec.LZ4)
    inner = [bytes(batches.message(1, value, offset=at)) for at, value in enumerate([b"d", b"e"])]
    with producer(broker, send_raw_bytes=True) as ours:
        first = ours.send("topic", holed, partition=0)
        second = ours.send("topic", batches.message(0, b"old"), partition=0)
        third = ours.send("topic", batches.wrapper(1, Codec.GZIP, inner, offset=1), partition=0)
    assert results([first, second, third]) == [1, 2, 4]
    assert values(broker) == [b"a", b"c", b"old", b"d", b"e"]
    assert [batch.header.codec_id for batch in batches_of(broker.log("topic", 0))] == [
        Codec.LZ4,
        Codec.NONE,
        Codec.GZIP,
    ]


def damaged() -> bytes:
    changed = bytearray(some_batches(1)[0])
    changed[-1] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("value", "error", "sentence"),
    [
        (b"an ordinary value", ConfigError, "need to be turned on together"),
        (b"", ConfigError, "of 0 bytes is not a record batch"),
        (None, ConfigError, "takes the bytes of a batch, not NoneType; fetch.raw.bytes and send.raw.bytes"),
        ("text", ConfigError, "takes the bytes of a batch, not str"),
        (some_batches(1)[0][:-1], ConfigError, "of 114 bytes is not a record batch"),
        (b"".join(some_batches(2)), CorruptBatch, "is not one batch"),
        (some_batches(1)[0] + b"x", CorruptBatch, "is not one batch"),
        (damaged(), CorruptBatch, "its CRC is"),
        (batches.marker(1, 7), UnsupportedBatch, "it is a control batch"),
        (batches.batch(2, holes=[0, 1]), UnsupportedBatch, "it has no records"),
        (batches.batch(1, flags=5), UnsupportedBatch, "its codec 5 is unknown"),
        # A patched header with too small a size does not match its records.
        (batches.patched(batches.batch(3), 57, (2).to_bytes(4)), CorruptBatch, "its records do not parse"),
    ],
)
def test_invalid_raw_value_is_refused_by_send(
    broker: Broker, value: object, error: type[Exception], sentence: str
) -> None:
    with (
        producer(broker, send_raw_bytes=True) as ours,
        pytest.raises(error, match=re.escape(sentence)),
    ):
        ours.send("topic", value, partition=0)  # type: ignore[arg-type]
    assert values(broker) == []


def test_raw_producer_refuses_ordinary_values(broker: Broker) -> None:
    History(broker.log("topic", 0)).plain(2)
    together = "fetch.raw.bytes and send.raw.bytes need to be turned on together"
    properties = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    with (
        RawConsumer({**properties, "fetch.raw.bytes": True}) as raw,
        RawConsumer(properties) as deep,
        producer(broker) as ordinary,
        producer(broker, send_raw_bytes=True) as shallow,
    ):
        for consumer in (raw, deep):
            consumer.assign([("topic", 0)])
        batch, record = next(raw), next(deep)
        assert isinstance(batch, RawRecord)
        for given in (batch, batch.value, batch.value[10:]):
            with pytest.raises(ConfigError, match=together):
                ordinary.send("topic", given)
        for mixed in (record, record.value):
            with pytest.raises(ConfigError, match=together):
                shallow.send("topic", mixed, partition=0)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="give send\\(\\) the partition"):
            shallow.send("topic", bytes(batch.value))
        with pytest.raises(ConfigError, match="a batch has no key"):
            shallow.send("topic", batch, key=b"k")
        with pytest.raises(ConfigError, match="a record's value is bytes, not str"):
            ordinary.send("topic", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"topic": None}, "topic=None is not a topic's name"),
        ({"topic": b"topic"}, "topic=b'topic' is not a topic's name"),
        ({"partition": "0"}, "partition='0' is not a partition's number"),
        ({"partition": 0.5}, "partition=0.5 is not a partition's number"),
        ({"partition": -1}, "partition=-1 is not a partition's number"),
        ({"key": "text"}, "a record's key is bytes, not str; encode it first"),
        ({"headers": {"name": "text"}}, "a record's header 'name' is bytes, not str; encode it first"),
        ({"headers": {b"name": b"x"}}, "headers={b'name': b'x'}: they are names, as text, with values"),
        ({"headers": None}, "headers=None: they are names, as text, with values, as bytes"),
    ],
)
def test_argument_of_wrong_type_is_refused_and_the_producer_continues(
    broker: Broker, wrong: dict[str, object], sentence: str
) -> None:
    with producer(broker) as ours:
        with pytest.raises(ConfigError, match=re.escape(sentence)):
            ours.send(**{"topic": "topic", "value": b"x", **wrong})  # type: ignore[arg-type]
        assert ours.send("topic", b"x", partition=0).result(10).offset == 0


def test_memoryview_of_other_items_is_sent_as_its_bytes(broker: Broker) -> None:
    with producer(broker) as ours:
        numbers = memoryview(array.array("H", [1, 2, 3]))
        ours.send("topic", numbers, key=numbers, partition=0).result(10)  # type: ignore[arg-type]
    (record,) = content_of(broker.log("topic", 0))
    assert (record.key, record.value) == (numbers.tobytes(), numbers.tobytes())


# Errors after which no record is lost, duplicated or reordered


@pytest.mark.parametrize("send_raw_bytes", [False, True])
@pytest.mark.parametrize("drop", ["before", "after", "within"])
def test_lost_connections_neither_lose_nor_duplicate_records(
    broker: Broker, drop: str, send_raw_bytes: bool
) -> None:
    with producer(broker, send_raw_bytes=send_raw_bytes, batch_size=1) as ours:
        futures = []
        for number, batch in enumerate(some_batches(60, records=1)):
            if number % 10 == 5:
                broker.faults.add(ApiKey.PRODUCE, drop=drop)  # type: ignore[arg-type]
            value = batch if send_raw_bytes else b"0 of %d" % number
            futures.append(ours.send("topic", value, partition=0))
            if number % 7 == 0:
                futures[-1].result(10)
        assert ours.flush(20)
    assert results(futures) == list(range(60))
    assert values(broker) == expected_values(60, records=1)


@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_transient_errors_are_retried_in_order(broker: Broker, code: ErrorCode, effect: str) -> None:
    with producer(broker, batch_size=1) as ours:
        ours.send("topic", b"first", partition=0).result(10)
        fault = broker.faults.add(ApiKey.PRODUCE, error=code, effect=effect, times=2)  # type: ignore[arg-type]
        futures = [ours.send("topic", b"%d" % number, partition=0) for number in range(20)]
        assert ours.flush(20)
        assert fault.hits == 2
    assert results(futures) == list(range(1, 21))
    assert values(broker) == [b"first", *(b"%d" % number for number in range(20))]


def test_refused_batch_leaves_the_others_in_order(broker: Broker) -> None:
    with producer(broker, batch_size=1) as ours:
        futures: list[Future[RecordMetadata]] = []
        refused = []
        for number in range(60):
            if number % 20 == 10:
                futures[-1].result(10)
                refused.append(broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.INVALID_TIMESTAMP))
            futures.append(ours.send("topic", b"%d" % number, partition=0))
        assert ours.flush(20)
    failed = [number for number, future in enumerate(futures) if future.exception()]
    assert len(failed) == 3
    assert all("INVALID_TIMESTAMP" in str(futures[number].exception()) for number in failed)
    assert values(broker) == [b"%d" % number for number in range(60) if number not in failed]
    # The batch after a failed one begins a new epoch, which fences requests in flight of the old one.
    epochs = [batch.header.producer_epoch for batch in batches_of(broker.log("topic", 0))]
    assert epochs == sorted(epochs)
    assert epochs[-1] >= 1


def test_unknown_producer_id_is_recovered(broker: Broker) -> None:
    with producer(broker, batch_size=1) as ours:
        ours.send("topic", b"a", partition=0).result(10)
        for code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH):
            broker.faults.add(ApiKey.PRODUCE, error=code)
            assert ours.send("topic", b"b", partition=0).result(10)
    assert values(broker) == [b"a", b"b", b"b"]


def test_producer_follows_moved_leaders_under_load() -> None:
    with BrokerCluster(3) as cluster:
        cluster.create_topic("topic", 4)
        with producer(cluster, batch_size=200) as ours:
            futures = []
            for number in range(2000):
                if number % 100 == 50:
                    cluster.move_leader("topic", number // 100 % 4, number // 100 % 3 + 1)
                futures.append(ours.send("topic", b"%d" % number, partition=number % 4))
            assert ours.flush(30)
        for partition in range(4):
            stored = values(cluster.nodes[0], partition)
            assert stored == [b"%d" % number for number in range(2000) if number % 4 == partition]
        assert all(future.result().offset >= 0 for future in futures)


def test_producer_waits_for_restarted_nodes() -> None:
    with BrokerCluster(2) as cluster:
        cluster.create_topic("topic", 2)
        with producer(cluster, batch_size=100, request_timeout_ms=2000) as ours:
            futures = []
            for number in range(300):
                if number in (50, 150):
                    cluster.stop_node(number // 100 + 1)
                if number in (100, 200):
                    cluster.start_node(number // 100)
                futures.append(ours.send("topic", b"%d" % number, partition=number % 2))
                time.sleep(0.001)
            assert ours.flush(30)
        for partition in range(2):
            stored = values(cluster.nodes[0], partition)
            assert stored == [b"%d" % number for number in range(300) if number % 2 == partition]


#: Any acknowledgement arrives within this time, on a busy machine as well.
TIMEOUTS = {"request_timeout_ms": 1500, "delivery_timeout_ms": 3000}


def test_batch_after_delivery_timeout_fails_and_later_ones_are_sent(broker: Broker) -> None:
    with producer(broker, batch_size=1, **TIMEOUTS) as ours:
        ours.send("topic", b"before", partition=0).result(10)
        fault = broker.faults.add(ApiKey.PRODUCE, drop="before", times=None)
        late = [ours.send("topic", b"late %d" % number, partition=0) for number in range(3)]
        for future in late:
            error = future.exception(20)
            assert isinstance(error, DeliveryTimedOut)
            assert "no acknowledgement in delivery.timeout.ms=3000" in str(error)
        assert late[0].exception().is_in_doubt  # type: ignore[union-attr]
        broker.faults.remove(fault)
        after = [ours.send("topic", b"after %d" % number, partition=0) for number in range(5)]
        assert ours.flush(20)
        assert [future.exception() for future in after] == [None] * 5
    stored = [value for value in values(broker) if not (value or b"").startswith(b"late")]
    assert stored == [b"before", *(b"after %d" % number for number in range(5))]


def test_written_batch_in_doubt_is_not_repeated(broker: Broker) -> None:
    with producer(broker, batch_size=1, **TIMEOUTS) as ours:
        ours.send("topic", b"before", partition=0).result(10)
        fault = broker.faults.add(ApiKey.PRODUCE, drop="after", times=None)
        late = ours.send("topic", b"late", partition=0)
        assert isinstance(late.exception(20), DeliveryTimedOut)
        broker.faults.remove(fault)
        assert ours.send("topic", b"after", partition=0).result(10).offset == 2
    assert values(broker) == [b"before", b"late", b"after"]


def test_retry_without_idempotence_may_duplicate_and_counts(broker: Broker) -> None:
    with producer(broker, enable_idempotence=False, retries=1) as ours:
        ours.send("topic", b"x", partition=0).result(10)
        broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
        with pytest.raises(BrokerError, match="NOT_ENOUGH_REPLICAS"):
            ours.send("topic", b"y", partition=0).result(10)


def test_unauthorized_topic_raises(broker: Broker) -> None:
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with producer(broker) as ours:
        with pytest.raises(BrokerError, match="producing to topic-0"):
            ours.send("topic", b"x", partition=0).result(10)
        ours.send("topic", b"x", partition=0).result(10)
    broker.faults.add(ApiKey.INIT_PRODUCER_ID, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
    with producer(broker) as ours:
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            ours.send("topic", b"x", partition=0).result(10)
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            ours.send("topic", b"x", partition=0)


def test_missing_topic_or_partition_raises_after_max_block_ms(broker: Broker) -> None:
    with producer(broker, max_block_ms=1500) as ours:
        with pytest.raises(BrokerError, match=r"topic 'nowhere' on .*not there in max\.block\.ms=1500"):
            ours.send("nowhere", b"x")
        with pytest.raises(BrokerError, match=r"topic-2 on .*it has 2 partitions"):
            ours.send("topic", b"x", partition=2)
        threading.Timer(0.1, broker.create_topic, ["late"]).start()
        with producer(broker, max_block_ms=20_000) as patient:
            assert patient.send("late", b"x").result(10).offset == 0


# Memory


@pytest.mark.parametrize("send_raw_bytes", [False, True])
def test_full_buffer_blocks_send_and_then_raises(broker: Broker, send_raw_bytes: bool) -> None:
    batch = bytes(batches.batch([b"x" * 1000], base_timestamp=int(time.time() * 1000)))
    options = {"send_raw_bytes": send_raw_bytes, "buffer_memory": 10_000, "max_block_ms": 2000}
    acknowledge = threading.Event()
    with producer(broker, **options) as ours:

        def send() -> Future[RecordMetadata]:
            return ours.send("topic", batch if send_raw_bytes else b"x" * 1000, partition=0)

        send().result(10)
        answers(broker, ApiKey.PRODUCE, lambda response: acknowledge.wait(20) and response)
        futures = []
        began_at = time.monotonic()
        refused: list[BufferFull] = []
        while not refused:
            try:
                futures.append(send())
            except BufferFull as error:
                refused.append(error)
        assert re.match(r"no room for 1\d\d\d bytes in max\.block\.ms=2000", str(refused[0]))
        assert 1.9 < time.monotonic() - began_at < 15
        assert 5 <= len(futures) <= 10
        acknowledge.set()
        assert ours.flush(10)
        # Acknowledged batches free their memory, and waiting senders receive it.
        more = [send() for _ in range(50)]
        assert ours.flush(10)
        assert all(future.result().offset >= 0 for future in [*futures, *more])
        assert ours._sender.accumulator.used_bytes == 0
        with pytest.raises(BufferFull, match=r"more than buffer\.memory=10000 as a whole"):
            ours.send(
                "topic",
                bytes(batches.batch([b"x" * 20_000])) if send_raw_bytes else b"x" * 20_000,
                partition=0,
            )


def test_maximum_java_timeouts_are_accepted(broker: Broker) -> None:
    longest = 2**63 - 1
    with producer(broker, max_block_ms=longest, buffer_memory=2_000, delivery_timeout_ms=2**31 - 1) as ours:
        for _ in range(10):
            ours.send("topic", b"x" * 1000, partition=0)


def test_full_buffer_is_sent_without_linger(broker: Broker) -> None:
    options = {"linger_ms": 50_000, "delivery_timeout_ms": 100_000, "batch_size": 100_000}
    # If the producer lingered, a send would wait until it is refused.
    with producer(broker, buffer_memory=5_000, max_block_ms=20_000, **options) as ours:
        for _ in range(50):
            ours.send("topic", b"x" * 1000, partition=0)


def test_close_waits_for_all_records_or_its_timeout(broker: Broker) -> None:
    ours = producer(broker)
    future = ours.send("topic", b"x", partition=0)
    ours.close()
    ours.close()
    assert future.result(0).offset == 0
    with pytest.raises(ValueError, match="the producer is closed"):
        ours.partitions_for("topic")
    with pytest.raises(ValueError, match="the producer is closed"):
        ours.send("topic", b"x")
    ours = producer(broker)
    ours.send("topic", b"x", partition=0).result(10)
    broker.faults.add(ApiKey.PRODUCE, delay_s=600)
    future = ours.send("topic", b"x", partition=0)
    began_at = time.monotonic()
    ours.close(0.2)
    assert time.monotonic() - began_at < 15
    assert isinstance(future.exception(0), DeliveryTimedOut)


def test_threads_can_send_concurrently(broker: Broker) -> None:
    with producer(broker, linger_ms=1) as ours:

        def run(number: int) -> None:
            for each in range(200):
                ours.send("topic", b"%d %d" % (number, each), partition=0)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = values(broker)
    for number in range(5):
        mine = [value for value in stored if value and value.startswith(b"%d " % number)]
        assert mine == [b"%d %d" % (number, each) for each in range(200)]


def test_callback_that_sends_does_not_deadlock(broker: Broker) -> None:
    with producer(broker) as ours:
        ours.send("topic", b"1", partition=0).add_done_callback(
            lambda _: ours.send("topic", b"2", partition=0)
        )
        wait_until(lambda: values(broker) == [b"1", b"2"])
        missing: Future[object] = Future()

        def send_nowhere(_: object) -> None:
            try:
                ours.send("topic", b"3", partition=9)
            except BrokerError as error:
                missing.set_result(error)

        ours.send("topic", b"3", partition=0).add_done_callback(send_nowhere)
        assert "it has 2 partitions" in str(missing.result(10))


# Several batches in a request


def test_busy_producer_asks_for_multi_batch_support(generous: Broker) -> None:
    counted = generous.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.1)
    given = some_batches(200)
    with producer(generous, send_raw_bytes=True) as ours:
        ours.send("topic", given[0], partition=0).result(10)
        futures = [ours.send("topic", given[1], partition=0)]
        wait_until(lambda: counted.hits == 2)
        futures += [ours.send("topic", each, partition=0) for each in given[2:]]
        assert ours.flush(60)
        assert results(futures) == [3 * number + 2 for number in range(1, 200)]
    assert counted.hits < 100


def test_multi_batch_broker_receives_several_batches_per_request(generous: Broker) -> None:
    # Each takes so long that more than one batch collects meanwhile.
    counted = generous.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.02)
    given = some_batches(200)
    with producer(generous, send_raw_bytes=True) as ours:
        ours.send("topic", given[0], partition=0).result(10)
        futures = [ours.send("topic", each, partition=0) for each in given[1:]]
        assert ours.flush(20)
        assert results(futures) == [3 * number + 2 for number in range(1, 200)]
    assert values(generous) == expected_values(200)
    assert counted.hits < 100
    # Compare-and-append: each sequence is the offset of its batch.
    assert all(
        batch.header.base_sequence == batch.header.base_offset
        for batch in batches_of(generous.log("topic", 0))[5:]
    )


def test_stock_broker_receives_one_batch_per_request(broker: Broker) -> None:
    counted = broker.faults.add(ApiKey.PRODUCE, times=None)
    with producer(broker, send_raw_bytes=True) as ours:
        futures = [ours.send("topic", each, partition=0) for each in some_batches(50)]
    assert results(futures) == [3 * number + 2 for number in range(50)]
    assert counted.hits >= 50


def test_multi_batch_off_sends_one_batch_per_request(generous: Broker) -> None:
    counted = generous.faults.add(ApiKey.PRODUCE, times=None)
    with producer(generous, send_raw_bytes=True, shoal_multi_batch="off") as ours:
        futures = [ours.send("topic", each, partition=0) for each in some_batches(50)]
    assert results(futures) == [3 * number + 2 for number in range(50)]
    assert counted.hits == 50


@pytest.mark.parametrize("drop", ["before", "after", "within"])
def test_multi_batch_request_without_response_is_neither_lost_nor_duplicated(
    generous: Broker, drop: str
) -> None:
    given = some_batches(300, records=1)
    with producer(generous, send_raw_bytes=True) as ours:
        futures = []
        for number, each in enumerate(given):
            if number % 60 == 30:
                generous.faults.add(ApiKey.PRODUCE, drop=drop)  # type: ignore[arg-type]
            futures.append(ours.send("topic", each, partition=0))
        assert ours.flush(20)
    assert results(futures) == list(range(300))
    assert values(generous) == expected_values(300, records=1)


def test_multi_batch_request_in_doubt_is_resolved_by_a_stock_broker(
    generous: Broker,
) -> None:
    given = some_batches(60, records=2)
    with producer(generous, send_raw_bytes=True) as ours:
        ours.send("topic", given[0], partition=0).result(10)
        slow = generous.faults.add(ApiKey.PRODUCE, delay_s=0.3)
        futures = [ours.send("topic", each, partition=0) for each in given[1:3]]
        assert generous.faults.wait_for(slow)
        # Batches that collect meanwhile go in one request, whose response is lost after the write.
        lost = generous.faults.add(ApiKey.PRODUCE, drop="after", times=2)
        futures += [ours.send("topic", each, partition=0) for each in given[3:]]
        assert generous.faults.wait_for(lost)
        generous.config.static["shoal.multi.batch.produce"] = "false"
        assert ours.flush(20)
    assert results(futures) == [2 * number + 1 for number in range(1, 60)]
    assert values(generous) == expected_values(60, records=2)


def test_another_writer_makes_multi_batch_requests_smaller(generous: Broker) -> None:
    given = some_batches(300, records=1)
    with producer(generous, send_raw_bytes=True) as ours, producer(generous) as foreign:
        futures = []
        for number, each in enumerate(given):
            futures.append(ours.send("topic", each, partition=0))
            if number % 50 == 20:
                foreign.send("topic", b"foreign", partition=0).result(10)
        assert ours.flush(20)
    stored = values(generous)
    assert [value for value in stored if value != b"foreign"] == expected_values(300, records=1)
    assert stored.count(b"foreign") == 6
    assert [stored[offset] for offset in results(futures)] == expected_values(300, records=1)


def test_invalid_batch_among_several_is_named_and_the_others_are_written(generous: Broker) -> None:
    generous.create_topic("small", 1, {"max.message.bytes": "500"})
    large = bytes(batches.batch([b"x" * 1000], base_timestamp=int(time.time() * 1000)))
    given = some_batches(50, records=1)
    with producer(generous, send_raw_bytes=True) as ours:
        futures = [ours.send("small", each, partition=0) for each in given[:25]]
        refused = ours.send("small", large, partition=0)
        futures += [ours.send("small", each, partition=0) for each in given[25:]]
        assert ours.flush(20)
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        refused.result()
    assert [future.exception() for future in futures] == [None] * 50
    assert values(generous, topic="small") == expected_values(50, records=1)


def test_multi_batch_request_refused_repeatedly_is_split(generous: Broker) -> None:
    given = some_batches(40, records=1)
    with producer(generous, send_raw_bytes=True) as ours:
        ours.send("topic", given[0], partition=0).result(10)
        slow = generous.faults.add(ApiKey.PRODUCE, delay_s=0.2)
        futures = [ours.send("topic", each, partition=0) for each in given[1:3]]
        assert generous.faults.wait_for(slow)
        generous.faults.add(ApiKey.PRODUCE, error=ErrorCode.CORRUPT_MESSAGE, times=6)
        futures += [ours.send("topic", each, partition=0) for each in given[3:]]
        assert ours.flush(20)
    refused = [number for number, future in enumerate(futures, 1) if future.exception()]
    assert len(refused) < 5
    assert [value for value in expected_values(40, records=1) if value in set(values(generous))] == values(
        generous
    )
    assert len(values(generous)) == 40 - len(refused)


def test_leaders_with_and_without_multi_batch_can_alternate() -> None:
    with BrokerCluster(2, config={"shoal.multi.batch.produce": "true"}) as cluster:
        cluster.create_topic("topic", 1)
        given = some_batches(400, records=1)
        with producer(cluster, send_raw_bytes=True) as ours:
            for number, each in enumerate(given):
                if number % 50 == 25:
                    cluster.move_leader("topic", 0, number // 50 % 2 + 1)
                ours.send("topic", each, partition=0)
            assert ours.flush(30)
        assert values(cluster.nodes[0]) == expected_values(400, records=1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("multi_batch", [False, True])
def test_acknowledged_records_under_random_faults_are_stored_once_in_order(
    seed: int, multi_batch: bool
) -> None:
    rng = random.Random(seed)
    with BrokerCluster(2, config={"shoal.multi.batch.produce": str(multi_batch).lower()}) as cluster:
        cluster.create_topic("topic", 2)
        given = some_batches(300, records=1)
        futures: list[Future[RecordMetadata]] = []
        with producer(cluster, send_raw_bytes=True, request_timeout_ms=3000) as ours:
            for number, each in enumerate(given):
                if rng.random() < 0.08:
                    node = rng.choice(cluster.nodes)
                    kind = rng.randrange(4)
                    if kind == 0:
                        node.faults.add(ApiKey.PRODUCE, drop=rng.choice(["before", "after", "within"]))
                    elif kind == 1:
                        code = rng.choice([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER])
                        is_done = code is ErrorCode.REQUEST_TIMED_OUT
                        node.faults.add(ApiKey.PRODUCE, error=code, effect="after" if is_done else "before")
                    elif kind == 2:
                        cluster.move_leader("topic", rng.randrange(2), rng.randrange(2) + 1)
                    else:
                        node.faults.add(ApiKey.PRODUCE, error=ErrorCode.INVALID_TIMESTAMP)
                futures.append(ours.send("topic", each, partition=number % 2))
                if rng.random() < 0.05:
                    ours.flush(10)
            assert ours.flush(30)
        for partition in range(2):
            stored = values(cluster.nodes[0], partition)
            acknowledged = [
                b"0 of %d" % number
                for number, future in enumerate(futures)
                if number % 2 == partition and future.exception() is None
            ]
            # A batch whose answer was lost, and that is refused when it is sent again, may be there.
            assert len(set(stored)) == len(stored)
            assert [value for value in stored if value in set(acknowledged)] == acknowledged
            for number, future in enumerate(futures):
                if number % 2 == partition and future.exception() is None:
                    offset = future.result().offset
                    assert offset < 0 or stored[offset] == b"0 of %d" % number


# Configuration


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"send.raw.byte": True}, "there is no property 'send.raw.byte'; did you mean send.raw.bytes?"),
        ({"acks": 2}, "acks=2 is none of all, -1, 0, 1"),
        ({"acks": 1, "enable.idempotence": True}, "enable.idempotence=true needs acks=all"),
        ({"retries": 0, "enable.idempotence": "true"}, "enable.idempotence=true needs retries above 0"),
        (
            {"max.in.flight.requests.per.connection": 6, "enable.idempotence": True},
            "needs max.in.flight.requests.per.connection of at most 5",
        ),
        (
            {"delivery.timeout.ms": 1000, "request.timeout.ms": 1000, "linger.ms": 1},
            "delivery.timeout.ms=1000 must be at least linger.ms + request.timeout.ms, 1001",
        ),
        ({"compression.type": "brotli"}, "is none of none, gzip, snappy, lz4, zstd"),
        ({"transactional.id": "x"}, "transactional.id=x is not supported; remove it"),
        ({"partitioner.class": "x.Y"}, "is not supported: the producer hashes keys by murmur2"),
        ({"value.serializer": "x.StringSerializer"}, "keys and values are bytes here; remove it"),
    ],
)
def test_unsupported_property_value_is_refused(properties: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        RawProducer({"bootstrap.servers": "localhost:1", **properties})


def test_send_without_reachable_broker_times_out() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 200}
    with RawProducer(properties) as ours, pytest.raises(BrokerError, match="not there in"):
        ours.send("topic", b"x")


def test_exported_types_have_the_documented_fields() -> None:
    assert TopicPartition("t", 1) == ("t", 1)
    assert read_header(memoryview(some_batches(1)[0])).producer_id == 4711
