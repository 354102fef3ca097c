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
from dataclasses import replace

from ..client.broker_state import active_producers, coordinated_partitions
from ..client.cluster import Cluster
from ..client.scan import read_batches
from .facts import OpenTransaction
from .reading import PartitionPlan

__all__ = ["HANGING_AFTER_MS", "open_transactions"]

#: Brokers refuse a longer transaction timeout by default (``transaction.max.timeout.ms``), and abort a
#: transaction at its timeout.
HANGING_AFTER_MS = 900_000


def open_transactions(cluster: Cluster, plan: PartitionPlan, now_ms: int) -> list[OpenTransaction]:
    """
    Return the open transactions of a partition, the oldest first.

    Raises:
        ShoalError: A broker refuses, or does not answer.

    """
    opened = _opened(cluster, plan) if plan.log.stable < plan.log.end else []
    hanging = _hanging(cluster, plan, opened, now_ms) if opened else []
    return [replace(each, is_hanging=each in hanging) for each in opened]


def _opened(cluster: Cluster, plan: PartitionPlan) -> list[OpenTransaction]:
    """Return the open transactions, as if none of them was hanging."""
    producers = active_producers(cluster, plan.partition)
    if producers is None:
        return list(_oldest(cluster, plan))
    found = [
        _transaction(plan, each.producer_id, each.transaction_start, each.last_timestamp_ms)
        for each in producers
        if each.transaction_start is not None
    ]
    return sorted(found, key=lambda each: (each.first_offset, each.producer_id))


def _oldest(cluster: Cluster, plan: PartitionPlan) -> Iterator[OpenTransaction]:
    for batch in read_batches(cluster, plan.partition, plan.log.stable):
        header = batch.header
        if header.is_transactional and not header.is_control:
            yield _transaction(plan, header.producer_id, plan.log.stable, header.max_timestamp)
        return


def _transaction(plan: PartitionPlan, producer_id: int, first_offset: int, last_ms: int) -> OpenTransaction:
    held_back = max(0, plan.log.end - first_offset)
    return OpenTransaction(plan.partition, producer_id, first_offset, last_ms, False, held_back)


def _hanging(
    cluster: Cluster, plan: PartitionPlan, opened: list[OpenTransaction], now_ms: int
) -> list[OpenTransaction]:
    coordinated = coordinated_partitions(cluster, [each.producer_id for each in opened])
    if coordinated is None:
        return [each for each in opened if 0 <= each.last_ms < now_ms - HANGING_AFTER_MS]
    lost = [each for each in opened if (each.producer_id, plan.partition) not in coordinated]
    # A transaction may have ended between the two questions, or begun after the second.
    still = {(each.first_offset, each.producer_id) for each in _opened(cluster, plan)} if lost else ()
    return [each for each in lost if (each.first_offset, each.producer_id) in still]
