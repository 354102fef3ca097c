"""The clock of a cluster's active controller, by DescribeQuorum."""

from __future__ import annotations

import time
from typing import Any

import pytest

from shoal.client.broker_state import controller_ahead_ms
from shoal.client.cluster import Cluster
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import Api, BrokerState
from tests.world.clusters import config_of

HOUR_MS = 3_600_000
_Response = response_class(ApiKey.DESCRIBE_QUORUM)
_Topic = _Response.TopicData
_Partition = _Topic.PartitionData


def with_quorum(broker: Broker, ahead_ms: float, *, error_code: int = 0, leader: int = 3) -> None:
    """Let a broker describe a quorum of two, whose leader's clock is ahead of ours."""

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        now_ms = int(time.time() * 1000 + ahead_ms)
        voters = [
            _Partition.ReplicaState(
                replica_id=node,
                log_end_offset=7,
                last_fetch_timestamp=now_ms if node == 3 else 1,
                last_caught_up_timestamp=now_ms if node == 3 else 1,
            )
            for node in (2, 3)
        ]
        partition = _Partition(
            partition_index=0,
            error_code=error_code,
            leader_id=leader,
            leader_epoch=1,
            high_watermark=7,
            current_voters=voters,
            observers=[],
        )
        topic = _Topic(topic_name="__cluster_metadata", partitions=[partition])
        return _Response(version=call.version, error_code=0, topics=[topic])

    broker.apis = {**broker.apis, ApiKey.DESCRIBE_QUORUM: Api(ApiKey.DESCRIBE_QUORUM, 0, 1, handle)}


def ahead_of(broker: Broker) -> float | None:
    with Cluster(config_of("destination", broker)) as cluster:
        return controller_ahead_ms(cluster)


@pytest.mark.parametrize("ahead_ms", [0, HOUR_MS, -HOUR_MS])
def test_controller_ahead_is_read_from_the_quorums_leader(broker: Broker, ahead_ms: int) -> None:
    with_quorum(broker, ahead_ms)
    assert ahead_of(broker) == pytest.approx(ahead_ms, abs=2000)


def test_controller_ahead_without_quorum_information_is_unknown(broker: Broker) -> None:
    assert ahead_of(broker) is None  # without the API
    with_quorum(broker, 0, error_code=31)
    assert ahead_of(broker) is None  # without the ACL
    with_quorum(broker, 0, leader=9)
    assert ahead_of(broker) is None  # without a leader
