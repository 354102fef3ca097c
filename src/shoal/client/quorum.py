"""
The wall clock of a cluster's active controller.

Kafka's protocol has no request for a broker's clock, but one response contains it. DescribeQuorum v1
(KIP-836, Kafka 3.3) has for each voter the time at which it caught up last. For the leader, the active
controller, that is its current wall clock (``LeaderState.describeReplicaState``).
"""

from __future__ import annotations

import time

from ..errors import ProtocolError, ShoalError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from .cluster import Cluster

__all__ = ["controller_ahead_ms"]

_METADATA_TOPIC = "__cluster_metadata"


def controller_ahead_ms(cluster: Cluster) -> float | None:
    """
    Return how far the controller's clock is ahead of ours, exact to half of the request's duration.

    Returns:
        Milliseconds, below 0 if it is behind. None if the cluster uses ZooKeeper, is older than Kafka 3.3, or
        does not allow this principal DESCRIBE on the cluster.

    """
    asked_ms = time.time() * 1000
    try:
        reading_ms = _controller_ms(cluster)
    except ShoalError:
        return None
    return reading_ms - (asked_ms + time.time() * 1000) / 2


def _controller_ms(cluster: Cluster) -> int:
    topic = request_class(ApiKey.DESCRIBE_QUORUM).TopicData
    response = cluster.any_connection().request(
        ApiKey.DESCRIBE_QUORUM,
        topics=[topic(topic_name=_METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)])],
    )
    raise_for(response.error_code, f"DescribeQuorum of {cluster}", right="DESCRIBE on the cluster")
    for described in response.topics:
        for partition in described.partitions:
            raise_for(partition.error_code, f"DescribeQuorum of {cluster}", right="DESCRIBE on the cluster")
            for voter in partition.current_voters:
                if voter.replica_id == partition.leader_id and voter.last_caught_up_timestamp > 0:
                    return int(voter.last_caught_up_timestamp)
    raise ProtocolError(f"{cluster} describes a quorum without its leader")
