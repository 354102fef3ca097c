"""The raw producer on the embedded broker: stored records, acknowledgements and errors."""

from __future__ import annotations

import pytest

from shoal import RawConsumer, RawProducer, RawRecord, RecordMetadata
from shoal.client.producer.producer import partition_of_key
from shoal.errors import BrokerError, ConfigError, CorruptBatch, UnsupportedBatch
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, fingerprint
from shoal_broker import Broker
from tests.client.producer.produced import expected_values, producer, results, some_batches, values
from tests.snapshots import Texts
from tests.world import batches
from tests.world.contents import batches_of, content_of
from tests.world.history import History
from tests.world.waiting import InThread, wait_until

# Records


@pytest.mark.parametrize("codec", Codec)
def test_records_are_stored_as_given(broker: Broker, codec: Codec) -> None:
    with producer(broker, compression_type=codec.name.lower()) as ours:
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


def test_records_sent_while_a_leader_answers_become_one_batch(broker: Broker) -> None:
    slow = broker.faults.add(ApiKey.PRODUCE, delay_s=0.5)
    with producer(broker, batch_size=10_000) as ours:
        futures = [ours.send("topic", b"first", partition=0)]
        assert broker.faults.wait_for(slow)
        futures += [ours.send("topic", b"x" * 100, partition=0) for _ in range(250)]
        assert ours.flush(20)
    assert results(futures) == list(range(251))
    sizes = [batch.header.records_count for batch in batches_of(broker.log("topic", 0))]
    assert len(sizes) == 5  # three that batch.size fills, and the rest
    assert max(sizes) <= 100


def test_records_with_a_key_share_a_partition_and_others_take_turns(broker: Broker) -> None:
    broker.create_topic("many", 8)
    with producer(broker, batch_size=1000) as ours:
        by_key = [ours.send("many", b"", key=b"the same") for _ in range(50)]
        without = []
        for _ in range(8):
            without.append(ours.send("many", b"x"))
            ours.flush()
        assert ours.partitions_for("many") == 8
    assert len({future.result().partition for future in by_key}) == 1
    assert {future.result().partition for future in without} == set(range(8))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_partition_of_key_is_by_kafka_s_hash(key: bytes, expected: int) -> None:
    assert partition_of_key(key, 2**31) == expected & 0x7FFFFFFF


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


def test_topic_is_found_by_a_thread_that_waits_longer_than_another(broker: Broker) -> None:
    looks = broker.faults.add(ApiKey.METADATA, times=None)
    with producer(broker, max_block_ms=1000) as ours:
        first = InThread(lambda: ours.send("late", b"x"))
        assert broker.faults.wait_for(looks, 4)
        second = InThread(lambda: ours.send("late", b"x"))
        with pytest.raises(BrokerError, match="'late'"):
            first.result()
        broker.create_topic("late")
        assert second.result().result(10).offset == 0


def test_invalid_timestamp_is_refused_and_the_producer_continues(broker: Broker) -> None:
    with producer(broker) as ours:
        for nonsense in (1.5, 2**63, "now"):
            with pytest.raises(ConfigError, match=r"milliseconds.*1970"):
                ours.send("topic", b"x", partition=0, timestamp_ms=nonsense)  # type: ignore[arg-type]
        assert ours.send("topic", b"x", partition=0, timestamp_ms=0).result(10).offset == 0
        assert ours.failure is None


def test_record_too_large_for_the_topic_fails_with_its_batch(broker: Broker) -> None:
    broker.create_topic("small", 1, {"max.message.bytes": "1000"})
    with producer(broker, batch_size=500) as ours:
        futures = [ours.send("small", b"%04d" % number * 25) for number in range(100)]
        huge = ours.send("small", b"x" * 5000)
        last = ours.send("small", b"last")
        assert ours.flush(20)
    assert sorted(results(futures)) == list(range(100))
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        huge.result()
    assert values(broker, topic="small") == [b"%04d" % number * 25 for number in range(100)] + [b"last"]
    assert last.result().offset == 100


def test_bytes_of_a_batch_may_change_after_send(broker: Broker) -> None:
    given = bytearray(some_batches(1)[0])
    with producer(broker, send_raw_bytes=True) as ours:
        future = ours.send("topic", given, partition=0)
        given[61:] = bytes(len(given) - 61)
        assert future.result(10).offset == 2
    assert values(broker) == expected_values(1)


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
    ("value", "error"),
    [
        (b"an ordinary value", ConfigError),
        (b"", ConfigError),
        (None, ConfigError),
        ("text", ConfigError),
        (some_batches(1)[0][:-1], ConfigError),
        (b"".join(some_batches(2)), CorruptBatch),
        (some_batches(1)[0] + b"x", CorruptBatch),
        (damaged(), CorruptBatch),
        (batches.marker(1, 7), UnsupportedBatch),
        (batches.batch(2, holes=[0, 1]), UnsupportedBatch),
        (batches.batch(1, flags=5), UnsupportedBatch),
        # A patched header with too small a size does not match its records.
        (batches.patched(batches.batch(3), 57, (2).to_bytes(4)), CorruptBatch),
    ],
)
def test_invalid_raw_value_is_refused_by_send(
    broker: Broker, value: object, error: type[Exception], texts: Texts
) -> None:
    with producer(broker, send_raw_bytes=True) as ours, pytest.raises(error) as refused:
        ours.send("topic", value, partition=0)  # type: ignore[arg-type]
    texts(str(refused.value))
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
        with pytest.raises(ConfigError, match=r"give.*partition"):
            shallow.send("topic", bytes(batch.value))
        with pytest.raises(ConfigError, match=r"batch.*key"):
            shallow.send("topic", batch, key=b"k")
        with pytest.raises(ConfigError, match=r"value.*bytes"):
            ordinary.send("topic", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": None},
        {"topic": b"topic"},
        {"partition": "0"},
        {"partition": 0.5},
        {"partition": -1},
        {"key": "text"},
        {"headers": {"name": "text"}},
        {"headers": {b"name": b"x"}},
        {"headers": None},
        {"topic": "\ud800"},
    ],
)
def test_argument_of_wrong_type_is_refused_and_the_producer_continues(
    broker: Broker, wrong: dict[str, object], texts: Texts
) -> None:
    with producer(broker) as ours:
        with pytest.raises(ConfigError) as refused:
            ours.send(**{"topic": "topic", "value": b"x", **wrong})  # type: ignore[arg-type]
        texts(str(refused.value))
        assert ours.send("topic", b"x", partition=0).result(10).offset == 0


# Configuration


@pytest.mark.parametrize(
    "properties",
    [
        {"send.raw.byte": True},
        {"acks": 2},
        {"acks": 1},
        {"enable.idempotence": False},
        {"max.in.flight.requests.per.connection": 6},
        {"delivery.timeout.ms": 999, "request.timeout.ms": 1000},
        {"shoal.multi.batch": "off"},
        {"compression.type": "brotli"},
        {"transactional.id": "x"},
        {"partitioner.class": "x.Y"},
        {"value.serializer": "x.StringSerializer"},
    ],
)
def test_unsupported_property_value_is_refused(properties: dict[str, object], texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        RawProducer({"bootstrap.servers": "localhost:1", **properties})
    texts(str(refused.value))


def test_send_without_reachable_broker_times_out() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 200}
    with RawProducer(properties) as ours, pytest.raises(BrokerError, match="not there in"):
        ours.send("topic", b"x")
