"""What was given to the producer and is not acknowledged yet, partition by partition."""

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

__all__ = ["Accumulator", "PartitionQueue", "ProducerIdentity"]


@dataclass(slots=True)
class ProducerIdentity:
    """
    As whom a partition is written to.

    Attributes:
        next_sequence: Of what is sent next.
        next_offset: Where that must land, while sequences are offsets; else None.
        is_fresh: Whether nothing of it was acknowledged lately: a broker that does not know a
            producer takes any sequence, so the first request goes alone.

    """

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0
    next_offset: int | None = None
    is_fresh: bool = True


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """
    One partition.

    Attributes:
        waiting: What is to be sent, in order; the last may still be filled.
        sent: What was sent and has no final answer, in order.
        unsure: What was refused as out of order when it was sent again, and may be written already.
        outstanding: How many requests of them are not answered.
        identity: None without idempotence, or before the first batch.
        is_draining: Whether a request failed: nothing is sent until all are answered.
        has_gap: Whether a batch before was given up: its sequences may be missing at the broker.
        wants_new_epoch: Whether what is sent again begins a new epoch.
        takes_several: Whether several batches go into a request; None if nobody knows.
        was_asked_for_several: Whether a broker was asked, even if the answer left it open.
        retry_at: When to send again, on the monotonic clock.
        failures: In a row.
        acked_at: When something was acknowledged last.

    """

    partition: TopicPartition
    waiting: deque[PendingBatch] = field(default_factory=deque)
    sent: deque[PendingBatch] = field(default_factory=deque)
    unsure: list[PendingBatch] = field(default_factory=list)
    outstanding: int = 0
    identity: ProducerIdentity | None = None
    is_draining: bool = False
    has_gap: bool = False
    wants_new_epoch: bool = False
    takes_several: bool | None = None
    was_asked_for_several: bool = False
    retry_at: float = 0.0
    failures: int = 0
    acked_at: float = 0.0

    def __iter__(self) -> Iterator[PendingBatch]:
        yield from self.unsure
        yield from self.sent
        yield from self.waiting


class Accumulator:
    """
    Queues of batches, and the memory that they take.

    Attributes:
        changed: Guards everything here, the queues' contents included, and is notified of all progress.
        queues: By partition.
        settling: What left its queue, and is telling its futures so.

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

    # From the senders' threads

    def add_raw(self, batch: RawBatch, deadline: float) -> None:
        """Queue a whole batch; waits for room until a time of the monotonic clock."""
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
        Put a record into its partition's last batch, or into a new one.

        Returns:
            False, and nothing is done, where it would begin a batch behind another and ``may_refuse``.

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
            # The sender has to know of a first record, for its lingering, and of a batch that is full.
            if is_new or last.bytes_count >= self._settings.batch_size:
                self._wake()
            return True

    def _fits(self, partition: TopicPartition, size: int) -> bool:
        """Whether a record fits into a partition's last batch; the lock is held."""
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
        """Wait until so many bytes are free, and take them; the lock is held, but for the wait."""
        total = self._settings.buffer_memory
        if size > total:
            raise BufferFull(f"{size} bytes are more than buffer.memory={total} as a whole")
        self._waiting_for_memory += 1
        try:
            while self._used_bytes + size > total:
                self._check_open()
                self._wake()  # what is there goes out without lingering
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
        """Send all that is queued now without lingering, and wait for it; returns whether it is done."""
        with self.changed:
            batches = [*self.settling, *(batch for queue in self.queues.values() for batch in queue)]
            # What is added from here on is another batch.
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
        return self._used_bytes

    # From the sender thread; the lock is held

    def is_ready(self, batch: PendingBatch, now: float) -> bool:
        """Whether a batch that is first in its queue is to be sent now."""
        return not batch.is_open or self.ready_at(batch) <= now

    def ready_at(self, batch: PendingBatch) -> float:
        """Return when a batch is to be sent, of the monotonic clock."""
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
        """Give back the memory of a batch whose futures have their results."""
        batch.is_done = True
        self.settling.discard(batch)
        self._used_bytes -= batch.reserved_bytes
        self.changed.notify_all()

    def take_all(self) -> list[PendingBatch]:
        """Take everything out of the queues."""
        batches = [batch for queue in self.queues.values() for batch in queue]
        for queue in self.queues.values():
            for held in (queue.unsure, queue.sent, queue.waiting):
                held.clear()
        return batches
