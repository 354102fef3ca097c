"""The ends of the leaders' logs, also behind the high watermark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...client.cluster import Cluster
from ...client.offsets import epoch_end_offsets
from ...errors import ShoalError
from ...topic_partition import TopicPartition

__all__ = ["log_ends", "not_before", "written_ends"]

#: For OffsetForLeaderEpoch: its end is that of the log.
_CURRENT_EPOCH = -1


def log_ends(
    cluster: Cluster, shown: Mapping[TopicPartition, int | ShoalError]
) -> dict[TopicPartition, int | ShoalError]:
    """
    Return the end of each leader's log.

    Consumers see a log up to the high watermark. It lags behind the end while a follower does, and a producer
    with ``acks=1`` has its answer before.

    Args:
        cluster: The cluster, with metadata of the partitions.
        shown: The high watermarks, read before. They are the result for brokers before Kafka 2.3, and for
            logs without epochs.

    """
    return not_before(shown, written_ends(cluster, shown))


def written_ends(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | ShoalError | None]:
    """Return the end of each leader's log, or None if the broker or the log does not have it."""
    return epoch_end_offsets(cluster, dict.fromkeys(partitions, _CURRENT_EPOCH))


def not_before(
    shown: Mapping[TopicPartition, int | ShoalError], ends: Mapping[TopicPartition, int | ShoalError | None]
) -> dict[TopicPartition, int | ShoalError]:
    """Return the later one of the high watermark and the log's end of each partition."""
    return {partition: _end(answer, ends[partition]) for partition, answer in shown.items()}


def _end(shown: int | ShoalError, end: int | ShoalError | None) -> int | ShoalError:
    if end is None or isinstance(shown, ShoalError):
        return shown
    return end if isinstance(end, ShoalError) else max(shown, end)
