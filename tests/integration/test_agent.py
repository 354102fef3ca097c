"""
Real Kafka with the Java agent: several batches of a partition in one Produce request.

Every test runs on each version of Kafka that the agent supports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from rig import KafkaCluster, create_topic, dump_partition, read_topic, wait_until
from rig.agent import agent_jar
from rig.jars import KAFKA_VERSION
from shoal.error_codes import ErrorCode
from shoal.records import Codec
from tests.batches import CONTROL, TRANSACTIONAL, Record, message, patched, payload, raw_batch
from tests.integration.agent_versions import EVERY_VERSION
from tests.integration.raw_producer import ALL_CODECS, Identity, RawProducer, following, records_in, stored

#: Only topics with this prefix accept KIP-712's plain form.
PLAIN = "plain."


@pytest.fixture(scope="module", params=EVERY_VERSION)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    options = tmp_path_factory.mktemp("agent") / "shoal-agent.properties"
    options.write_text(f"plain.topics={PLAIN.replace('.', '[.]')}.*\n")
    with KafkaCluster(
        version=request.param, broker_jvm={1: [f"-javaagent:{agent_jar()}={options}"]}
    ) as cluster:
        yield cluster


@pytest.fixture
def producer(kafka: KafkaCluster) -> Iterator[RawProducer]:
    with RawProducer(kafka.bootstrap) as connected:
        yield connected


@pytest.fixture
def created(kafka: KafkaCluster, topic: str) -> str:
    """A topic with one partition."""
    create_topic(kafka.bootstrap, topic)
    return topic


def as_sent(batches: Sequence[bytes | bytearray]) -> list[bytes]:
    """Return the bytes that a broker may not change: from the magic on."""
    return [bytes(each[16:]) for each in batches]


@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_batches_are_stored_unchanged(
    kafka: KafkaCluster, producer: RawProducer, created: str, count: int
) -> None:
    batches = following(0, count, codecs=ALL_CODECS)
    assert producer.accepted(created, batches) == 0
    assert as_sent(stored(kafka, created)) == as_sent(batches)
    dumped = dump_partition(kafka.partition_dir(created, 0), deep=True)
    assert [each.base_offset for each in dumped] == list(range(0, count * 3, 3))
    assert [each.base_sequence for each in dumped] == list(range(0, count * 3, 3))
    assert all(each.is_valid and each.partition_leader_epoch == 0 for each in dumped)
    assert [record.offset for each in dumped for record in each.records] == list(range(count * 3))
    read = read_topic(kafka.bootstrap, created)[0]
    assert [record.offset for record in read] == list(range(count * 3))


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks_value_is_accepted(
    kafka: KafkaCluster, producer: RawProducer, created: str, acks: int
) -> None:
    batches = following(0, 7)
    producer.send(created, batches, acks=acks)
    if acks:
        assert producer.receive()[2:4] == (0, 0)
    else:
        # No response comes; on one connection the broker handles one request after the other.
        assert producer.accepted(created, following(21, 1)) == 21
    assert as_sent(stored(kafka, created)[:7]) == as_sent(batches)


def test_produce_versions_with_every_codec_are_accepted(kafka: KafkaCluster, created: str) -> None:
    for number, version in enumerate(range(7, 13)):
        with RawProducer(kafka.bootstrap, version=version) as producer:
            assert producer.accepted(created, following(number * 6, 2, codecs=ALL_CODECS)) == number * 6


# Requests that were sent before


def test_repeated_request_of_any_length_is_recognized(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    end = 0
    for count in (1, 2, 5, 6, 50):
        batches = following(end, count)
        assert producer.accepted(created, batches) == end
        for _ in range(2):
            assert producer.accepted(created, batches) == end
        end += records_in(batches)
    assert len(stored(kafka, created)) == 64


def test_repeated_requests_in_flight_are_recognized(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    """Only the last of them is among the five batches of a producer that the broker remembers."""
    requests = [following(number * 150, 50) for number in range(5)]
    for _ in range(2):
        for batches in requests:
            producer.send(created, batches)
        assert [producer.receive()[2:4] for _ in requests] == [(0, number * 150) for number in range(5)]
    assert len(stored(kafka, created)) == 250


@pytest.mark.parametrize("written", [1, 4, 10, 49])
def test_partly_repeated_request_appends_only_new_batches(
    kafka: KafkaCluster, producer: RawProducer, created: str, written: int
) -> None:
    batches = following(0, 50, codecs=ALL_CODECS)
    assert producer.accepted(created, batches[:written]) == 0
    assert producer.accepted(created, batches) == 0
    assert as_sent(stored(kafka, created)) == as_sent(batches)


def test_repeated_request_after_many_others_is_recognized(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    first = following(0, 20)
    assert producer.accepted(created, first) == 0
    for number in range(1, 10):
        assert producer.accepted(created, following(number * 60, 20)) == number * 60
    assert producer.accepted(created, first) == 0
    assert producer.accepted(created, first[7:9]) == 21
    assert len(stored(kafka, created)) == 200


def test_batches_split_otherwise_are_no_duplicates(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    assert producer.accepted(created, following(0, 2, records=3)) == 0
    assert producer.refused(created, following(0, 3, records=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(stored(kafka, created)) == 2


def test_same_sequences_of_another_producer_are_no_duplicates(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    assert producer.accepted(created, following(0, 8)) == 0
    for other in (Identity(producer_id=5_000_000), Identity(producer_epoch=1)):
        code = producer.refused(created, following(0, 8, identity=other))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(stored(kafka, created)) == 8


def test_damaged_duplicate_is_no_duplicate(kafka: KafkaCluster, producer: RawProducer, created: str) -> None:
    batches = following(0, 3)
    assert producer.accepted(created, batches) == 0
    batches[1][-1] ^= 1
    assert producer.refused(created, batches) == ErrorCode.CORRUPT_MESSAGE


# Compare-and-append


def test_request_that_does_not_begin_at_the_log_end_is_refused(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    assert producer.refused(created, following(3, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stored(kafka, created) == []
    assert producer.accepted(created, following(0, 2)) == 0
    for sequence in (7, 5, 2**31 - 1, 2**30):
        code = producer.refused(created, following(sequence, 2))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(stored(kafka, created)) == 2
    assert producer.accepted(created, following(6, 2)) == 6


@pytest.mark.parametrize("count", [1, 3])
def test_fresh_producer_id_is_compared_with_the_log(
    kafka: KafkaCluster, producer: RawProducer, created: str, count: int
) -> None:
    """The stock broker lets an unknown id begin at any sequence."""
    assert producer.accepted(created, following(0, 4)) == 0
    fresh = Identity(producer_id=6_000_000)
    for stale in (0, 9, 13):
        code = producer.refused(created, following(stale, count, identity=fresh))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.accepted(created, following(12, count, identity=fresh)) == 12
    # The first producer's position is stale by now.
    assert producer.refused(created, following(12, count)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.accepted(created, following(12, count, identity=fresh)) == 12


def test_record_of_another_writer_is_detected(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    assert producer.accepted(created, following(0, 2)) == 0
    with RawProducer(kafka.bootstrap, client_id="somebody") as other:
        assert other.accepted(created, [Identity(-1, -1).batch(-1, 1)]) == 6
    assert producer.refused(created, following(6, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # The stock rules would refuse this one, too: the producer's sequences have a gap now.
    assert producer.refused(created, following(7, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.accepted(created, following(7, 2, identity=Identity(producer_id=7_000_000))) == 7


def test_sequences_written_elsewhere_without_comparing_are_refused(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    """The stock append would treat them as duplicates, drop all batches and report success."""
    with RawProducer(kafka.bootstrap, client_id="somebody") as unmarked:
        assert unmarked.accepted(created, following(6, 1)) == 0
        assert unmarked.accepted(created, following(9, 1)) == 3
    # The log ends at 6, the offset at which the first of these would be appended.
    code = producer.refused(created, following(6, 3))
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(stored(kafka, created)) == 2


# Bad requests


def holed() -> bytearray:
    """Return a batch with fewer records than offsets, as compaction leaves them."""
    return patched(Identity().batch(3), 57, (2).to_bytes(4))


def with_base_offset() -> bytearray:
    second = Identity().batch(3)
    second[:8] = (3).to_bytes(8)
    return second


def damaged() -> bytearray:
    second = Identity().batch(3)
    second[-1] ^= 1
    return second


def garbage() -> bytearray:
    """Return a batch with a right checksum over a payload that no codec can read."""
    second = Identity().batch(3, codec=Codec.LZ4)
    return patched(second, 61, b"\xff" * (len(second) - 61))


BAD = {
    "a gap": ([Identity().batch(0), Identity().batch(4)], 87),
    "an overlap": ([Identity().batch(0), Identity().batch(2)], 87),
    "the same batch twice": ([Identity().batch(0), Identity().batch(0)], 87),
    "two producers": ([Identity().batch(0), Identity(producer_id=5).batch(3)], 87),
    "two epochs": ([Identity().batch(0), Identity(producer_epoch=1).batch(3)], 87),
    "no producer": ([Identity(-1, -1).batch(-1), Identity(-1, -1).batch(-1)], 87),
    "no producer in the second": ([Identity().batch(0), Identity(-1, -1).batch(3)], 87),
    "a transaction": ([Identity().batch(0), Identity().batch(3, flags=TRANSACTIONAL)], 87),
    "a transaction first": ([Identity().batch(0, flags=TRANSACTIONAL), Identity().batch(3)], 53),
    "a control batch": ([Identity().batch(0), Identity().batch(3, flags=CONTROL)], 87),
    "a message of magic 1": ([Identity().batch(0), message(1)], 87),
    "a message of magic 0 first": ([message(0), Identity().batch(0)], 87),
    "a base offset": ([Identity().batch(0), with_base_offset()], 87),
    "holes": ([Identity().batch(0), holed()], 87),
    "a wrong checksum": ([Identity().batch(0), damaged()], 2),
    "a wrong checksum first": ([damaged(), Identity().batch(6)], 2),
    "a last batch cut short": ([Identity().batch(0), Identity().batch(3)[:-1]], 87),
    "a last batch cut down to its header": ([Identity().batch(0), Identity().batch(3)[:61]], 87),
    "a codec that there is not": ([Identity().batch(0), Identity().batch(3, flags=5)], -1),
    "a payload that cannot be read": ([Identity().batch(0), garbage()], -1),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_request_writes_nothing(
    kafka: KafkaCluster, producer: RawProducer, created: str, bad: str
) -> None:
    batches, code = BAD[bad]
    assert producer.refused(created, batches) == code
    assert stored(kafka, created) == []
    assert producer.accepted(created, following(0, 2)) == 0


@pytest.mark.parametrize(
    "bad", ["a wrong checksum", "a codec that there is not", "a payload that cannot be read"]
)
def test_bad_batch_is_refused_with_the_stock_brokers_code(
    kafka: KafkaCluster, created: str, bad: str
) -> None:
    (_, second), code = BAD[bad]
    with RawProducer(kafka.bootstrap, client_id="somebody") as unmarked:
        assert unmarked.refused(created, [second]) == code


def test_failed_partition_leaves_the_others(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    with RawProducer(kafka.bootstrap) as producer:
        outcomes = producer.produce_to_partitions(topic, {0: BAD["a gap"][0], 1: following(0, 5)})
    assert {number: each.error_code for number, each in outcomes.items()} == {0: 87, 1: 0}
    assert stored(kafka, topic) == []


def test_probe_of_the_client_finds_the_agent(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    """Send invalid acks: if the broker refuses these, two batches have passed the check of sequences."""
    assert producer.produce(created, following(0, 2), acks=2).error_code == 21
    assert producer.produce(created, BAD["a gap"][0], acks=2).error_code == 87
    with RawProducer(kafka.bootstrap, client_id="somebody") as unmarked:
        assert unmarked.produce(created, following(0, 2), acks=2).error_code == 87


# Other clients


def test_unmarked_client_meets_the_stock_broker(kafka: KafkaCluster, created: str) -> None:
    with RawProducer(kafka.bootstrap, client_id="shoal") as unmarked:
        assert unmarked.refused(created, following(0, 2)) == ErrorCode.INVALID_RECORD
        assert unmarked.accepted(created, [Identity().batch(17)]) == 0  # no id is compared with the log
        assert unmarked.accepted(created, [Identity().batch(17)]) == 0
        assert unmarked.accepted(created, [Identity(-1, -1).batch(-1)]) == 3
    assert len(stored(kafka, created)) == 2


def test_batches_without_sequences_follow_the_stock_rules(
    kafka: KafkaCluster, producer: RawProducer, created: str
) -> None:
    assert producer.accepted(created, [Identity(-1, -1).batch(-1)]) == 0
    assert producer.refused(created, [Identity(-1, -1).batch(-1)] * 2) == ErrorCode.INVALID_RECORD
    assert producer.accepted(created, following(3, 2)) == 3


# KIP-712's plain form


def plain(count: int) -> list[bytearray]:
    """Build batches of one record, without a producer id."""
    return [Identity(-1, -1).batch(-1) for _ in range(count)]


@pytest.mark.parametrize("acks", [1, -1])
def test_plain_topic_accepts_batches_without_producer_id(kafka: KafkaCluster, topic: str, acks: int) -> None:
    name = f"{PLAIN}{topic}"
    create_topic(kafka.bootstrap, name)
    batches = plain(5)
    per_request = records_in(batches)
    with RawProducer(kafka.bootstrap, client_id="kip-712") as stranger:
        for number in range(2):  # no comparison: a retry is written again
            answer = stranger.produce(name, batches, acks=acks)
            assert (answer.error_code, answer.base_offset) == (0, number * per_request)
    assert as_sent(stored(kafka, name)) == as_sent(batches * 2)
    assert [record.offset for record in read_topic(kafka.bootstrap, name)[0]] == list(range(2 * per_request))


def test_plain_topic_refuses_an_unmarked_client_s_producer_id(kafka: KafkaCluster, topic: str) -> None:
    name = f"{PLAIN}{topic}"
    create_topic(kafka.bootstrap, name)
    with RawProducer(kafka.bootstrap, client_id="kip-712") as stranger:
        assert stranger.refused(name, following(0, 2)) == ErrorCode.INVALID_RECORD
        assert stranger.refused(name, [*plain(1), damaged()]) == ErrorCode.INVALID_RECORD
        assert stranger.refused(name, [*plain(1), plain(1)[0][:-1]]) == ErrorCode.INVALID_RECORD
    assert stored(kafka, name) == []


def test_log_names_a_marked_client_once(kafka: KafkaCluster, created: str) -> None:
    client_id = f"shoal-multi-batch.{created}"
    with RawProducer(kafka.bootstrap, client_id=client_id) as producer:
        for number in range(3):
            producer.accepted(created, following(number * 6, 2))
    said = f"Client {client_id} (User:ANONYMOUS) may send several batches of a partition in a request"
    wait_until(lambda: said in kafka.output(1, 10_000), "the log to name the client")
    assert kafka.output(1, 10_000).count(said) == 1


# Topics of every kind


def test_topic_with_a_codec_recompresses_each_batch(
    kafka: KafkaCluster, producer: RawProducer, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, config={"compression.type": "gzip"})
    batches = following(0, 10, codecs=ALL_CODECS)
    assert producer.accepted(topic, batches) == 0
    assert producer.accepted(topic, batches) == 0
    dumped = dump_partition(kafka.partition_dir(topic, 0), deep=True)
    assert [each.codec for each in dumped] == ["gzip"] * 10
    assert [each.base_offset for each in dumped] == list(range(0, 30, 3))
    assert all(each.is_valid and len(each.records) == 3 for each in dumped)
    # Batches that already were gzip stay as they were sent.
    kept = [number for number in range(10) if ALL_CODECS[number % 5] is Codec.GZIP]
    found = as_sent(stored(kafka, topic))
    assert [found[number] for number in kept] == [as_sent(batches)[number] for number in kept]


def test_log_append_time_topic_stamps_each_batch(
    kafka: KafkaCluster, producer: RawProducer, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    outcome = producer.produce(topic, following(0, 10, codecs=ALL_CODECS))
    assert outcome.error_code == 0
    dumped = dump_partition(kafka.partition_dir(topic, 0), deep=True)
    assert {each.timestamp_type for each in dumped} == {"LogAppendTime"}
    assert all(each.is_valid for each in dumped)
    assert outcome.log_append_time_ms == dumped[-1].max_timestamp
    again = producer.produce(topic, following(0, 10, codecs=ALL_CODECS))
    assert again[2:5] == (0, 0, dumped[-1].max_timestamp)


def test_compacted_topic_refuses_batches_without_keys(
    kafka: KafkaCluster, producer: RawProducer, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, config={"cleanup.policy": "compact"})
    assert producer.accepted(topic, following(0, 10)) == 0
    without_key = raw_batch(
        payload([Record(key=None)]), producer_id=Identity().producer_id, producer_epoch=0, base_sequence=33
    )
    assert producer.refused(topic, [*following(30, 1), without_key]) == ErrorCode.INVALID_RECORD
    assert len(stored(kafka, topic)) == 10


def test_segments_are_rolled_between_requests(kafka: KafkaCluster, producer: RawProducer, topic: str) -> None:
    create_topic(kafka.bootstrap, topic, config={"segment.bytes": str(1024 * 1024)})
    sent: list[bytearray] = []
    for number in range(6):
        batches = following(number * 5_000, 50, records=100, codecs=(Codec.NONE,))
        assert producer.accepted(topic, batches) == number * 5_000
        sent += batches
    assert len(list(kafka.partition_dir(topic, 0).glob("*.log"))) > 1
    assert as_sent(stored(kafka, topic)) == as_sent(sent)
    # Batches in an earlier segment are found, too.
    assert producer.accepted(topic, sent[30:90]) == 3_000
    assert len(stored(kafka, topic)) == 300


def test_size_limits_apply_to_batches_and_requests(
    kafka: KafkaCluster, producer: RawProducer, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, config={"max.message.bytes": "5000", "segment.bytes": "1048576"})
    large = Identity().batch(3, 200, Codec.NONE)
    assert producer.refused(topic, [Identity().batch(0), large]) == ErrorCode.MESSAGE_TOO_LARGE
    many = following(0, 400, records=50, codecs=(Codec.NONE,))
    assert producer.refused(topic, many) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert stored(kafka, topic) == []
    assert producer.accepted(topic, many[:100]) == 0


@pytest.mark.parametrize("kafka", [KAFKA_VERSION], indirect=True)
def test_limit_of_decompressed_records_applies_to_each_compressed_batch(
    kafka: KafkaCluster, producer: RawProducer, topic: str
) -> None:
    """By a setting that Kafka has had since 4.4, and checks in compressed batches alone."""
    create_topic(kafka.bootstrap, topic, config={"max.decompressed.message.bytes": "10"})
    batches = following(0, 2, codecs=(Codec.NONE, Codec.LZ4))
    assert producer.refused(topic, batches) == ErrorCode.INVALID_RECORD
    assert stored(kafka, topic) == []
    assert producer.accepted(topic, following(0, 2, codecs=(Codec.NONE,))) == 0
