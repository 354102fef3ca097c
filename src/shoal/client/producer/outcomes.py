"""
The outcome of each sent batch, by its response or by the lack of one.

These rules keep the order of each partition, and write no batch twice:

- A batch receives its sequence with its first request, and keeps it.
- If a request fails, the sender waits until every request of the partition has a response or has lost its
  connection. Then it sends the batches again, in order.
- A failed batch leaves a gap. If the broker reports it (OUT_OF_ORDER_SEQUENCE_NUMBER: no batch was written),
the
  next batches begin a new epoch. If the failed batch was written after all, the old sequences continue.
- If a broker refuses a request with several batches, it has written none of them: another producer writes to
the
  partition, or one batch is invalid. From then on each batch has its own request, with its old sequence.
- A stock broker remembers the last five batches of a producer. The response to a request with more may be
lost,
  and the next leader may accept only one batch at a time. It then reports the first ones as out of order.
  They are written if a later batch of the same producer is, so the responses to the later ones decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError
from ...protocol.produce import ProduceOutcome
from ..admin import IDEMPOTENT_WRITE
from ..backoff import Backoff
from .accumulator import Accumulator, PartitionQueue, ProducerState
from .batches import OrdinaryBatch, PendingBatch
from .settings import ProducerSettings

__all__ = ["Finished", "Outcomes", "failing"]

_LAST_EPOCH = 2**15 - 1

#: The attempts for a batch that a broker reports as corrupt: its CRC was right when the caller passed it.
_MOST_CORRUPT = 3

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

#: The codes of a broker that wrote nothing, since the producer's state does not fit.
_START_ANEW = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


#: Batches whose futures must be completed, each with the function that does it.
Finished = list[tuple[PendingBatch, Callable[[], None]]]


def failing(batch: PendingBatch, error: ShoalError) -> Callable[[], None]:
    """Return a function that completes a batch's futures with an error."""
    return lambda: batch.fail(error)


class Outcomes:
    """Decides the outcome of batches; callers of all methods hold the accumulator's lock."""

    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: Accumulator,
        where: str,
        *,
        on_moved: Callable[[], None],
        on_used_up: Callable[[], None],
    ) -> None:
        """
        Prepare the decisions of one producer.

        Args:
            settings: The limits of retries.
            where: The cluster, for errors.
            on_moved: Called if a partition may have another leader.
            on_used_up: Called if the producer id has no epochs left.

        """
        self._settings = settings
        self._accumulator = accumulator
        self._where = where
        self._on_moved = on_moved
        self._on_used_up = on_used_up

    def take(
        self,
        queue: PartitionQueue,
        batches: Sequence[PendingBatch],
        outcome: ProduceOutcome,
        finished: Finished,
    ) -> None:
        """Decide the outcome of a request's batches of one partition."""
        code = ErrorCode.of(outcome.error_code)
        unfinished = [batch for batch in batches if not batch.is_decided]
        if not code or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            base_offset = -1 if code else outcome.base_offset
            for batch in batches:
                if not batch.is_decided:
                    self.acknowledge(queue, batch, base_offset, outcome.log_append_time_ms, finished)
                base_offset += batch.count if base_offset >= 0 else 0
            return
        if not unfinished:
            queue.is_draining = True
            return
        where = f"producing to {queue.partition} on {self._where}"
        error = BrokerError(outcome.error_code, where, outcome.error_message, IDEMPOTENT_WRITE)
        head = unfinished[0]
        is_head = bool(queue.sent) and queue.sent[0] is head
        if len(batches) > 1 and not (code.retriable and self._may_retry(head, code)):
            # Nothing was written. Sent one by one, the responses show the invalid batch, or the other
            # producer.
            self._go_one_by_one(queue)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.identity is not None:
            self._out_of_order(queue, head, error, is_head=is_head, finished=finished)
        elif code in _START_ANEW and queue.identity is not None:
            queue.is_draining = queue.wants_new_epoch = True
        elif code in _TOO_LARGE and isinstance(head, OrdinaryBatch) and head.count > 1:
            self._halve(queue, head)
        elif code.retriable and self._may_retry(head, code):
            # The broker may have appended the batch despite this code.
            for batch in unfinished:
                batch.is_in_doubt = batch.is_in_doubt or code in (
                    ErrorCode.REQUEST_TIMED_OUT,
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                )
            queue.is_draining = True
            self._on_moved()
        else:
            for batch in unfinished:
                self.fail(queue, batch, error, finished)
            queue.is_draining = True

    def _out_of_order(
        self,
        queue: PartitionQueue,
        head: PendingBatch,
        error: BrokerError,
        *,
        is_head: bool,
        finished: Finished,
    ) -> None:
        """Continue after a sequence that is not the next one: nothing was written."""
        queue.is_draining = True
        if not is_head:
            return  # an earlier batch failed; this one is sent again after it
        if queue.takes_multi_batch:
            self._go_one_by_one(queue)
        elif head.is_in_doubt and head.landing is not None:
            queue.sent.remove(head)
            queue.unsure.append(head)
        elif queue.has_gap:
            queue.wants_new_epoch = True
        else:
            # All earlier batches were acknowledged, but the broker has lost its state of the producer.
            self.fail(queue, head, error, finished)

    def _halve(self, queue: PartitionQueue, batch: OrdinaryBatch) -> None:
        """Replace a batch by two with half of its records."""
        position = queue.sent.index(batch)
        queue.sent.remove(batch)
        for part in reversed(batch.halves()):
            queue.sent.insert(position, part)
        batch.is_decided = batch.is_done = True  # the halves have its futures and its memory
        queue.is_draining = True

    def _go_one_by_one(self, queue: PartitionQueue) -> None:
        queue.takes_multi_batch, queue.is_draining = False, True
        if queue.identity is not None:
            queue.identity.next_offset = None

    def _may_retry(self, batch: PendingBatch, code: ErrorCode) -> bool:
        most = _MOST_CORRUPT if code is ErrorCode.CORRUPT_MESSAGE else self._settings.retries
        return batch.attempts <= most

    def acknowledge(
        self,
        queue: PartitionQueue,
        batch: PendingBatch,
        base_offset: int,
        append_time_ms: int,
        finished: Finished,
    ) -> None:
        """Complete a batch, and the unsure ones before it, as acknowledged."""
        queue.sent.remove(batch)
        batch.is_decided = True
        queue.failures, queue.has_gap, queue.acked_at = 0, False, time.monotonic()
        if queue.identity is not None:
            queue.identity.is_fresh = False
        self._accumulator.settling.add(batch)
        finished.append((batch, lambda: batch.acknowledge(base_offset, append_time_ms)))
        # A broker accepts a sequence only after the one before: so the earlier batches are written.
        for earlier in queue.unsure:
            assert earlier.landing is not None
            earlier.is_decided = True
            self._accumulator.settling.add(earlier)
            finished.append((earlier, partial(earlier.acknowledge, earlier.landing, -1)))
        queue.unsure.clear()

    def fail(
        self,
        queue: PartitionQueue,
        batch: PendingBatch,
        error: ShoalError,
        finished: Finished,
    ) -> None:
        """Fail a batch; later batches follow after the gap."""
        for batches in (queue.sent, queue.waiting):
            if batch in batches:
                batches.remove(batch)
        queue.has_gap = queue.has_gap or batch.sequence is not None
        batch.is_decided = True
        self._accumulator.settling.add(batch)
        finished.append((batch, failing(batch, error)))

    def send_again_when_drained(self, queue: PartitionQueue, finished: Finished) -> None:
        """Queue failed batches again, in order, if the partition has nothing in flight."""
        if queue.outstanding or not queue.is_draining:
            return
        queue.is_draining = False
        again = list(queue.sent)
        queue.sent.clear()
        if queue.wants_new_epoch and queue.identity is not None:
            queue.wants_new_epoch = queue.has_gap = False
            self.give_up_unsure(queue, finished)
            self._begin_new_epoch(queue, again)
        queue.waiting.extendleft(reversed(again))
        if not queue.waiting:
            self.give_up_unsure(queue, finished)
        if again:
            backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
            backoff.failures = queue.failures
            queue.failures += 1
            queue.retry_at = time.monotonic() + backoff.next_delay_s()

    def give_up_unsure(self, queue: PartitionQueue, finished: Finished) -> None:
        """Fail the batches whose outcome no response will show."""
        unsure, queue.unsure = queue.unsure, []
        for batch in unsure:
            where = f"producing to {queue.partition} on {self._where}"
            detail = "an earlier answer was lost, and it may be written"
            error = BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, where, detail)
            self.fail(queue, batch, error, finished)

    def _begin_new_epoch(self, queue: PartitionQueue, again: Sequence[PendingBatch]) -> None:
        """Give unwritten batches new sequences, and fence late requests of the old epoch."""
        identity = queue.identity
        assert identity is not None
        queue.takes_multi_batch = False if queue.takes_multi_batch is not None else None
        if identity.epoch == _LAST_EPOCH:
            queue.identity = None
            self._on_used_up()
        else:
            queue.identity = ProducerState(identity.producer_id, identity.epoch + 1)
        for batch in (*again, *queue.waiting):
            batch.sequence = batch.landing = None
