"""
What becomes of batches that were sent: by their answers, or because there is none.

Order and no doubles, per partition, by these rules:

- Sequences are given once, when a batch is sent for the first time, and stay.
- After a request that failed, nothing of its partition is sent until all that
  are in flight are answered, or their connection is gone; then they go again, in order.
- A batch that is given up leaves a gap. Only if the broker then says so
  (OUT_OF_ORDER_SEQUENCE_NUMBER: nothing was written), what follows begins a new
  epoch; where the batch was written after all, the old sequences simply go on.
- A request of several batches that is refused has written nothing: somebody
  else writes to the partition, or one of them is unacceptable. They go one by
  one from then on, with the sequences that they have.
- A stock broker knows the last five batches of a producer. Where the answer to a
  request with more was lost and the next leader takes one at a time, it says of
  the first ones that they are out of order; they are written if a later one of
  the same producer is, and so the answers to those decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError
from ...protocol.produce import ProduceOutcome
from ..backoff import Backoff
from .accumulator import Accumulator, PartitionQueue, ProducerIdentity
from .batches import OrdinaryBatch, PendingBatch
from .settings import ProducerSettings

__all__ = ["Finished", "Outcomes", "failing"]

_LAST_EPOCH = 2**15 - 1

#: So often a batch is sent that a broker finds damaged; its CRC was right when it came.
_MOST_CORRUPT = 3

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

#: The broker wrote nothing, since it does not go on with this producer.
_START_ANEW = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


#: Batches whose futures are to be told something, and how.
Finished = list[tuple[PendingBatch, Callable[[], None]]]


def failing(batch: PendingBatch, error: ShoalError) -> Callable[[], None]:
    """Return what tells a batch's futures of an error."""
    return lambda: batch.fail(error)


class Outcomes:
    """Decides what becomes of batches; all methods are called with the accumulator's lock held."""

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
        Args:
            settings: How often something is tried.
            accumulator: Has the queues.
            where: The cluster, for errors.
            on_moved: Called where a partition may have another leader by now.
            on_used_up: Called where the producer id has no epochs left.
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
        """Decide what becomes of the batches that a request had of a partition; the lock is held."""
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
        error = BrokerError(outcome.error_code, where, outcome.error_message)
        head = unfinished[0]
        is_head = bool(queue.sent) and queue.sent[0] is head
        if len(batches) > 1 and not (code.retriable and self._may_retry(head, code)):
            # Nothing was written. One by one, the answers say which batch is meant, or who else writes here.
            self._go_one_by_one(queue)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.identity is not None:
            self._out_of_order(queue, head, error, is_head=is_head, finished=finished)
        elif code in _START_ANEW and queue.identity is not None:
            queue.is_draining = queue.wants_new_epoch = True
        elif code in _TOO_LARGE and isinstance(head, OrdinaryBatch) and head.count > 1:
            self._halve(queue, head)
        elif code.retriable and self._may_retry(head, code):
            # A broker that says so may have appended it all the same.
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
        """Go on after a sequence that is not the next one: nothing was written."""
        queue.is_draining = True
        if not is_head:
            return  # one before it failed; it is sent again behind that
        if queue.takes_several:
            self._go_one_by_one(queue)
        elif head.is_in_doubt and head.landing is not None:
            queue.sent.remove(head)
            queue.unsure.append(head)
        elif queue.has_gap:
            queue.wants_new_epoch = True
        else:
            # All before it was acknowledged, and the broker does not have it any more.
            self.fail(queue, head, error, finished)

    def _halve(self, queue: PartitionQueue, batch: OrdinaryBatch) -> None:
        """Put two batches into the place of one."""
        position = queue.sent.index(batch)
        queue.sent.remove(batch)
        for part in reversed(batch.halves()):
            queue.sent.insert(position, part)
        batch.is_decided = batch.is_done = True  # its halves have its futures, and its memory
        queue.is_draining = True

    def _go_one_by_one(self, queue: PartitionQueue) -> None:
        queue.takes_several, queue.is_draining = False, True
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
        queue.sent.remove(batch)
        batch.is_decided = True
        queue.failures, queue.has_gap, queue.acked_at = 0, False, time.monotonic()
        if queue.identity is not None:
            queue.identity.is_fresh = False
        self._accumulator.settling.add(batch)
        finished.append((batch, lambda: batch.acknowledge(base_offset, append_time_ms)))
        # A broker takes a sequence only behind the one before it: so those before this one are there.
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
        for batches in (queue.sent, queue.waiting):
            if batch in batches:
                batches.remove(batch)
        queue.has_gap = queue.has_gap or batch.sequence is not None
        batch.is_decided = True
        self._accumulator.settling.add(batch)
        finished.append((batch, failing(batch, error)))

    def send_again_when_drained(self, queue: PartitionQueue, finished: Finished) -> None:
        """Queue again what failed, in order, once nothing of the partition is in flight; the lock is held."""
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
        """Fail what nothing will tell of any more."""
        unsure, queue.unsure = queue.unsure, []
        for batch in unsure:
            where = f"producing to {queue.partition} on {self._where}"
            detail = "an earlier answer was lost, and it may be written"
            error = BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, where, detail)
            self.fail(queue, batch, error, finished)

    def _begin_new_epoch(self, queue: PartitionQueue, again: Sequence[PendingBatch]) -> None:
        """Number anew what is known not to be written, and fence what may still arrive of the old epoch."""
        identity = queue.identity
        assert identity is not None
        queue.takes_several = False if queue.takes_several is not None else None
        if identity.epoch == _LAST_EPOCH:
            queue.identity = None
            self._on_used_up()
        else:
            queue.identity = ProducerIdentity(identity.producer_id, identity.epoch + 1)
        for batch in (*again, *queue.waiting):
            batch.sequence = batch.landing = None
