"""
Real Kafka with the Java agent: several batches of a partition in one Produce request.

Every test runs on each version of Kafka that the agent supports. Those that need the wire alone are in
`tests/conformance`, which runs on the newest version of each line.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig import KafkaCluster, create_topic, dump_partition, read_topic, wait_until
from rig.agent import agent_jar
from rig.jars import KAFKA_VERSION
from shoal.error_codes import ErrorCode
from shoal.records import Codec
from tests.integration.agent_versions import EVERY_VERSION
from tests.integration.raw_producer import ALL_CODECS, RawProducer, as_sent, following, stored
from tests.world.batches import batch

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


def test_batches_are_stored_unchanged(kafka: KafkaCluster, producer: RawProducer, created: str) -> None:
    count = 50
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


def damaged() -> bytearray:
    (second,) = following(3, 1)
    second[-1] ^= 1
    return second


# KIP-712's plain form


def plain(count: int) -> list[bytearray]:
    """Build batches of three records, without a producer id."""
    values = [b"value %d " % number * 4 for number in range(3)]
    return [batch(values, codec=Codec.LZ4, leader_epoch=-1) for _ in range(count)]


@pytest.mark.parametrize("acks", [1, -1])
def test_plain_topic_accepts_batches_without_producer_id(kafka: KafkaCluster, topic: str, acks: int) -> None:
    name = f"{PLAIN}{topic}"
    create_topic(kafka.bootstrap, name)
    batches = plain(5)
    per_request = 3 * len(batches)
    with RawProducer(kafka.bootstrap, client_id="kip-712") as stranger:
        for number in range(2):  # no comparison: a retry is written again
            assert stranger.offer(name, batches, acks=acks) == (ErrorCode.NONE, number * per_request)
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
