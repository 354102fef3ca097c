"""
Transactions that are open at the end of a log: a reader of committed records ends before them.

The source has such an end if the mirror reads committed records, and the destination always. The records
behind it are not compared, and none of them is missing or extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from ..client.cluster import Cluster, patiently
from ..client.scan import read_batches, read_one_batch_each
from ..errors import ShoalError
from ..records import RecordBatch
from ..topic_partition import TopicPartition
from .findings import OpenTransaction, Side

__all__ = ["LogEnds", "open_transactions"]


@dataclass(frozen=True, slots=True)
class LogEnds:
    """
    The two ends of a log.

    Attributes:
        stable: The last stable offset, asked for after the high watermark.
        high_watermark: The offset up to which all in-sync replicas have the log.

    """

    stable: int
    high_watermark: int


def open_transactions(
    side: Side, cluster: Cluster, ends: Mapping[TopicPartition, LogEnds], patience_s: float
) -> dict[TopicPartition, OpenTransaction]:
    """
    Return the first open transaction of each partition that has one.

    Args:
        side: The side that the cluster is.
        cluster: The cluster, with metadata of the partitions.
        ends: The ends of the logs.
        patience_s: How long to retry transient errors.

    """
    held = {each: found.stable for each, found in ends.items() if found.stable < found.high_watermark}
    batches = read_one_batch_each(cluster, held) if held else {}
    return {
        partition: OpenTransaction(
            side,
            offset,
            ends[partition].high_watermark,
            _producer_id(cluster, partition, offset, batches.get(partition), patience_s),
        )
        for partition, offset in held.items()
    }


def _producer_id(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    batch: RecordBatch | ShoalError | None,
    patience_s: float,
) -> int | None:
    """Return the producer id of the batch at an offset; None if it cannot be read."""
    if not isinstance(batch, RecordBatch):
        try:
            # A large batch is not among those that were read together.
            batch = patiently(lambda: _first_batch(cluster, partition, offset), patience_s=patience_s)
        except ShoalError:
            return None
    is_of_a_transaction = batch is not None and batch.header.is_transactional
    return batch.header.producer_id if batch is not None and is_of_a_transaction else None


def _first_batch(cluster: Cluster, partition: TopicPartition, offset: int) -> RecordBatch | None:
    with closing(read_batches(cluster, partition, offset)) as found:
        return next(found, None)
