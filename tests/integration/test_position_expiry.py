"""A real coordinator keeps a mirror's positions longer than a consumer's offsets."""

from __future__ import annotations

import pytest

from rig import KafkaCluster
from rig.load import create_topic
from rig.wait import wait_until
from shoal.client.cluster import Cluster, patiently
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.expiring_positions import warning_of_expiry
from shoal.net.address import parse_bootstrap
from shoal.topic_partition import TopicPartition

PARTITION = TopicPartition("topic", 0)
POSITION = MirrorPosition(7, 7, ProducerIdentity(1, 0), (0, 0), None, None, "rules")
RETENTION = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 5_000}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_position_stays_when_a_later_offset_of_a_consumer_has_expired() -> None:
    with KafkaCluster(config=RETENTION) as kafka:
        create_topic(kafka.bootstrap, PARTITION.topic)
        with Cluster(ClientConfig("source", tuple(parse_bootstrap(kafka.bootstrap)))) as cluster:
            positions = GroupPositions(cluster, "mirror", MemberId)
            assert patiently(lambda: positions.commit({PARTITION: POSITION}), patience_s=60) == {}
            committed = positions.read([PARTITION])
            assert committed[PARTITION].source_offset == POSITION.source_offset
            # The last commit of the two: once it is gone, the retention of both is over.
            reader = {PARTITION: Committed(0, "")}
            assert (
                patiently(lambda: commit_offsets(cluster, "reader", reader, MemberId()), patience_s=60) == {}
            )
            assert fetch_offsets(cluster, "reader", [PARTITION]) == reader
            wait_until(
                lambda: not fetch_offsets(cluster, "reader", [PARTITION]),
                "the end of the offsets' retention",
                timeout_s=240,
            )
            assert positions.read([PARTITION]) == committed
            kafka.restart(1)
            assert patiently(lambda: positions.read([PARTITION]), patience_s=60) == committed
            assert warning_of_expiry(cluster, "mirror") is None
