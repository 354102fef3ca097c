"""``shoal verify`` between two real Kafka clusters, with real damage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rig import KafkaCluster
from rig.dump import dump_partition
from rig.load import Codec, create_topic, load_batch
from rig.made_records import random_records
from tests.integration.shared_spark import shoal

#: Batches of the topic to damage: codec and number of records.
BATCHES: list[tuple[Codec, int]] = [
    ("none", 3),
    ("lz4", 40),
    ("zstd", 25),
    ("gzip", 1),
    ("snappy", 60),
    ("lz4", 2),
    ("none", 30),
    ("zstd", 8),
]
DAMAGED = 4


@pytest.fixture
def own_destination() -> Iterator[KafkaCluster]:
    """A cluster that a test may stop."""
    with KafkaCluster() as cluster:
        yield cluster


def test_bit_flipped_on_disk_is_found_with_its_side_and_offsets(
    source_cluster: KafkaCluster, own_destination: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster.bootstrap, topic)
    rng = Random(4)
    for codec, count in BATCHES:
        load_batch(source_cluster.bootstrap, topic, 0, random_records(rng, count, 200), codec)
    between = ["--from", source_cluster.bootstrap, "--to", own_destination.bootstrap, "--topics", topic]
    for verb in (["mirror", "--once"], ["verify"]):
        done = shoal(*verb, *between, state=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr

    own_destination.stop(1)
    directory = own_destination.partition_dir(topic, 0)
    damaged = dump_partition(directory)[DAMAGED]
    with (directory / f"{0:020}.log").open("r+b") as segment:
        segment.seek(damaged.position + damaged.size - 1)
        (last,) = segment.read(1)
        segment.seek(-1, 1)
        segment.write(bytes([last ^ 0x10]))
    own_destination.start(1)

    first = sum(count for _, count in BATCHES[:DAMAGED])
    for more in ([], ["--group", "none"]):
        shown = shoal("verify", *between, *more, state=tmp_path)
        assert shown.returncode == 1, shown.stderr
        assert re.search(rf"{first}.*{first + BATCHES[DAMAGED][1] - 1}", shown.stdout)
        assert "destination's batch" in shown.stdout
