"""
What a partition knows of its producers: who wrote last, and with which sequence.

Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo``. A sequence is held
against the last one of the same producer id, never against the log's end. So
an id that is not known, new or forgotten, may begin anywhere (KIP-360).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...error_codes import ErrorCode
from ...records import BatchHeader
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

#: Sequences are int32 that are never negative, and begin anew.
SEQUENCE_COUNT = 2**31


class AppendedBatch(NamedTuple):
    """A batch that may be sent again; ``timestamp`` is its largest, in milliseconds."""

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
        producer_id: Whose.
        epoch: The latest that wrote here.
        batches: The last five with that epoch, the latest last.
        last_timestamp: Of its last batch, in milliseconds; the state expires by it.
        coordinator_epoch: Of the last marker; -1 before any.

    """

    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_TO_RETAIN))
    last_timestamp: int = -1
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the batch that this one repeats, if it is among the last five."""
        if header.producer_epoch != self.epoch:
            return None
        sequences = (header.base_sequence, last_sequence_of(header))
        return next((batch for batch in self.batches if batch[:2] == sequences), None)

    def check(self, header: BatchHeader) -> None:
        """
        Check epoch and sequence of a batch that is no duplicate.

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
        """Take note of a batch that is in the log now; the header has its offset."""
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
        """Start anew with another epoch: its sequences begin at 0."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


def last_sequence_of(header: BatchHeader) -> int:
    """``DefaultRecordBatch.incrementSequence``: after 2147483647 comes 0."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_COUNT


def next_sequence(sequence: int) -> int:
    return (sequence + 1) % SEQUENCE_COUNT


class ProducerSnapshot(NamedTuple):
    """
    A producer as DescribeProducers shows it.

    Attributes:
        producer_id: Its id.
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
        """Return a producer's state, empty and not yet kept where there is none."""
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
        self._by_id[producer.producer_id] = producer

    def forget_expired(self, now_ms: int, expiration_ms: int, in_transaction: Container[int]) -> None:
        """
        Forget who wrote nothing younger than that, however busy it is.

        Args:
            now_ms: The time.
            expiration_ms: ``producer.id.expiration.ms``; held against the
                timestamp of the last batch, which may be old in new batches.
            in_transaction: Producer ids that are kept all the same.

        """
        self._by_id = {
            producer.producer_id: producer
            for producer in self
            if producer.producer_id in in_transaction or now_ms - producer.last_timestamp < expiration_ms
        }
