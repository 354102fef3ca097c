"""The responses of a real Kafka 3.9 to old clients, compared with shoal's conversion of the same log.

Each partition is read to its end as a client of Fetch 1 and 3 does. At every step the test also fetches the
record set from the log as it is, and converts it here. Records, offsets and timestamps are the same, and
without compression or with lz4 every byte is.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from kafka.record.memory_records import MemoryRecords

from rig import OLD_CODECS, KafkaCluster, Record, create_topic, load_batch, load_compacted, read_topic
from rig.jars import KAFKA_3_VERSION
from rig.load import Codec, await_markers, load_every_kind, transactional_producer
from rig.made_records import random_records
from shoal.records import Codec as BatchCodec
from shoal.records import split
from shoal.records.down_conversion import DownConversion
from tests.batches import before_padding
from tests.broker.wire import Wire
from tests.java_gzip import with_javas_gzip_header

KAFKA_CHUNK_BYTES = 128 * 1024
LOG_VERSION = 12
VERSION_OF_MAGIC = {0: 1, 1: 3}
EVERY_MAGIC = pytest.mark.parametrize("magic", VERSION_OF_MAGIC)

Values = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key and value."""


@pytest.fixture(scope="module")
def kafka_3() -> Iterator[KafkaCluster]:
    with KafkaCluster(version=KAFKA_3_VERSION) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def wire(kafka_3: KafkaCluster) -> Iterator[Wire]:
    with Wire(kafka_3.bootstrap) as connected:
        yield connected


@dataclass
class Step:
    """One fetch: the record set in the log, and Kafka's conversion.

    Attributes:
        offset: The requested offset.
        source: The record set as it is in the log.
        theirs: The record set that Kafka sends to an old client.
    """

    magic: int
    offset: int
    source: bytes
    theirs: bytes

    def convert(self, *, all_of_it: bool = False, chunk_bytes: int = KAFKA_CHUNK_BYTES) -> bytes:
        """Convert it here, at the length that Kafka announces or without a cut."""
        found = DownConversion(
            [memoryview(self.source)],
            magic=self.magic,
            fetch_offset=self.offset,
            source_bytes=10 * len(self.source) if all_of_it else len(self.source),
            chunk_bytes=chunk_bytes,
        )
        data = b"".join(found.chunks())
        assert len(data) == found.size
        return data

    @property
    def next_offset(self) -> int:
        """The offset after the last batch in the log that was read."""
        return list(split(memoryview(self.source)))[-1].header.next_offset

    @property
    def begins_with_a_marker(self) -> bool:
        return next(split(memoryview(self.source))).header.is_control

    @property
    def depends_on_a_library(self) -> bool:
        """Whether zlib or snappy is used, whose streams differ from build to build."""
        codecs = {each.header.codec_id for each in split(memoryview(self.source))}
        return bool(codecs & {BatchCodec.GZIP, BatchCodec.SNAPPY})


def read_by_kafka_python(data: bytes) -> list[Values]:
    found: list[Values] = []
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        if batch.magic == 2 and batch.is_control_batch:
            continue
        for record in batch:
            timestamp = -1 if record.timestamp is None else record.timestamp
            found.append((record.offset, timestamp, record.key, record.value))
    return found


def steps(wire: Wire, topic: str, magic: int, most_bytes: int, offset: int = 0) -> Iterator[Step]:
    """Read a partition as an old client, from its last offset; skip markers, which no client passes."""
    while True:
        fetched = []
        for version in (LOG_VERSION, VERSION_OF_MAGIC[magic]):
            answer = wire.fetch(
                topic, offset, version=version, max_bytes=10_000_000, partition_max_bytes=most_bytes
            )
            assert answer.error_code == 0, answer
            fetched.append(bytes(answer.record_set))
        if offset == answer.high_watermark:
            assert fetched == [b"", b""]
            return
        step = Step(magic, offset, *fetched)
        yield step
        new = [record[0] for record in read_by_kafka_python(step.theirs) if record[0] >= offset]
        offset = new[-1] + 1 if new else step.next_offset


def assert_same(step: Step) -> str:
    """Compare one step; return how alike the two are."""
    theirs = read_by_kafka_python(step.theirs)
    everything = read_by_kafka_python(step.convert(all_of_it=True))
    if not everything:
        # Only markers: Kafka's padding ends a Java client, shoal's caller reads on.
        assert step.theirs == b"\xff" * 8 + (61).to_bytes(4)
        return "only markers"
    if step.begins_with_a_marker:
        # Kafka converts a batch to compute the size, skips one of the source for it (the marker), and so
        # sends it twice.
        offsets = [record[0] for record in theirs]
        first = next(
            (number for number in range(1, len(theirs)) if offsets[number] <= offsets[0]), len(theirs)
        )
        assert theirs[:first] == everything[:first]
        assert theirs[first:] == everything[: len(theirs) - first]
        return "a batch twice, behind a marker"
    ours = step.convert()
    for found in (read_by_kafka_python(ours), theirs):
        assert found
        assert found == everything[: len(found)]
    if ours == step.theirs:
        return "the same bytes"
    assert step.depends_on_a_library
    as_java = with_javas_gzip_header(before_padding(step.convert(all_of_it=True)))[: len(ours)]
    if as_java + ours[len(as_java) :] == step.theirs:
        return "the same bytes but for gzip's header"
    return "the same records"


def assert_alike(wire: Wire, topic: str, magic: int, most_bytes: int) -> Counter[str]:
    """Compare a partition step by step, and all of it with what kafka-python reads in magic 2."""
    outcomes: Counter[str] = Counter()
    all_theirs: list[Values] = []
    all_ours: list[Values] = []
    in_log: list[Values] = []
    for step in steps(wire, topic, magic, most_bytes):
        outcomes[assert_same(step)] += 1
        for found, data in (
            (all_theirs, step.theirs),
            (all_ours, step.convert(chunk_bytes=16 * 1024)),
            (in_log, step.source),
        ):
            for record in read_by_kafka_python(data):
                # A client skips repeated records.
                if not found or record[0] > found[-1][0]:
                    found.append(record)
    expected = [(offset, timestamp if magic else -1, key, value) for offset, timestamp, key, value in in_log]
    assert all_theirs == expected
    assert all_ours == expected
    return outcomes


@pytest.fixture(scope="module")
def every_kind(kafka_3: KafkaCluster) -> dict[Codec, str]:
    topics: dict[Codec, str] = {codec: f"every-kind-{codec}" for codec in OLD_CODECS}
    for codec, topic in topics.items():
        load_every_kind(kafka_3.bootstrap, topic, partitions=1, codecs=[codec])
    return topics


@EVERY_MAGIC
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_batches_of_every_kind_are_converted_as_by_kafka_3(
    wire: Wire, every_kind: dict[Codec, str], codec: Codec, magic: int
) -> None:
    """Idempotent, plain and transactional ones, of 1 to 1,500 records, with headers and tombstones."""
    # If a batch is larger than the limit, a client before Fetch 3 gets no data at all.
    for most_bytes in (1_048_576,) if magic == 0 else (60_000, 1_048_576):
        outcomes = assert_alike(wire, every_kind[codec], magic, most_bytes)
        print(f"{codec} magic {magic} limit {most_bytes}: {dict(outcomes)}")
        assert outcomes.total() > 2


@pytest.fixture(scope="module")
def compacted(kafka_3: KafkaCluster) -> dict[Codec, str]:
    topics: dict[Codec, str] = {codec: f"compacted-{codec}" for codec in OLD_CODECS}
    load_compacted(kafka_3, {topic: codec for codec, topic in topics.items()})
    return topics


@EVERY_MAGIC
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_compacted_batches_are_converted_as_by_kafka_3(
    wire: Wire, compacted: dict[Codec, str], codec: Codec, magic: int
) -> None:
    outcomes = assert_alike(wire, compacted[codec], magic, 1_048_576)
    print(f"compacted {codec} magic {magic}: {dict(outcomes)}")


@EVERY_MAGIC
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_times_are_converted_as_by_kafka_3(
    kafka_3: KafkaCluster, wire: Wire, topic: str, codec: Codec, magic: int
) -> None:
    create_topic(kafka_3.bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    for count in (1, 20, 300):
        load_batch(kafka_3.bootstrap, topic, 0, _records(count), codec)
    outcomes = assert_alike(wire, topic, magic, 1_048_576)
    print(f"append times {codec} magic {magic}: {dict(outcomes)}")


@pytest.fixture(scope="module")
def two_batches(kafka_3: KafkaCluster) -> dict[Codec, str]:
    topics: dict[Codec, str] = {codec: f"two-batches-{codec}" for codec in OLD_CODECS}
    for codec, topic in topics.items():
        create_topic(kafka_3.bootstrap, topic)
        for count in (3, 7):
            load_batch(kafka_3.bootstrap, topic, 0, _records(count), codec, idempotent=False)
    return topics


@EVERY_MAGIC
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_fetch_from_any_offset_is_converted_as_by_kafka_3(
    wire: Wire, two_batches: dict[Codec, str], codec: Codec, magic: int
) -> None:
    """From inside of batches too."""
    for offset in range(10):
        step = next(steps(wire, two_batches[codec], magic, 1_048_576, offset))
        assert_same(step)


@EVERY_MAGIC
def test_known_transactions_leave_only_committed_records(
    kafka_3: KafkaCluster, wire: Wire, topic: str, magic: int
) -> None:
    """Kafka does not do this for old clients: they read aborted records."""
    create_topic(kafka_3.bootstrap, topic, config={"segment.ms": "1000000000000"})
    producer = transactional_producer(kafka_3.bootstrap, topic, "gzip")
    for commit in (True, False, True, False):
        producer.begin_transaction()
        for record in _records(5):
            producer.produce(topic, record.value, record.key, 0, timestamp=record.timestamp)
        producer.flush(30)
        load_batch(kafka_3.bootstrap, topic, 0, _records(3))
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    await_markers(kafka_3.bootstrap, topic, [0])
    expected = read_topic(kafka_3.bootstrap, topic, "read_committed")[0]
    assert len(expected) == 2 * 5 + 4 * 3

    answer = wire.fetch(topic, version=LOG_VERSION, committed=True)
    found = DownConversion(
        [answer.record_set],
        magic=magic,
        fetch_offset=0,
        source_bytes=1 << 20,
        aborted=answer.aborted_transactions,
    )
    assert read_by_kafka_python(b"".join(found.chunks())) == [
        (record.offset, record.timestamp if magic else -1, record.key, record.value) for record in expected
    ]


def _records(count: int) -> Sequence[Record]:
    return random_records(random.Random(count), count, 200)
