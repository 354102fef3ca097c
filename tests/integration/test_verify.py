"""``shoal verify`` between two real Kafka clusters, with real damage."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient

from rig import CODECS, OLD_CODECS, KafkaCluster, OldKafka, load_compacted, load_old_batch, read_topic
from rig.dump import dump_partition
from rig.load import Codec as CodecName
from rig.load import create_topic, load_batch, load_every_kind
from rig.made_records import random_records
from rig.old_kafka import MessageFormat
from rig.shoal import run_shoal
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.offsets import LATEST, list_offsets
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.net.address import parse_bootstrap
from shoal.topic_partition import TopicPartition
from shoal.verify import Outcome, Side, VerifyReport, verify
from tests.copying import Uncontrolled, run_copy_task
from tests.verifying import altered, missing

#: Batches of the topics to damage: codec and number of records.
BATCHES: list[tuple[CodecName, int]] = [
    ("none", 3),
    ("lz4", 40),
    ("zstd", 25),
    ("gzip", 1),
    ("snappy", 60),
    ("lz4", 2),
    ("none", 30),
    ("zstd", 8),
]
STARTS = [sum(count for _, count in BATCHES[:index]) for index in range(len(BATCHES) + 1)]
END = STARTS[-1]


def config(name: str, cluster: KafkaCluster | OldKafka) -> ClientConfig:
    return ClientConfig(name, tuple(parse_bootstrap(cluster.bootstrap)))


def verified(
    source: KafkaCluster | OldKafka, destination: KafkaCluster, topic: str, group: str = "none"
) -> VerifyReport:
    return verify(config("source", source), config("destination", destination), {topic: topic}, group=group)


def mirror(
    source: KafkaCluster | OldKafka, destination: KafkaCluster, topic: str, partitions: int, group: str
) -> None:
    """Copy a topic that both sides have, as one Spark task would."""
    settings = CopySettings(config("source", source), config("destination", destination), group, rules="")
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    with Cluster(settings.source) as cluster:
        cluster.refresh([topic])
        ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST), IsolationLevel.READ_COMMITTED)
    ranges = [
        CopyRange(each.topic, each.partition, topic, 0, end)
        for each, end in ends.items()
        if isinstance(end, int)
    ]
    assert run_copy_task(ranges, settings, Uncontrolled()).complete


@pytest.fixture
def loaded(source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str) -> str:
    """A topic of one partition on both sides, with batches in the source only."""
    rng = Random(1)
    for cluster in (source_cluster, destination_cluster):
        create_topic(cluster.bootstrap, topic)
    for codec, count in BATCHES:
        load_batch(source_cluster.bootstrap, topic, 0, random_records(rng, count, 200), codec)
    return topic


def run_verify(
    source: KafkaCluster, destination: KafkaCluster, *options: str
) -> subprocess.CompletedProcess[str]:
    return run_shoal("verify", "--from", source.bootstrap, "--to", destination.bootstrap, *options)


def test_mirror_of_every_kind_of_batch_is_equal_by_positions_and_content(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str
) -> None:
    loaded = load_every_kind(source_cluster.bootstrap, topic, 3)
    create_topic(destination_cluster.bootstrap, topic, 3)
    mirror(source_cluster, destination_cluster, topic, 3, f"group of {topic}")
    for group, by in ((f"group of {topic}", "origin"), ("none", "content")):
        report = verified(source_cluster, destination_cluster, topic, group)
        assert report.equal
        assert report.records == sum(map(len, loaded.values()))
        assert {each.alignment.by.value for each in report.partitions if each.alignment} == {by}


def test_records_deleted_on_both_sides_are_no_difference(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, loaded: str
) -> None:
    mirror(source_cluster, destination_cluster, loaded, 1, f"group of {loaded}")
    for cluster, offset in ((source_cluster, STARTS[3]), (destination_cluster, STARTS[1] + 1)):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for deleted in admin.delete_records([ConfluentTopicPartition(loaded, 0, offset)]).values():
            deleted.result()
    for group in (f"group of {loaded}", "none"):
        (report,) = verified(source_cluster, destination_cluster, loaded, group).partitions
        assert (report.outcome, report.records) == (Outcome.EQUAL, END - STARTS[3])
        assert report.alignment is not None
        assert report.alignment.source_offset == report.alignment.destination_offset == STARTS[3]


def test_mirrors_of_compacted_topics_are_equal(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str
) -> None:
    topics: dict[str, CodecName] = {f"{topic}-{codec}": codec for codec in CODECS}
    left = load_compacted(source_cluster, topics)
    for name in topics:
        create_topic(destination_cluster.bootstrap, name)
        mirror(source_cluster, destination_cluster, name, 1, f"group of {topic}")
        (report,) = verified(source_cluster, destination_cluster, name, f"group of {topic}").partitions
        assert (report.outcome, report.differences) == (Outcome.EQUAL, ())
        assert report.decoded_records > 0
        assert report.records >= report.decoded_records
        assert left[name]


@pytest.mark.parametrize("magic", [0, 1])
def test_mirrors_of_old_messages_are_equal_and_a_missing_one_is_found(
    old_kafka: OldKafka, destination_cluster: KafkaCluster, topic: str, magic: MessageFormat
) -> None:
    old_kafka.create_topic(topic, magic)
    create_topic(destination_cluster.bootstrap, topic)
    rng = Random(magic)
    records = [replace(each, headers=()) for each in random_records(rng, 120, 200)]
    for number, codec in enumerate([*OLD_CODECS, *OLD_CODECS]):
        part = records[12 * number : 12 * (number + 1)]
        load_old_batch(old_kafka.bootstrap, topic, 0, part, codec, magic)
    group = f"group of {topic}"
    mirror(old_kafka, destination_cluster, topic, 1, group)
    (report,) = verified(old_kafka, destination_cluster, topic, group).partitions
    count = 12 * 2 * len(OLD_CODECS)
    assert (report.outcome, report.records, report.decoded_records) == (Outcome.EQUAL, count, count)

    # The same once more, without one record, as one batch.
    found = read_topic(destination_cluster.bootstrap, topic)[0]
    other = f"{topic}-other"
    create_topic(destination_cluster.bootstrap, other)
    load_batch(destination_cluster.bootstrap, other, 0, [*found[:30], *found[31:]], "zstd")
    (report,) = verify(
        config("source", old_kafka), config("destination", destination_cluster), {topic: other}, group="none"
    ).partitions
    assert missing(report) == [(30, 31)]
    assert report.records == count - 1


@pytest.fixture
def own_destination() -> Iterator[KafkaCluster]:
    """A cluster that a test may stop."""
    with KafkaCluster() as cluster:
        yield cluster


def test_bit_flipped_on_disk_is_found_with_its_side_and_offsets(
    source_cluster: KafkaCluster, own_destination: KafkaCluster, topic: str
) -> None:
    rng = Random(4)
    for cluster in (source_cluster, own_destination):
        create_topic(cluster.bootstrap, topic)
    for codec, count in BATCHES:
        load_batch(source_cluster.bootstrap, topic, 0, random_records(rng, count, 200), codec)
    group = f"group of {topic}"
    mirror(source_cluster, own_destination, topic, 1, group)
    assert verified(source_cluster, own_destination, topic, group).equal

    own_destination.stop(1)
    directory = own_destination.partition_dir(topic, 0)
    damaged = dump_partition(directory)[4]
    with (directory / f"{0:020}.log").open("r+b") as segment:
        segment.seek(damaged.position + damaged.size - 1)
        (last,) = segment.read(1)
        segment.seek(-1, 1)
        segment.write(bytes([last ^ 0x10]))
    own_destination.start(1)

    (report,) = verified(source_cluster, own_destination, topic, group).partitions
    (difference,) = report.differences
    assert altered(report) == [((STARTS[4], STARTS[5]), (STARTS[4], STARTS[5]))]
    assert difference.damaged == (Side.DESTINATION,)
    assert report.records == END - 60

    shown = run_verify(source_cluster, own_destination, "--topics", topic, "--group", "none")
    assert shown.returncode == 1, shown.stderr
    assert all(each in shown.stdout for each in (f"{STARTS[4]}", f"{STARTS[5] - 1}"))
    assert "destination's batch" in shown.stdout
