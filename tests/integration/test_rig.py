"""Tests of the rig itself, on which the other integration tests rely."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from rig import (
    CODECS,
    OLD_CODECS,
    DescribedPosition,
    KafkaCluster,
    KafkaDidNotStart,
    MissingKafka,
    OldKafka,
    PartitionDigest,
    Record,
    assert_same_records,
    create_topic,
    describe_group,
    digest_topic,
    dump_partition,
    java,
    load_aborted_transaction,
    load_batch,
    load_batches,
    load_committed_transaction,
    load_compacted,
    load_every_kind,
    load_old_batch,
    load_plain,
    load_without_timestamps,
    read_topic,
    wait_until,
)
from rig.load import Codec
from rig.old_kafka import MessageFormat

RECORDS = [
    Record(key=b"k%d" % i, value=b"v%d" % i, headers=(), timestamp=1_600_000_000_000 + i) for i in range(5)
]
COMPRESSIBLE = [replace(record, value=b"value that compresses " * 9) for record in RECORDS]


def test_loaded_records_are_read_back(source_cluster: KafkaCluster, topic: str) -> None:
    sent = load_every_kind(source_cluster.bootstrap, topic, partitions=3)
    assert_same_records(sent, read_topic(source_cluster.bootstrap, topic))


def test_every_kind_of_batch_is_in_the_log(source_cluster: KafkaCluster, topic: str) -> None:
    load_every_kind(source_cluster.bootstrap, topic, partitions=2)
    batches = [
        batch
        for partition in range(2)
        for batch in dump_partition(source_cluster.partition_dir(topic, partition))
    ]
    assert {batch.codec for batch in batches} == set(CODECS)
    assert {batch.is_transactional for batch in batches} == {False, True}
    assert {batch.is_control for batch in batches} == {False, True}
    assert {batch.producer_id >= 0 for batch in batches} == {False, True}
    assert min(batch.count for batch in batches) == 1
    assert max(batch.count for batch in batches) == 1500
    assert max(batch.size for batch in batches) > 850_000
    assert all(batch.is_valid for batch in batches)


def test_every_kind_of_record_is_loaded(source_cluster: KafkaCluster, topic: str) -> None:
    sent = load_every_kind(source_cluster.bootstrap, topic, partitions=1)[0]
    assert {record.key for record in sent} >= {None, b""}
    assert {record.value for record in sent} >= {None, b""}
    headers = {header for record in sent for header in record.headers}
    assert {("null", None), ("empty", b"")} <= headers


def test_aborted_transaction_is_absent(source_cluster: KafkaCluster, topic: str) -> None:
    create_topic(source_cluster.bootstrap, topic)
    load_aborted_transaction(source_cluster.bootstrap, topic, {0: RECORDS}, transactional_id=topic)
    load_committed_transaction(source_cluster.bootstrap, topic, {0: RECORDS[:2]}, transactional_id=topic)
    committed = read_topic(source_cluster.bootstrap, topic, "read_committed")[0]
    everything = read_topic(source_cluster.bootstrap, topic, "read_uncommitted")[0]
    assert [record.value for record in committed] == [b"v0", b"v1"]
    assert [record.value for record in everything] == [b"v0", b"v1", b"v2", b"v3", b"v4", b"v0", b"v1"]


def test_one_flush_is_one_batch(source_cluster: KafkaCluster, topic: str) -> None:
    create_topic(source_cluster.bootstrap, topic)
    for size in (2, 5):
        load_batch(source_cluster.bootstrap, topic, 0, COMPRESSIBLE[:size], codec="lz4")
    load_batches(
        source_cluster.bootstrap,
        topic,
        [(0, COMPRESSIBLE[:3], "lz4"), (0, COMPRESSIBLE[:2], "gzip"), (0, COMPRESSIBLE[:4], "lz4")],
    )
    batches = dump_partition(source_cluster.partition_dir(topic, 0))
    assert [(batch.count, batch.codec) for batch in batches] == [
        *((2, "lz4"), (5, "lz4")),
        *((3, "lz4"), (2, "gzip"), (4, "lz4")),
    ]


def test_plain_load_has_exact_batches(source_cluster: KafkaCluster, topic: str) -> None:
    assert load_plain(source_cluster.bootstrap, topic, "lz4", 16, 1_000_000, partitions=2) == 1000
    batches = dump_partition(source_cluster.partition_dir(topic, 0))
    assert {batch.count for batch in batches[:-1]} == {16}
    assert {len(r.value or b"") for r in read_topic(source_cluster.bootstrap, topic)[0]} == {1000}


def test_same_seed_loads_the_same(source_cluster: KafkaCluster, topic: str) -> None:
    digests: list[dict[int, PartitionDigest]] = []
    for seed in (1, 1, 2):
        name = f"{topic}-{len(digests)}"
        create_topic(source_cluster.bootstrap, name, partitions=4)
        load_plain(source_cluster.bootstrap, name, "zstd", 100, 400_000, seed=seed, create=False)
        digests.append(digest_topic(source_cluster.bootstrap, name))
    assert digests[0] == digests[1] != digests[2]


def test_empty_partition_is_read_as_empty(source_cluster: KafkaCluster, topic: str) -> None:
    create_topic(source_cluster.bootstrap, topic, partitions=2)
    load_batch(source_cluster.bootstrap, topic, 1, RECORDS)
    assert {p: len(records) for p, records in read_topic(source_cluster.bootstrap, topic).items()} == {
        0: 0,
        1: 5,
    }


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_old_broker_writes_old_messages(old_kafka: OldKafka, topic: str, codec: Codec) -> None:
    formats: tuple[MessageFormat, ...] = (0, 1, 2)
    for magic in formats:
        name = f"{topic}-{magic}"
        old_kafka.create_topic(name, magic)
        sent = load_old_batch(old_kafka.bootstrap, name, 0, COMPRESSIBLE, codec, magic)
        assert_same_records(sent, read_topic(old_kafka.bootstrap, name))
        batches = dump_partition(old_kafka.partition_dir(name, 0), deep=True)
        assert {(batch.magic, batch.codec, batch.is_valid) for batch in batches} == {(magic, codec, True)}
        assert len(batches) == (len(COMPRESSIBLE) if codec == "none" and magic < 2 else 1)
        assert [record.offset for batch in batches for record in batch.records] == list(range(5))


def test_message_without_a_timestamp_has_none(old_kafka: OldKafka, topic: str) -> None:
    old_kafka.create_topic(topic, 1)
    sent = load_without_timestamps(old_kafka.bootstrap, topic, 0, COMPRESSIBLE, "gzip")
    assert_same_records(sent, read_topic(old_kafka.bootstrap, topic))
    (wrapper,) = dump_partition(old_kafka.partition_dir(topic, 0), deep=True)
    assert (wrapper.timestamp_type, wrapper.max_timestamp) == ("CreateTime", -1)


def test_old_wrapper_has_one_append_time(old_kafka: OldKafka, topic: str) -> None:
    old_kafka.create_topic(topic, 1, timestamp_type="LogAppendTime")
    load_old_batch(old_kafka.bootstrap, topic, 0, COMPRESSIBLE, "lz4", 1)
    (wrapper,) = dump_partition(old_kafka.partition_dir(topic, 0), deep=True)
    assert wrapper.timestamp_type == "LogAppendTime"
    seen = read_topic(old_kafka.bootstrap, topic)[0]
    assert {(record.timestamp, record.timestamp_type) for record in seen} == {
        (wrapper.max_timestamp, "LogAppendTime")
    }


def test_upgraded_topic_has_all_formats(old_kafka: OldKafka, topic: str) -> None:
    old_kafka.create_topic(topic, 0)
    load_old_batch(old_kafka.bootstrap, topic, 0, RECORDS, "none", 0)
    old_kafka.change_format(topic, 1)
    load_old_batch(old_kafka.bootstrap, topic, 0, RECORDS, "none", 1)
    batches = dump_partition(old_kafka.partition_dir(topic, 0))
    assert [batch.magic for batch in batches] == [0] * 5 + [1] * 5


def test_compacted_topic_is_compacted(source_cluster: KafkaCluster, topic: str) -> None:
    dumped = load_compacted(source_cluster, {topic: "zstd"})[topic]
    seen = read_topic(source_cluster.bootstrap, topic)[0]
    assert [record.offset for record in seen] == [
        record.offset for batch in dumped if not batch.is_control for record in batch.records
    ]
    first, last = dumped[0], dumped[-1]
    assert (first.base_offset, first.last_offset, first.codec) == (0, 4, "zstd")
    assert [record.offset for record in first.records] == [1, 3]
    assert len(seen) < last.last_offset + 1 - len(dumped)


def test_group_is_described(source_cluster: KafkaCluster, topic: str) -> None:
    create_topic(source_cluster.bootstrap, topic)
    load_batch(source_cluster.bootstrap, topic, 0, RECORDS)
    consumer = Consumer({"bootstrap.servers": source_cluster.bootstrap, "group.id": topic})
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    assert describe_group(source_cluster.bootstrap, topic) == {(topic, 0): DescribedPosition(2, 5, 3)}


@pytest.mark.parametrize(
    ("copy", "difference"),
    [
        ({0: RECORDS, 1: []}, "partitions differ"),
        ({0: RECORDS[:-1]}, "1 missing"),
        ({0: [*RECORDS, RECORDS[0]]}, "1 twice"),
        ({0: [RECORDS[1], RECORDS[0], *RECORDS[2:]]}, "1 late"),
        (
            {0: [*RECORDS[:3], replace(RECORDS[3], value=None), RECORDS[4]]},
            "1 foreign",
        ),
        ({0: [replace(RECORDS[0], key=b""), *RECORDS[1:]]}, "1 foreign"),
        (
            {0: [replace(RECORDS[0], headers=(("h", None),)), *RECORDS[1:]]},
            "1 foreign",
        ),
        ({0: [replace(RECORDS[0], timestamp=0), *RECORDS[1:]]}, "1 foreign"),
    ],
)
def test_difference_is_found(copy: dict[int, list[Record]], difference: str) -> None:
    assert_same_records({0: RECORDS}, {0: [replace(record, offset=7) for record in RECORDS]})
    with pytest.raises(AssertionError, match=difference):
        assert_same_records({0: RECORDS}, copy)


def test_restarted_broker_has_its_data(topic: str) -> None:
    with KafkaCluster() as cluster:
        create_topic(cluster.bootstrap, topic)
        sent = load_batch(cluster.bootstrap, topic, 0, RECORDS)
        before = cluster.cpu_seconds()
        cluster.kill(1)
        cluster.start(1)
        assert_same_records(sent, read_topic(cluster.bootstrap, topic))
        assert cluster.cpu_seconds() > before > 0
        assert cluster.peak_rss() > 50_000_000


def test_three_brokers_survive_the_death_of_any_one(topic: str) -> None:
    with KafkaCluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        create_topic(cluster.bootstrap, topic, partitions=3, replication_factor=3)
        sent = {p: load_batch(cluster.bootstrap, topic, p, RECORDS)[p] for p in range(3)}
        cluster.kill(1)
        assert_same_records(sent, read_topic(cluster.bootstrap, topic))
        sent[0] += load_committed_transaction(cluster.bootstrap, topic, {0: RECORDS}, transactional_id=topic)[
            0
        ]
        cluster.start(1)
        assert_same_records(sent, read_topic(cluster.bootstrap, topic))


def test_broker_that_cannot_start_raises_its_error() -> None:
    cluster = KafkaCluster(config={"compression.type": "no-such-codec"})
    with pytest.raises(KafkaDidNotStart, match="no-such-codec"), cluster:
        pass


def test_brokers_end_with_their_python_process(tmp_path: Path) -> None:
    program = (
        "import sys, rig\n"
        "with rig.KafkaCluster() as cluster:\n"
        "    print(cluster.process_id(1), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # a killed Python leaves its files behind
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as python:
        assert python.stdout is not None
        broker = int(python.stdout.readline())
        assert psutil.pid_exists(broker)
        python.send_signal(signal.SIGKILL)
        wait_until(lambda: not _runs(broker), "the end of the broker")


def _runs(process_id: int) -> bool:
    """A zombie does not run; its parent may never wait for it."""
    try:
        return bool(psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_missing_java_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingKafka, match="no java"):
        java()
