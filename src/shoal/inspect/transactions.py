"""
Open transactions, from the partitions' leaders and from headers.

A transaction is open if no marker of its producer follows its batches. Its first record is the last stable
offset of its partition, so a partition without one costs no request. Leaders since Kafka 2.8 list their open
transactions; for older ones, the batch at the last stable offset shows the oldest.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..client.cluster import Cluster
from ..client.producers import active_producers
from ..client.scan import read_batches
from .reading import PartitionPlan
from .topic_report import OpenTransaction

__all__ = ["HANGING_AFTER_MS", "open_transactions"]

#: Brokers refuse a longer transaction timeout by default (``transaction.max.timeout.ms``), and abort a
#: transaction at its timeout. So a transaction without a batch for longer hangs: its coordinator has lost it.
HANGING_AFTER_MS = 15 * 60 * 1000


def open_transactions(cluster: Cluster, plan: PartitionPlan, now_ms: int) -> tuple[OpenTransaction, ...]:
    """
    Return the open transactions of a partition, the oldest first.

    Raises:
        ShoalError: The leader refuses, or does not answer.

    """
    if plan.stable_end >= plan.end:
        return ()
    producers = active_producers(cluster, plan.partition)
    if producers is None:
        return tuple(_oldest(cluster, plan, now_ms))
    started = [
        (each.transaction_start, each.producer_id, each.last_timestamp_ms)
        for each in producers
        if each.transaction_start is not None
    ]
    return tuple(_transaction(plan, *each, now_ms) for each in sorted(started))


def _oldest(cluster: Cluster, plan: PartitionPlan, now_ms: int) -> Iterator[OpenTransaction]:
    for batch in read_batches(cluster, plan.partition, plan.stable_end):
        header = batch.header
        if header.is_transactional and not header.is_control:
            yield _transaction(plan, plan.stable_end, header.producer_id, header.max_timestamp, now_ms)
        return


def _transaction(
    plan: PartitionPlan, first_offset: int, producer_id: int, last_ms: int, now_ms: int
) -> OpenTransaction:
    return OpenTransaction(
        partition=plan.partition,
        producer_id=producer_id,
        first_offset=first_offset,
        last_ms=last_ms,
        is_hanging=0 <= last_ms < now_ms - HANGING_AFTER_MS,
        held_back=max(0, plan.end - first_offset),
    )
