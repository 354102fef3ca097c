"""
The producers of a partition, with their last batches, their sequences and their transactions.

Kafka's ``ProducerStateManager``, ``ProducerAppendInfo`` and ``TransactionIndex``. A sequence is compared with
the last one of the same producer id, never with the log's end. So a new or expired id may begin with any
sequence (KIP-360).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.error_codes import ErrorCode
from shoal.records import BatchHeader, RecordBatch
from shoal.records.aborted import Marker, read_marker

from ..api_error import ApiError
from .written import COORDINATOR_EPOCH

__all__ = [
    "SEQUENCE_COUNT",
    "Producer",
    "ProducerSnapshot",
    "Producers",
    "last_sequence_of",
    "next_sequence",
]

NO_EPOCH = -1
NO_SEQUENCE = -1

#: ``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``: the most requests that a client has in flight.
BATCHES_TO_RETAIN = 5

#: Sequences are non-negative int32; after the largest comes 0.
SEQUENCE_COUNT = 2**31


@dataclass(slots=True)
class Producer:
    """
    One producer id's state in one partition.

    Attributes:
        epoch: The latest epoch that wrote to the partition.
        batches: The stored headers of the last five batches with that epoch, the latest last.
        last_timestamp: The timestamp of its last batch, in milliseconds, by which the state expires.
        coordinator_epoch: The coordinator epoch of the last marker; -1 before the first.

    """

    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[BatchHeader] = field(default_factory=lambda: deque(maxlen=BATCHES_TO_RETAIN))
    last_timestamp: int = -1
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence of its last batch, or -1."""
        return last_sequence_of(self.batches[-1]) if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> BatchHeader | None:
        """Return the stored batch that this one repeats, if that is one of the last five."""
        if header.producer_epoch != self.epoch:
            return None
        return next((batch for batch in self.batches if _sequences(batch) == _sequences(header)), None)

    def check(self, header: BatchHeader) -> None:
        """
        Check epoch and sequence of a batch that is not a duplicate.

        Raises:
            ApiError: With INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.

        """
        if header.producer_epoch < self.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} of producer {self.producer_id} is older than {self.epoch}",
            )
        if self.epoch == NO_EPOCH:
            return
        expected = 0 if header.producer_epoch > self.epoch else next_sequence(self.last_sequence)
        if header.base_sequence != expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} of producer {self.producer_id}, expected {expected}",
            )

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch, whose sequences begin at 0, unless it is the present one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


def _sequences(header: BatchHeader) -> tuple[int, int]:
    return header.base_sequence, last_sequence_of(header)


def last_sequence_of(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record (``DefaultRecordBatch.incrementSequence``)."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_COUNT


def next_sequence(sequence: int) -> int:
    """Return the sequence after this one."""
    return (sequence + 1) % SEQUENCE_COUNT


class ProducerSnapshot(NamedTuple):
    """
    A producer as DescribeProducers shows it.

    Attributes:
        epoch: The latest epoch that wrote to the partition.
        last_sequence: -1 for none, for example after a marker with a new epoch.
        last_timestamp: In milliseconds.
        coordinator_epoch: The one of the last marker, or -1.
        transaction_start: The first offset of its open transaction, or -1.

    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class AbortedTransaction(NamedTuple):
    """
    A transaction that ended with an ABORT marker.

    Attributes:
        last_offset: The offset of the marker.
        first_offset: The offset of its first record.
        last_stable_offset: The last stable offset after the marker: no later entry begins before it.

    """

    last_offset: int
    producer_id: int
    first_offset: int
    last_stable_offset: int


class Producers:
    """All producers of a partition and their transactions; guarded by the log's lock."""

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        #: The first offset of each open transaction, by producer id.
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []

    def get(self, producer_id: int) -> Producer:
        """Return a producer's state; an unknown producer gets an empty one, which is not kept yet."""
        return self._by_id.get(producer_id) or Producer(producer_id)

    def note(self, batch: RecordBatch) -> None:
        """Note a batch of a producer that the log has stored, or the end of its transaction."""
        header = batch.header
        producer_id = header.producer_id
        producer = self._by_id.setdefault(producer_id, Producer(producer_id))
        producer.set_epoch(header.producer_epoch)
        producer.last_timestamp = header.max_timestamp
        if header.is_control:
            producer.coordinator_epoch = COORDINATOR_EPOCH
            self._end_transaction(producer_id, header.base_offset, read_marker(batch) == Marker.ABORT)
            return
        producer.batches.append(header)
        if header.is_transactional:
            self._open.setdefault(producer_id, header.base_offset)

    def _end_transaction(self, producer_id: int, marker_offset: int, aborted: bool) -> None:
        first_offset = self._open.pop(producer_id, None)
        if first_offset is not None and aborted:
            stable = self.last_stable_offset(marker_offset + 1)
            self._aborted.append(AbortedTransaction(marker_offset, producer_id, first_offset, stable))

    def snapshots(self) -> list[ProducerSnapshot]:
        """Return all producers that have not expired."""
        return [
            ProducerSnapshot(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                self._open.get(producer_id, -1),
            )
            for producer_id, producer in self._by_id.items()
        ]

    def forget_expired(self, now_ms: int, expiration_ms: int) -> None:
        """
        Forget producers whose last batch has an old timestamp, even if it was written just now.

        Those with an open transaction are kept.

        Args:
            expiration_ms: ``producer.id.expiration.ms``.

        """
        self._by_id = {
            producer_id: producer
            for producer_id, producer in self._by_id.items()
            if producer_id in self._open or now_ms - producer.last_timestamp < expiration_ms
        }

    def has_open_transaction(self, producer_id: int) -> bool:
        """Return whether a producer has an open transaction in this partition."""
        return producer_id in self._open

    def last_stable_offset(self, log_end_offset: int) -> int:
        """Return the start of the oldest open transaction, or the log's end."""
        return min(self._open.values(), default=log_end_offset)

    def aborted_in(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        """
        Return the aborted transactions that overlap a range of offsets.

        Args:
            start: The first offset.
            end: The offset after the last one.

        Returns:
            ``(producer_id, first_offset)`` of each; it may begin before the range.

        """
        found: list[tuple[int, int]] = []
        for transaction in self._aborted[bisect_left(self._aborted, (start,)) :]:
            if transaction.first_offset < end:
                found.append((transaction.producer_id, transaction.first_offset))
            if transaction.last_stable_offset >= end:
                break
        return found

    def forget_before(self, offset: int) -> None:
        """Forget the transactions that ended before the log's new start."""
        del self._aborted[: bisect_left(self._aborted, (offset,))]
