"""Questions about logs to their leaders, for all partitions at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...client.cluster import Cluster
from ...client.offsets import epoch_end_offsets
from ...errors import ShoalError
from ...topic_partition import TopicPartition

__all__ = ["answered", "log_ends"]

#: For OffsetForLeaderEpoch: its end is that of the log.
_CURRENT_EPOCH = -1


def answered(answers: Mapping[TopicPartition, int | ShoalError | None]) -> dict[TopicPartition, int]:
    """Return the answers that are known; raises the first error among them."""
    for answer in answers.values():
        if isinstance(answer, ShoalError):
            raise answer
    return {partition: answer for partition, answer in answers.items() if isinstance(answer, int)}


def log_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Return the end of each leader's log, without brokers before Kafka 2.3 and logs that have no epochs.

    Consumers see a log up to the high watermark. It lags behind the end while a follower does, and a producer
    with ``acks=1`` has its answer before.

    Raises:
        ShoalError: A leader does not respond, or is one of a later epoch than the cluster's metadata have.

    """
    return answered(epoch_end_offsets(cluster, dict.fromkeys(partitions, _CURRENT_EPOCH)))
