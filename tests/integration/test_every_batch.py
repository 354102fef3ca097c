"""Every kind of batch that cannot just be copied, from real brokers to a real broker.

Brokers made the source's contents: really compacted topics, really aborted transactions, messages of
magic 0 and 1 really written by Kafka 2.8.2. confluent-kafka reads the copies back, and Kafka's own
DumpLogSegments every batch of them.

A Spark session takes ten seconds to start, so a run mirrors many topics, in a fixture of the module;
the tests check each of them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rig import (
    CODECS,
    OLD_CODECS,
    DumpedBatch,
    KafkaCluster,
    OldKafka,
    Record,
    create_topic,
    dump_partitions,
    load_aborted_transaction,
    load_batch,
    load_committed_transaction,
    load_compacted,
    load_old_batch,
    load_old_compacted,
    load_without_timestamps,
    read_topic,
)
from rig.load import Codec
from rig.made_records import FIRST_TIMESTAMP, random_records
from rig.old_kafka import MessageFormat
from tests.integration.shared_spark import shoal

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

OLD_FORMATS: tuple[MessageFormat, ...] = (0, 1)
BASE_TIMESTAMP = 27
"""Its position in a batch's header."""


@dataclass(frozen=True)
class Arrived:
    """The result of one run for a topic's partition 0.

    Attributes:
        source: Its records before the run, as a consumer of the source reads them.
        records: The destination's, as a consumer reads them.
        source_batches: The source's log, deeply dumped before the run.
        batches: The destination's, after it.
    """

    source: list[Record]
    records: list[Record]
    source_batches: list[DumpedBatch]
    batches: list[DumpedBatch]


@dataclass(frozen=True)
class Run:
    """A finished run: its topics by their names at the source, its summary, and what verify says of it."""

    topics: dict[str, Arrived]
    summary: dict[str, Any]
    stderr: str
    exit_code: int
    verified: str


def run_mirror(
    source: KafkaCluster | OldKafka, destination: KafkaCluster, topics: Sequence[str], state: Path, group: str
) -> Run:
    """Run ``shoal mirror --once`` and ``shoal verify``, and read everything back."""
    before = {topic: read_topic(source.bootstrap, topic)[0] for topic in topics}
    source_directories = {source.partition_dir(topic, 0): topic for topic in topics}
    source_batches = dump_partitions(list(source_directories), deep=True)
    between = ["--from", source.bootstrap, "--to", destination.bootstrap, "--group", group]
    selected = ["--topics", ",".join(topics)]
    done = shoal("mirror", *between, *selected, "--once", "--json", state=state)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    directories = {destination.partition_dir(topic, 0): topic for topic in topics}
    batches = dump_partitions(list(directories), deep=True)
    arrived = {
        topic: Arrived(
            before[topic],
            read_topic(destination.bootstrap, topic)[0],
            source_batches[source_directory],
            batches[directory],
        )
        for (directory, topic), source_directory in zip(directories.items(), source_directories, strict=True)
    }
    verified = shoal("verify", *between, *selected, "--json", state=state)
    return Run(arrived, json.loads(lines[-1]), done.stderr, done.returncode, verified.stdout)


def assert_same(expected: Sequence[Record], found: Sequence[Record]) -> None:
    """Compare record by record; offsets and the type of timestamps are the destination's own."""
    for number, (ours, theirs) in enumerate(zip(expected, found, strict=False)):
        assert ours.same_content(theirs), f"record number {number} differs: {ours} became {theirs}"
    assert len(expected) == len(found)


def assert_sound(batches: Sequence[DumpedBatch]) -> None:
    """Assert that a destination's batches are those of a producer without transactions."""
    end = 0
    for batch in batches:
        assert batch.is_valid
        assert batch.magic == 2
        assert batch.timestamp_type == "CreateTime"
        assert not batch.is_transactional
        assert not batch.is_control
        assert batch.delete_horizon_ms is None
        assert batch.base_offset == end
        assert batch.count == batch.last_offset - batch.base_offset + 1 == len(batch.records)
        assert [record.offset for record in batch.records] == list(range(end, batch.last_offset + 1))
        assert batch.max_timestamp == max(record.timestamp for record in batch.records)
        # The sequence is the destination offset at which a batch must be appended.
        assert batch.base_sequence == batch.base_offset
        end = batch.last_offset + 1


def codecs_of_records(batches: Sequence[DumpedBatch]) -> list[str]:
    """Return each record's codec, in order, without control batches."""
    return [batch.codec for batch in batches if not batch.is_control for _ in batch.records]


def as_at_destination(record: Record) -> Record:
    """Return a record with a create time of -1 if it has no time, as magic 2 does for magic 0."""
    return replace(record, timestamp=-1) if record.timestamp_type == "none" else record


def keyed(count: int, value_bytes: int = 60, seed: int = 0) -> list[Record]:
    """Make records that compress, without headers, each a millisecond later than the one before."""
    rng = Random(seed)
    half = value_bytes // 2
    return [
        Record(
            None if number % 7 == 6 else b"key %d" % number,
            None if number % 11 == 10 else rng.randbytes(half) + b"shoal " * (half // 6),
            (),
            FIRST_TIMESTAMP + number,
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


# The current broker


COMPACTED_TOPICS: dict[str, Codec] = {f"every.compacted-{codec}": codec for codec in CODECS}
COMPACTED_APPENDED = "every.compacted-append-time"
APPENDED_TOPICS: dict[str, Codec] = {f"every.append-time-{codec}": codec for codec in CODECS}


@pytest.fixture(scope="module")
def new_topics(source_cluster: KafkaCluster) -> list[str]:
    """Topics that the current broker has compacted, with transactions and append times."""
    bootstrap = source_cluster.bootstrap
    load_compacted(source_cluster, COMPACTED_TOPICS)
    load_compacted(source_cluster, {COMPACTED_APPENDED: "lz4"}, {"message.timestamp.type": "LogAppendTime"})
    rng = Random(3)
    # A marker with today's time would roll a segment of old records.
    create_topic(bootstrap, "every.transactions", config={"segment.ms": "1000000000000"})
    for codec in CODECS:
        of_codec = partial(load_committed_transaction, bootstrap, "every.transactions", codec=codec)
        of_codec({0: random_records(rng, 7, 300)}, transactional_id=codec)
        load_aborted_transaction(
            bootstrap, "every.transactions", {0: random_records(rng, 5, 300)}, codec, codec
        )
        load_batch(bootstrap, "every.transactions", 0, random_records(rng, 3, 300), codec)
    for topic, codec in APPENDED_TOPICS.items():
        create_topic(bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
        for count in (1, 20, 200):
            load_batch(bootstrap, topic, 0, random_records(rng, count, 300), codec)
    return [*COMPACTED_TOPICS, COMPACTED_APPENDED, *APPENDED_TOPICS, "every.transactions"]


@pytest.fixture(scope="module")
def new_run(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, new_topics: list[str], state: Path
) -> Run:
    for topic in (*COMPACTED_TOPICS, COMPACTED_APPENDED):
        # Not compacted there as well: otherwise some arrived records would be missing.
        create_topic(destination_cluster.bootstrap, topic)
    return run_mirror(
        source_cluster, destination_cluster, new_topics, state=state, group="every-kind-of-batch"
    )


def test_run_succeeds_with_its_decisions(new_run: Run) -> None:
    assert new_run.exit_code == 0, new_run.stderr
    assert json.loads(new_run.verified)["outcome"] == "equal", new_run.verified
    assert set(new_run.summary["decisions"]) == {
        "copied",
        "dropped: control",
        "dropped: aborted",
        "dropped: empty",
        "rebuilt: holes",
    }
    assert new_run.summary["records"] == sum(len(each.records) for each in new_run.topics.values())


@pytest.mark.parametrize("topic", COMPACTED_TOPICS)
def test_compacted_batches_arrive_without_holes(new_run: Run, topic: str) -> None:
    arrived = new_run.topics[topic]
    left = [batch for batch in arrived.source_batches if batch.count > 0 and not batch.is_control]
    # The test needs real holes, tombstones with a horizon and empty batches.
    assert sum(batch.has_holes for batch in left) >= 4
    assert {batch.has_holes for batch in left if batch.delete_horizon_ms is not None} == {False, True}
    assert any(batch.count == 0 for batch in arrived.source_batches)
    assert COMPACTED_TOPICS[topic] in {batch.codec for batch in left if batch.has_holes}

    assert_same(arrived.source, arrived.records)
    assert_sound(arrived.batches)
    for batch in arrived.batches:
        joined = _take(left, batch.count)
        assert {each.codec for each in joined} == {batch.codec}
        assert len(joined) == 1 or all(each.has_holes for each in joined)
    assert not left


def _take(batches: list[DumpedBatch], records: int) -> list[DumpedBatch]:
    """Remove the first batches that have so many records together."""
    taken: list[DumpedBatch] = []
    while records > 0:
        taken.append(batches.pop(0))
        records -= taken[-1].count
    assert not records, "a batch has records of a part of another"
    return taken


def test_aborted_records_and_markers_are_dropped(new_run: Run) -> None:
    arrived = new_run.topics["every.transactions"]
    assert sum(batch.is_control for batch in arrived.source_batches) == 2 * len(CODECS)
    assert len(arrived.source) == len(CODECS) * (7 + 3)
    assert_same(arrived.source, arrived.records)
    assert_sound(arrived.batches)
    assert [batch.count for batch in arrived.batches] == [7, 3] * len(CODECS)


@pytest.mark.parametrize("topic", APPENDED_TOPICS)
def test_record_of_a_log_append_time_topic_arrives_with_its_create_time(new_run: Run, topic: str) -> None:
    arrived = new_run.topics[topic]
    assert {batch.timestamp_type for batch in arrived.source_batches} == {"LogAppendTime"}
    assert [(r.key, r.value, r.headers) for r in arrived.records] == [
        (r.key, r.value, r.headers) for r in arrived.source
    ]
    # The times that the loader sent: years before those that a consumer of the source reads.
    years = range(FIRST_TIMESTAMP, FIRST_TIMESTAMP + 100_000_000)
    assert all(record.timestamp in years for record in arrived.records)
    assert not any(record.timestamp in years for record in arrived.source)
    assert_sound(arrived.batches)
    assert codecs_of_records(arrived.batches) == codecs_of_records(arrived.source_batches)


def test_record_with_append_time_from_compaction_keeps_it(source_cluster: KafkaCluster, new_run: Run) -> None:
    """If a broker cleans a LogAppendTime batch, it writes the rest with its append time.

    The create times of rewritten batches are therefore lost: of those with holes, or with a delete
    horizon. Unchanged batches still have them.
    """
    arrived = new_run.topics[COMPACTED_APPENDED]
    segment = source_cluster.partition_dir(COMPACTED_APPENDED, 0) / f"{0:020}.log"
    (base_timestamp,) = struct.unpack_from(">q", segment.read_bytes(), BASE_TIMESTAMP)
    assert arrived.source_batches[0].has_holes
    assert base_timestamp == arrived.source_batches[0].max_timestamp

    # A topic with create times got the same records; filler has another time.
    sent = [each for each in new_run.topics["every.compacted-lz4"].source if each.key != b"filler"]
    rewritten = {
        record.offset
        for batch in arrived.source_batches
        if batch.has_holes or batch.delete_horizon_ms is not None
        for record in batch.records
    }
    expected = [
        appended if appended.offset in rewritten else replace(appended, timestamp=created.timestamp)
        for appended, created in zip(arrived.source, sent, strict=False)
    ]
    assert {each.offset in rewritten for each in arrived.source[: len(sent)]} == {False, True}
    assert_same(expected, arrived.records[: len(sent)])
    assert [record.key for record in arrived.records] == [record.key for record in arrived.source]
    assert_sound(arrived.batches)


# Kafka 2.8.2


OLD_TOPICS: dict[str, tuple[MessageFormat, Codec]] = {
    f"old.magic-{magic}-{codec}": (magic, codec) for magic in OLD_FORMATS for codec in OLD_CODECS
}
OLD_APPENDED: dict[str, Codec] = {f"old.append-time-{codec}": codec for codec in OLD_CODECS}
OLD_TIMELESS: dict[str, Codec] = {f"old.without-timestamps-{codec}": codec for codec in OLD_CODECS}
OLD_COMPACTED: dict[str, tuple[MessageFormat, Codec]] = {
    f"old.compacted-{magic}-{codec}": (magic, codec) for magic in OLD_FORMATS for codec in OLD_CODECS
}


@pytest.fixture(scope="module")
def old_topics(old_kafka: OldKafka) -> list[str]:
    bootstrap = old_kafka.bootstrap
    for topic, (magic, codec) in OLD_TOPICS.items():
        old_kafka.create_topic(topic, magic)
        for count in (1, 20, 200):
            load_old_batch(bootstrap, topic, 0, keyed(count, seed=count), codec, magic)
    for topic, codec in OLD_APPENDED.items():
        old_kafka.create_topic(topic, 1, timestamp_type="LogAppendTime")
        for count in (1, 20, 200):
            load_old_batch(bootstrap, topic, 0, keyed(count, seed=count), codec, 1)
    for topic, codec in OLD_TIMELESS.items():
        old_kafka.create_topic(topic, 1)
        for count in (1, 20, 200):
            load_without_timestamps(bootstrap, topic, 0, keyed(count, seed=count), codec)
    load_old_compacted(old_kafka, OLD_COMPACTED)

    old_kafka.create_topic("old.upgraded", 0)
    formats: tuple[MessageFormat, ...] = (0, 1, 2)
    for magic in formats:
        if magic > 0:
            old_kafka.change_format("old.upgraded", magic)
        for codec in OLD_CODECS:
            load_old_batch(bootstrap, "old.upgraded", 0, keyed(20, seed=magic), codec, magic)
    load_batch(bootstrap, "old.upgraded", 0, keyed(20, seed=9), "zstd")

    return [*OLD_TOPICS, *OLD_APPENDED, *OLD_TIMELESS, *OLD_COMPACTED, "old.upgraded"]


@pytest.fixture(scope="module")
def old_run(
    old_kafka: OldKafka, destination_cluster: KafkaCluster, old_topics: list[str], state: Path
) -> Run:
    for topic in OLD_COMPACTED:
        create_topic(destination_cluster.bootstrap, topic)
    return run_mirror(old_kafka, destination_cluster, old_topics, state=state, group="old-formats")


def test_run_from_an_old_cluster_succeeds_with_its_decisions(old_run: Run) -> None:
    assert old_run.exit_code == 0, old_run.stderr
    assert json.loads(old_run.verified)["outcome"] == "equal", old_run.verified
    assert set(old_run.summary["decisions"]) == {"copied", "rebuilt: old format"}
    assert old_run.summary["records"] == sum(len(each.records) for each in old_run.topics.values())


@pytest.mark.parametrize("topic", [*OLD_TOPICS, *OLD_APPENDED, *OLD_TIMELESS, *OLD_COMPACTED])
def test_old_formats_become_batches_with_the_same_records_and_codec(old_run: Run, topic: str) -> None:
    arrived = old_run.topics[topic]
    magic, codec = {**OLD_TOPICS, **OLD_COMPACTED}.get(topic) or (1, {**OLD_APPENDED, **OLD_TIMELESS}[topic])
    assert {batch.magic for batch in arrived.source_batches} == {magic}
    assert codec in {batch.codec for batch in arrived.source_batches}
    # Really a wrapper of many.
    assert max(len(batch.records) for batch in arrived.source_batches) >= (1 if codec == "none" else 40)

    assert_same([as_at_destination(record) for record in arrived.source], arrived.records)
    assert_sound(arrived.batches)
    assert codecs_of_records(arrived.batches) == codecs_of_records(arrived.source_batches)


@pytest.mark.parametrize("topic", OLD_APPENDED)
def test_append_time_of_an_old_wrapper_applies_to_its_records(old_run: Run, topic: str) -> None:
    arrived = old_run.topics[topic]
    assert {batch.timestamp_type for batch in arrived.source_batches} == {"LogAppendTime"}
    assert {record.timestamp_type for record in arrived.source} == {"LogAppendTime"}
    assert [record.timestamp for record in arrived.records] == [record.timestamp for record in arrived.source]
    assert min(record.timestamp for record in arrived.records) > FIRST_TIMESTAMP + 100_000_000


@pytest.mark.parametrize("topic", OLD_COMPACTED)
def test_old_topics_include_wrappers_with_holes(old_run: Run, topic: str) -> None:
    batches = old_run.topics[topic].source_batches
    offsets = [record.offset for batch in batches for record in batch.records]
    assert len(offsets) < offsets[-1] - offsets[0] + 1
    if OLD_COMPACTED[topic][1] != "none":
        assert any(len(batch.records) < batch.last_offset - batch.records[0].offset + 1 for batch in batches)


def test_partition_of_all_formats_arrives_whole(old_run: Run) -> None:
    arrived = old_run.topics["old.upgraded"]
    assert {(batch.magic, batch.codec) for batch in arrived.source_batches} == {
        *((magic, codec) for magic in (0, 1, 2) for codec in OLD_CODECS),
        (2, "zstd"),
    }
    assert_same([as_at_destination(record) for record in arrived.source], arrived.records)
    assert_sound(arrived.batches)
    assert codecs_of_records(arrived.batches) == codecs_of_records(arrived.source_batches)
