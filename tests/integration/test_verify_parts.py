"""``shoal verify`` between real clusters: a part, a state, and shares on Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest

from rig import KafkaCluster
from rig.load import Codec, create_topic, load_batches
from rig.made_records import random_records
from rig.record import Record
from rig.shoal import run_shoal

pytestmark = pytest.mark.timeout(300)

COUNT = 5_000

#: The record of each partition that the copy has with another value.
ALTERED = 4_321


def load(cluster: KafkaCluster, topic: str, records: Sequence[Record], size: int, codec: Codec) -> None:
    """Fill two partitions with the same records, in batches of a size."""
    create_topic(cluster.bootstrap, topic, 2)
    parts = [records[first : first + size] for first in range(0, len(records), size)]
    load_batches(cluster.bootstrap, topic, [(number, part, codec) for part in parts for number in (0, 1)])


@pytest.fixture
def command(source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str) -> list[str]:
    """A copy by another program: other batches, another codec, one altered record in each partition."""
    records = random_records(Random(19), COUNT, 100)
    load(source_cluster, topic, records, 250, "lz4")
    other = Record(records[ALTERED].key, b"another", records[ALTERED].headers, records[ALTERED].timestamp)
    copied = [*records[:ALTERED], other, *records[ALTERED + 1 :]]
    load(destination_cluster, topic, copied, 170, "gzip")
    clusters = ["--from", source_cluster.bootstrap, "--to", destination_cluster.bootstrap]
    return ["verify", *clusters, "--topics", topic]


def test_shares_on_spark_have_the_report_of_one_process(command: list[str]) -> None:
    reports = []
    for options in ([], ["--master", "local[2]"]):
        result = run_shoal(*command, "--json", *options)
        assert result.returncode == 1, result.stderr
        report = json.loads(result.stdout)
        reports.append({**report, "at": None, "elapsed_s": 0})
    assert reports[0] == reports[1]
