"""
The producers of a partition, with their last batches and sequences.

Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo``. A sequence is compared with the last one of the
same producer id, never with the log's end. So a new or expired id may begin with any sequence (KIP-360).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.error_codes import ErrorCode
from shoal.records import BatchHeader

from ..api_error import ApiError

__all__ = [
    "NO_SEQUENCE",
    "SEQUENCE_COUNT",
    "AppendedBatch",
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


class AppendedBatch(NamedTuple):
    """A batch that the producer may retry; ``timestamp`` is its largest, in milliseconds."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    """
    One producer id's state in one partition.

    Attributes:
        epoch: The latest epoch that wrote to the partition.
        batches: The last five batches with that epoch, the latest last.
        last_timestamp: The timestamp of its last batch, in milliseconds, by which the state expires.
        coordinator_epoch: The coordinator epoch of the last marker; -1 before the first.

    """

    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_TO_RETAIN))
    last_timestamp: int = -1
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence of its last batch, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the batch that this one repeats, if that is one of the last five."""
        if header.producer_epoch != self.epoch:
            return None
        sequences = (header.base_sequence, last_sequence_of(header))
        return next((batch for batch in self.batches if batch[:2] == sequences), None)

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

    def appended(self, header: BatchHeader) -> None:
        """Note a batch in the log, by its stored header."""
        self.set_epoch(header.producer_epoch)
        self.batches.append(
            AppendedBatch(
                header.base_sequence,
                last_sequence_of(header),
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
        )
        self.last_timestamp = header.max_timestamp

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch, whose sequences begin at 0."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


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


class Producers:
    """All producers of a partition, by id; guarded by the log's lock."""

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_id.values())

    def get(self, producer_id: int) -> Producer:
        """Return a producer's state; an unknown producer gets an empty one, which is not kept yet."""
        return self._by_id.get(producer_id) or Producer(producer_id)

    def snapshots(self, open_transactions: Mapping[int, int]) -> list[ProducerSnapshot]:
        """Return all producers, given the first offset of each open transaction."""
        return [
            ProducerSnapshot(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                open_transactions.get(producer.producer_id, -1),
            )
            for producer in self
        ]

    def keep(self, producer: Producer) -> None:
        """Keep a producer's state."""
        self._by_id[producer.producer_id] = producer

    def forget_expired(self, now_ms: int, expiration_ms: int, in_transaction: Container[int]) -> None:
        """
        Forget producers whose last batch has an old timestamp, even if it was written just now.

        Args:
            expiration_ms: ``producer.id.expiration.ms``.
            in_transaction: The producer ids with an open transaction, which are kept.

        """
        self._by_id = {
            producer.producer_id: producer
            for producer in self
            if producer.producer_id in in_transaction or now_ms - producer.last_timestamp < expiration_ms
        }
