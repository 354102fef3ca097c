"""The queues of batches that are not acknowledged yet, one for each partition."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from ...errors import BufferFull
from ...records import HEADER_SIZE, Record
from ...topic_partition import TopicPartition
from .batches import RECORD_OVERHEAD, OrdinaryBatch, PendingBatch, RawBatch, RecordMetadata
from .settings import ProducerSettings

__all__ = ["Accumulator", "PartitionQueue", "ProducerState"]


@dataclass(slots=True)
class ProducerState:
    """
    The producer id and the sequence with which a partition is written.

    Attributes:
        next_sequence: The sequence of the next new batch.
        next_offset: The offset where that batch must land if sequences are offsets; else None.
        is_fresh: Whether no batch was acknowledged recently. A broker that does not know the producer accepts
            any sequence, so the first request is alone in flight.

    """

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0
    next_offset: int | None = None
    is_fresh: bool = True


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """
    The batches and the state of one partition.

    Attributes:
        waiting: The batches to send, in order; the last one may still be filled.
        sent: The batches without a final response, in order.
        unsure: The batches that were refused as out of order in a retry, and may be written already.
        outstanding: The number of their requests without a response.
        identity: None without idempotence, and before the first batch.
        is_draining: Whether a request failed: the sender waits for all responses before it sends again.
        has_gap: Whether an earlier batch has failed: the broker may lack its sequences.
        wants_new_epoch: Whether the retry begins a new epoch.
        takes_multi_batch: Whether a request may have several batches; None if that is unknown.
        was_asked_for_multi_batch: Whether a broker was asked, even without a clear answer.
        retry_at: The time of the retry, by the monotonic clock.
        failures: The number of consecutive failures.
        acked_at: The time of the last acknowledgment, by the monotonic clock.

    """

    partition: TopicPartition
    waiting: deque[PendingBatch] = field(default_factory=deque)
    sent: deque[PendingBatch] = field(default_factory=deque)
    unsure: list[PendingBatch] = field(default_factory=list)
    outstanding: int = 0
    identity: ProducerState | None = None
    is_draining: bool = False
    has_gap: bool = False
    wants_new_epoch: bool = False
    takes_multi_batch: bool | None = None
    was_asked_for_multi_batch: bool = False
    retry_at: float = 0.0
    failures: int = 0
    acked_at: float = 0.0

    def __iter__(self) -> Iterator[PendingBatch]:
        yield from self.unsure
        yield from self.sent
        yield from self.waiting


class Accumulator:
    """
    The queues of all partitions, and their memory.

    Attributes:
        changed: The condition that guards this object and its queues; it is notified of all progress.
        queues: The queues by partition.
        settling: The batches that have left their queue, and whose futures are being completed.

    """

    def __init__(self, settings: ProducerSettings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._wake = wake
        self.changed = threading.Condition()
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.settling: set[PendingBatch] = set()
        self._used_bytes = 0
        self._waiting_for_memory = 0
        self._flushing = 0
        self.is_closed = False

    # For the threads that call the producer

    def add_raw(self, batch: RawBatch, deadline: float) -> None:
        """Queue a whole batch; wait for room until a time of the monotonic clock."""
        with self.changed:
            self._reserve(batch.size, deadline)
            batch.reserved_bytes = batch.size
            batch.created_at = time.monotonic()
            self._queue(batch.partition).waiting.append(batch)
            self._wake()

    def add(
        self,
        partition: TopicPartition,
        record: Record,
        future: Future[RecordMetadata],
        deadline: float,
        *,
        may_refuse: bool = False,
    ) -> bool:
        """
        Add a record to its partition's last batch, or to a new one.

        Returns:
            False if ``may_refuse`` is set and the record needs a new batch behind another; it is not added
            then.

        """
        size = len(record.body) + RECORD_OVERHEAD
        with self.changed:
            if may_refuse and not self._fits(partition, size) and self._queue(partition).waiting:
                return False
            self._reserve(size, deadline)
            queue = self._queue(partition)
            is_new = not self._fits(partition, size)
            if is_new:
                codec = self._settings.compression_type
                queue.waiting.append(OrdinaryBatch(partition, time.monotonic(), codec=codec))
            last = queue.waiting[-1]
            assert isinstance(last, OrdinaryBatch)
            last.add(record, future)
            last.reserved_bytes += size
            # The sender must know about a first record, for linger.ms, and about a full batch.
            if is_new or last.bytes_count >= self._settings.batch_size:
                self._wake()
            return True

    def _fits(self, partition: TopicPartition, size: int) -> bool:
        """Return whether a record fits into a partition's last batch; the caller holds the lock."""
        queue = self._queue(partition)
        last = queue.waiting[-1] if queue.waiting else None
        return (
            isinstance(last, OrdinaryBatch)
            and last.is_open
            and last.bytes_count + size <= self._settings.batch_size
        )

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition)
        return queue

    def _reserve(self, size: int, deadline: float) -> None:
        """Wait for memory and take it; the caller holds the lock, which the wait releases."""
        total = self._settings.buffer_memory
        if size > total:
            raise BufferFull(f"{size} bytes are more than buffer.memory={total} as a whole")
        self._waiting_for_memory += 1
        try:
            while self._used_bytes + size > total:
                self._check_open()
                self._wake()  # the queued batches are sent without linger.ms
                left = deadline - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    raise BufferFull(
                        f"no room for {size} bytes in max.block.ms={self._settings.max_block_ms}: "
                        f"{self._used_bytes} of buffer.memory={total} are not acknowledged yet"
                    )
            self._check_open()
        finally:
            self._waiting_for_memory -= 1
        self._used_bytes += size

    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError("the producer is closed")

    def flush(self, timeout_s: float | None) -> bool:
        """Send all queued batches at once, and wait for them; return whether all are done."""
        with self.changed:
            batches = [*self.settling, *(batch for queue in self.queues.values() for batch in queue)]
            # Records that are added from here on begin another batch.
            for batch in batches:
                if isinstance(batch, OrdinaryBatch):
                    batch.write()
            self._flushing += 1
            try:
                self._wake()
                return self.changed.wait_for(lambda: all(batch.is_settled for batch in batches), timeout_s)
            finally:
                self._flushing -= 1

    @property
    def used_bytes(self) -> int:
        """The bytes of ``buffer.memory`` in use."""
        return self._used_bytes

    # For the sender thread, which holds the lock

    def is_ready(self, batch: PendingBatch, now: float) -> bool:
        """Return whether the first batch of a queue is due."""
        return not batch.is_open or self.ready_at(batch) <= now

    def ready_at(self, batch: PendingBatch) -> float:
        """Return the time at which a batch is due, by the monotonic clock."""
        if (
            not isinstance(batch, OrdinaryBatch)
            or not batch.is_open
            or self._flushing
            or self._waiting_for_memory
            or self.is_closed
            or batch.bytes_count + HEADER_SIZE >= self._settings.batch_size
            or self.queues[batch.partition].waiting[-1] is not batch
        ):
            return 0.0
        return batch.created_at + self._settings.linger_ms / 1000

    def done(self, batch: PendingBatch) -> None:
        """Free the memory of a batch whose futures are complete."""
        batch.is_done = True
        self.settling.discard(batch)
        self._used_bytes -= batch.reserved_bytes
        self.changed.notify_all()

    def take_all(self) -> list[PendingBatch]:
        """Remove all batches from the queues."""
        batches = [batch for queue in self.queues.values() for batch in queue]
        for queue in self.queues.values():
            for held in (queue.unsure, queue.sent, queue.waiting):
                held.clear()
        return batches
