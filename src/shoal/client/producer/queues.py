"""The queues of batches that are not acknowledged yet, one for each partition, and their memory."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from ...errors import BufferFull, LargerThanBuffer, ShoalError
from ...records import HEADER_SIZE, Record, RecordBatch
from ...topic_partition import TopicPartition
from ..backoff import Backoff
from .batches import RECORD_OVERHEAD, PendingBatch, RecordMetadata
from .settings import ProducerSettings

__all__ = ["PartitionQueue", "Queues"]


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """
    The batches of one partition, and the producer identity that they are written with.

    Attributes:
        backoff: Counts failures in a row.
        holds_open: Whether a batch that takes more records waits for a flush.
        batches: The batches without an outcome, in their order. Records can be added to the last alone.
        is_sending: Whether a leader has the first batches.
        producer_id: None before the first batch.
        next_sequence: The sequence of the next new batch.
        next_offset: The next batch lands at this offset, or at a later one.
        next_offset_at: The time when that was known last, by the monotonic clock.
        newest_ms: See :class:`~shoal.client.lot.Lot`.
        takes_several: Whether a request may have several batches; None if the leader was not asked yet.
        has_gap: Whether a batch has failed, so that the broker may lack its sequences.
        retry_at: The time of the next attempt, by the monotonic clock.

    """

    partition: TopicPartition
    backoff: Backoff
    holds_open: bool
    batches: deque[PendingBatch] = field(default_factory=deque)
    is_sending: bool = False
    producer_id: int | None = None
    epoch: int = 0
    next_sequence: int = 0
    next_offset: int = 0
    next_offset_at: float = -math.inf
    newest_ms: int | None = None
    takes_several: bool | None = None
    has_gap: bool = False
    retry_at: float = 0.0

    @property
    def has_work(self) -> bool:
        """Whether there is something to send, and no leader has it."""
        if self.is_sending or not self.batches:
            return False
        return not self.holds_open or self.batches[0].written is not None

    @property
    def open(self) -> PendingBatch | None:
        """The batch that takes more records; None if there is none."""
        return self.batches[-1] if self.batches and self.batches[-1].written is None else None

    def put_off(self) -> None:
        """Count a failure, and pause before the next attempt."""
        self.retry_at = time.monotonic() + self.backoff.next_delay_s()
        self.newest_ms = None

    def finish(self, batch: PendingBatch, outcome: int | ShoalError) -> PendingBatch:
        """Take a batch out. If it failed, those behind it follow after a gap."""
        self.batches.remove(batch)
        self.backoff.reset()
        self.has_gap = isinstance(outcome, ShoalError) and (self.has_gap or batch.sequence is not None)
        batch.outcome = outcome
        return batch


class Queues:
    """
    The queues of all partitions.

    Attributes:
        changed: The condition that guards this object and its queues; it is notified of all progress.
        has_news: Whether the sender has to look at the queues.
        is_closed: Whether the producer takes nothing more.

    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self.changed = threading.Condition()
        self.has_news = False
        self.is_closed = False
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        #: The partition of each topic for records without a key.
        self._turns: dict[str, int] = {}
        #: The batches without complete futures.
        self._unsettled: set[PendingBatch] = set()
        self._used_bytes = 0

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._queues.values())

    def wake(self) -> None:
        """Make the sender look at the queues; the caller holds the lock."""
        self.has_news = True
        self.changed.notify_all()

    # For the threads that call the producer

    def add_raw(
        self, partition: TopicPartition, batch: RecordBatch, future: Future[RecordMetadata], deadline: float
    ) -> None:
        """Queue a whole batch; wait for room until a time of the monotonic clock."""
        size = len(batch.view)
        with self.changed:
            self._reserve(size, deadline)
            self._put(PendingBatch(partition, time.monotonic(), size, batch, [future]))

    def add(
        self, partition: TopicPartition, record: Record, future: Future[RecordMetadata], deadline: float
    ) -> None:
        """Add a record to its partition's open batch."""
        size = len(record.body) + RECORD_OVERHEAD
        with self.changed:
            self._reserve(size, deadline)
            batch = self._queue(partition).open
            if batch and HEADER_SIZE + batch.reserved_bytes + size > self._settings.batch_size:
                batch.write(self._settings.compression_type)
                batch = None
            if batch is None:
                batch = self._put(PendingBatch(partition, time.monotonic()))
            batch.add(record, future, size)

    def turn_of(self, topic: str, partitions: int) -> int:
        """Return the partition for a record without a key: one for each batch, in turn."""
        with self.changed:
            number = self._turns.get(topic)
            if number is None:
                number = random.randrange(partitions)  # noqa: S311 (balances)
            elif self._queue(TopicPartition(topic, number)).open is None:
                number = (number + 1) % partitions
            self._turns[topic] = number
            return number

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
            queue = PartitionQueue(partition, backoff, self._settings.sends_at_flush)
            self._queues[partition] = queue
        return queue

    def _put(self, batch: PendingBatch) -> PendingBatch:
        self._queue(batch.partition).batches.append(batch)
        self._unsettled.add(batch)
        self.wake()
        return batch

    def _reserve(self, size: int, deadline: float) -> None:
        """Wait for memory and take it; the caller holds the lock, which the wait releases."""
        total = self._settings.buffer_memory
        if size > total:
            raise LargerThanBuffer(f"{size} bytes are more than buffer.memory={total} as a whole")
        while self._used_bytes + size > total and not self.is_closed:
            self._write_open()
            left = deadline - time.monotonic()
            if left <= 0 or not self.changed.wait(left):
                raise BufferFull(
                    f"no room for {size} bytes in max.block.ms={self._settings.max_block_ms}: "
                    f"{self._used_bytes} of buffer.memory={total} are not acknowledged yet"
                )
        if self.is_closed:
            raise ValueError("the producer is closed")
        self._used_bytes += size

    def flush(self, timeout_s: float | None) -> bool:
        """Send all records at once, and wait for them; return whether all are done."""
        with self.changed:
            self._write_open()
            batches = list(self._unsettled)
            return self.changed.wait_for(lambda: all(batch.is_done for batch in batches), timeout_s)

    def _write_open(self) -> None:
        for queue in self:
            if queue.open is not None:
                queue.open.write(self._settings.compression_type)
        self.wake()

    # For the threads that send

    def settle(self, batches: Iterable[PendingBatch]) -> None:
        """Complete the futures of batches, and free their memory; the caller does not hold the lock."""
        for batch in batches:
            batch.complete()  # its callbacks may call the producer
            with self.changed:
                batch.is_done = True
                self._unsettled.discard(batch)
                self._used_bytes -= batch.reserved_bytes
                self.changed.notify_all()
