"""A look into the log for the batches that a producer has written, if the leader may have forgotten it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError
from ...topic_partition import TopicPartition
from ..cluster import Cluster, is_transient, patiently
from ..offsets import EARLIEST, LATEST, answered, known_log_ends, list_offsets
from ..scan import read_batches

__all__ = ["Written", "find_written"]

#: The longest wait for followers before a look into the log.
_REPLICATION_S = 1.0


class Written(NamedTuple):
    """
    The batches that were found.

    Attributes:
        offsets: The base offset of each, by its first sequence.
        unproven: Why others may be written, too; empty if the log shows that they are not.

    """

    offsets: Mapping[int, int]
    unproven: str


def find_written(
    cluster: Cluster, partition: TopicPartition, first: int, producer_id: int, epoch: int
) -> Written:
    """
    Read a log from an offset to its end for the batches of a producer.

    Raises:
        ShoalError: A transient one: a later look may succeed.

    """
    offsets: dict[int, int] = {}
    try:
        cluster.refresh({partition.topic})
        start, end = _readable(cluster, partition)
        if first <= end:
            for batch in read_batches(cluster, partition, max(first, start)):
                header = batch.header
                if (header.producer_id, header.producer_epoch) == (producer_id, epoch):
                    offsets[header.base_sequence] = header.base_offset
    except ShoalError as error:
        if is_transient(error):
            raise
        return Written(offsets, str(error))
    if start <= first <= end:
        return Written(offsets, "")
    return Written(offsets, f"it has offsets {start} to {end - 1}, and the look begins at offset {first}")


def _readable(cluster: Cluster, partition: TopicPartition) -> tuple[int, int]:
    """
    Return the start and the end of a log that can be read to its end.

    Raises:
        BrokerError: Retriable: its last records are not on all followers, and so cannot be read yet.

    """
    written = known_log_ends(cluster, [partition]).get(partition)  # before Kafka 2.3: unknown

    def ask() -> tuple[int, int]:
        start, end = (
            answered(list_offsets(cluster, {partition: each}))[partition] for each in (EARLIEST, LATEST)
        )
        if written is not None and end < written:
            where = f"{partition} at offset {end} on {cluster}"
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, f"its log ends at {written}")
        return start, end

    # Others may write without a pause: so the end must not be asked for again, too.
    return patiently(ask, patience_s=_REPLICATION_S)
