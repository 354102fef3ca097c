"""Real brokers whose cleaner removes mirrored, uncommitted records, and an update that is repeated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rig import KafkaCluster
from rig.compaction import COMPACTED, await_compaction
from rig.copying import Uncontrolled, run_copy_task
from rig.dump import DumpedBatch
from rig.load import create_topic, load_batch
from rig.read import read_topic
from rig.record import Record
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.positions import GroupPositions
from shoal.net.address import parse_bootstrap
from shoal.topic_partition import TopicPartition

UPDATES = ["a=1", "b=1", "c=1", "d=1", "e=1", "K=on", "f=1", "g=1", "K=off", "K=on", "d=2", "g=2"]

#: Number of records that were mirrored and not committed: the first of K=on.
MIRRORED = 6


def updates() -> list[Record]:
    now_ms = int(time.time() * 1000)
    positions = [each.encode().split(b"=") for each in UPDATES]
    return [Record(key, value, (), now_ms) for key, value in positions]


def is_cleaned(batches: Sequence[DumpedBatch]) -> bool:
    """Whether the cleaner removed each update that has a later one of its key."""
    left = {record.offset for batch in batches for record in batch.records}
    return not left & {3, 5, 7, 8}


def roll_back(settings: CopySettings, topic: str) -> None:
    """Commit the position from before the first record, as a task that was killed leaves it."""
    key = TopicPartition(topic, 0)
    with Cluster(settings.source) as cluster:
        positions = GroupPositions(cluster, settings.group, MemberId)
        position = positions.read([key])[key]
        first = replace(position, source_offset=0, destination_offset=0, source_leader_epoch=-1)
        positions.commit({key: first})


@pytest.mark.parametrize(
    "timestamp_type", ["CreateTime", pytest.param("LogAppendTime", marks=pytest.mark.long)]
)
def test_repeated_update_is_not_taken_for_the_mirrored_one(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, timestamp_type: str
) -> None:
    create_topic(source_cluster.bootstrap, topic, config=COMPACTED)
    create_topic(destination_cluster.bootstrap, topic, config={"message.timestamp.type": timestamp_type})
    for update in updates():
        load_batch(source_cluster.bootstrap, topic, 0, [update], idempotent=False)
    settings = CopySettings(
        ClientConfig("source", tuple(parse_bootstrap(source_cluster.bootstrap))),
        ClientConfig("destination", tuple(parse_bootstrap(destination_cluster.bootstrap))),
        f"mirror of {topic}",
        "rules",
        fetch_buffer_bytes=100_000,
    )
    assert run_copy_task([CopyRange(topic, 0, topic, 0, MIRRORED)], settings, Uncontrolled()).complete
    roll_back(settings, topic)
    await_compaction(source_cluster, topic, is_cleaned)

    (left,) = read_topic(source_cluster.bootstrap, topic).values()
    result = run_copy_task([CopyRange(topic, 0, topic, 0, left[-1].offset + 1)], settings, Uncontrolled())

    assert (result.complete, result.stopped) == (True, ())
    (copied,) = read_topic(destination_cluster.bootstrap, topic).values()
    names = [b"%s=%s" % (each.key, each.value) for each in copied if each.key != b"filler"]
    assert names == b"a=1 b=1 c=1 d=1 e=1 K=on f=1 K=on d=2 g=2".split()
