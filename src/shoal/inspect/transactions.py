"""
Open transactions, from the partitions' leaders, and whether their coordinators still have them.

A transaction is open if no marker of its producer follows its batches. Its first record is the last stable
offset of its partition, so a partition without one costs no request. Leaders since Kafka 2.8 list their open
transactions; for older ones, the batch at the last stable offset shows the oldest.

A transaction hangs if its coordinator has no open one of this producer with this partition: then no marker
will come. The coordinator itself aborts those that it has, at their timeout. So the times of records, which
producers choose, do not matter. Coordinators before Kafka 3.0 do not list their transactions; for these, the
time of the producer's last batch is all there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..client.broker_state import active_producers, coordinated_partitions
from ..client.cluster import Cluster
from ..client.scan import read_batches
from .reading import PartitionPlan
from .topic_report import OpenTransaction

__all__ = ["HANGING_AFTER_MS", "open_transactions"]

#: Brokers refuse a longer transaction timeout by default (``transaction.max.timeout.ms``), and abort a
#: transaction at its timeout.
HANGING_AFTER_MS = 15 * 60 * 1000


class _Opened(NamedTuple):
    first_offset: int
    producer_id: int
    last_ms: int


def open_transactions(cluster: Cluster, plan: PartitionPlan, now_ms: int) -> tuple[OpenTransaction, ...]:
    """
    Return the open transactions of a partition, the oldest first.

    Raises:
        ShoalError: A broker refuses, or does not answer.

    """
    opened = _opened(cluster, plan) if plan.log.stable < plan.log.end else []
    hanging = _hanging(cluster, plan, opened, now_ms) if opened else set()
    return tuple(
        OpenTransaction(
            partition=plan.partition,
            producer_id=each.producer_id,
            first_offset=each.first_offset,
            last_ms=each.last_ms,
            is_hanging=each in hanging,
            held_back=max(0, plan.log.end - each.first_offset),
        )
        for each in opened
    )


def _opened(cluster: Cluster, plan: PartitionPlan) -> list[_Opened]:
    producers = active_producers(cluster, plan.partition)
    if producers is None:
        return list(_oldest(cluster, plan))
    return sorted(
        _Opened(each.transaction_start, each.producer_id, each.last_timestamp_ms)
        for each in producers
        if each.transaction_start is not None
    )


def _oldest(cluster: Cluster, plan: PartitionPlan) -> Iterator[_Opened]:
    for batch in read_batches(cluster, plan.partition, plan.log.stable):
        header = batch.header
        if header.is_transactional and not header.is_control:
            yield _Opened(plan.log.stable, header.producer_id, header.max_timestamp)
        return


def _hanging(cluster: Cluster, plan: PartitionPlan, opened: list[_Opened], now_ms: int) -> set[_Opened]:
    coordinated = coordinated_partitions(cluster, [each.producer_id for each in opened])
    if coordinated is None:
        return {each for each in opened if 0 <= each.last_ms < now_ms - HANGING_AFTER_MS}
    lost = {each for each in opened if (each.producer_id, plan.partition) not in coordinated}
    if not lost:
        return lost
    # A transaction may have ended between the two questions, or begun after the second.
    still = {(each.first_offset, each.producer_id) for each in _opened(cluster, plan)}
    return {each for each in lost if (each.first_offset, each.producer_id) in still}
