"""
The outcome of each batch: acknowledged, sent again, or failed.

These rules keep the order of each partition, and write no batch twice:

- A batch receives its sequence with its first attempt, and keeps it. It is sent again before those behind it.
- A failed batch leaves a gap. If the broker reports it (OUT_OF_ORDER_SEQUENCE_NUMBER: no batch was written),
  the next batches begin a new epoch. If the failed batch was written after all, the old sequences continue.
- If a broker refuses a request with several batches, it has written none of them: another producer writes to
  the partition, or one batch is invalid. From then on each batch has its own request, with its old sequence.
- A stock broker remembers the last five batches of a producer. If it refuses one of more batches whose
  answer was lost, it is asked for the producer's last sequence.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial

from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError
from ..admin import IDEMPOTENT_WRITE
from ..broker_state import last_sequence
from ..cluster import Cluster, is_transient
from ..lot import Lot, Refused, Sent
from .batches import SEQUENCES, PendingBatch
from .queues import PartitionQueue

__all__ = ["Outcomes", "Reaction", "reaction_to"]

_LAST_EPOCH = 2**15 - 1

#: The attempts for a batch that a broker reports as corrupt: its CRC was right when the caller passed it.
_MOST_CORRUPT = 3

#: The codes of a broker that wrote nothing, since the producer's state does not fit.
_START_ANEW = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)

#: The codes with which a broker may have appended the batch.
_IN_DOUBT = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class Reaction(enum.Enum):
    """The reaction to an answer about the first batch of a queue."""

    ACKNOWLEDGE = "the leader has the batch"
    RETRY = "send it again after a pause"
    ONE_BY_ONE = "send it again, and each batch in a request of its own"
    NEW_EPOCH = "send it again in a new epoch"
    LOOK_UP = "ask the leader which batches it has"
    FAIL = "complete it with the error"


def reaction_to(code: ErrorCode, queue: PartitionQueue, retries: int, *, is_one_of_several: bool) -> Reaction:
    """
    Return the reaction to a code about the first batch of a queue.

    Args:
        code: The code of the leader.
        queue: The queue.
        retries: The most failures in a row before the batch fails.
        is_one_of_several: Whether the code is about several batches.

    """
    head = queue.batches[0]
    if not code or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return Reaction.ACKNOWLEDGE
    is_out_of_order = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    most = _MOST_CORRUPT if code is ErrorCode.CORRUPT_MESSAGE else retries
    if code.retriable and not is_out_of_order and queue.backoff.failures < most:
        return Reaction.RETRY
    if is_one_of_several or (is_out_of_order and queue.takes_several):
        return Reaction.ONE_BY_ONE
    if is_out_of_order and head.is_in_doubt and head.landing is not None:
        return Reaction.LOOK_UP
    if code in _START_ANEW or (is_out_of_order and queue.has_gap):
        return Reaction.NEW_EPOCH
    # Also a sequence that is not the next one although all batches before were acknowledged: the broker has
    # lost its state of the producer.
    return Reaction.FAIL


class Outcomes:
    """
    Applies answers to queues; callers hold the lock of the queues, but for :meth:`look_up`.

    Attributes:
        finished: The batches whose futures have to be completed, without the lock, each with the function
            that does it.

    """

    def __init__(self, cluster: Cluster, retries: int) -> None:
        """
        Begin without outcomes.

        Args:
            cluster: The connections for questions about producers.
            retries: The most failures in a row before a batch fails.

        """
        self._cluster = cluster
        self._retries = retries
        self._unknown: list[tuple[PartitionQueue, BrokerError]] = []
        self.finished: list[tuple[PendingBatch, Callable[[], object]]] = []

    def take(
        self, queue: PartitionQueue, batches: Sequence[PendingBatch], lot: Lot, sent: Sent, place: int
    ) -> bool:
        """
        Take the answers about a lot of a queue's first batches.

        Args:
            place: The lot's place in ``sent``.

        Returns:
            Whether the partition may have another leader.

        """
        landed = sent.landed[place]
        later = {each.first: each.base_offset for each in sent.later if each.place == place}
        offset = lot.base_offset
        for number, batch in enumerate(batches[:landed]):
            offset = later.get(number, offset)
            self._acknowledge(queue, batch, offset)
            offset += batch.count
        queue.next_offset = offset
        queue.newest_ms = lot.newest_after(landed)
        left = batches[landed:]
        refused = sent.refused.get(place)
        if refused is not None:
            return self._refuse(queue, left, refused)
        if left:
            assert sent.failure is not None
            self.disconnect(queue, left, sent.failure)
        return bool(left)

    def disconnect(self, queue: PartitionQueue, batches: Sequence[PendingBatch], error: ShoalError) -> None:
        """Send batches again whose answer was lost."""
        _doubt(batches)
        if queue.backoff.failures >= self._retries:
            self.fail(queue, batches[0], error)
        queue.put_off()

    def _refuse(self, queue: PartitionQueue, left: Sequence[PendingBatch], refused: Refused) -> bool:
        """React to the refusal of the first batches; return whether there may be another leader."""
        code = ErrorCode.of(refused.error_code)
        where = f"producing to {queue.partition} on {self._cluster}"
        error = BrokerError(refused.error_code, where, refused.message, IDEMPOTENT_WRITE)
        batches = left[: refused.end - refused.first]
        if code in _IN_DOUBT:
            _doubt(left)
        queue.newest_ms = None  # the batches behind were in flight, and may be refused, too
        reaction = reaction_to(code, queue, self._retries, is_one_of_several=len(batches) > 1)
        match reaction:
            case Reaction.ACKNOWLEDGE:
                offset = -1 if code else refused.base_offset
                for batch in batches:
                    self._acknowledge(queue, batch, offset)
                    offset += batch.count if offset >= 0 else 0
                queue.next_offset = max(offset, 0)
            case Reaction.RETRY:
                queue.put_off()
            case Reaction.ONE_BY_ONE:
                queue.takes_several = False
                queue.backoff.reset()
            case Reaction.NEW_EPOCH:
                _begin_new_epoch(queue)
            case Reaction.LOOK_UP:
                queue.put_off()
                self._unknown.append((queue, error))
            case Reaction.FAIL:
                for batch in batches:
                    self.fail(queue, batch, error)
        return reaction is Reaction.RETRY

    def _acknowledge(self, queue: PartitionQueue, batch: PendingBatch, base_offset: int) -> None:
        queue.batches.remove(batch)
        queue.has_gap = False
        queue.backoff.reset()
        self.finished.append((batch, partial(batch.acknowledge, base_offset)))

    def fail(self, queue: PartitionQueue, batch: PendingBatch, error: ShoalError) -> None:
        """Fail a batch; those behind it follow after the gap."""
        queue.batches.remove(batch)
        queue.has_gap = queue.has_gap or batch.sequence is not None
        queue.backoff.reset()
        self.finished.append((batch, partial(batch.fail, error)))

    def look_up(self) -> None:
        """Ask leaders which batches they have of queues for which only that shows it."""
        unknown, self._unknown = self._unknown, []
        for queue, error in unknown:
            assert queue.producer_id is not None
            try:
                last = last_sequence(self._cluster, queue.partition, queue.producer_id)
            except ShoalError as failure:
                if is_transient(failure):
                    continue  # the batch is sent again, and refused again
                last = None
            written = [] if last is None else [each for each in queue.batches if _is_up_to(each, last)]
            for batch in written:
                assert batch.landing is not None
                self._acknowledge(queue, batch, batch.landing)
            if not written:
                self.fail(queue, queue.batches[0], error)


def _begin_new_epoch(queue: PartitionQueue) -> None:
    """Give unwritten batches new sequences, and fence late requests of the old epoch."""
    queue.takes_several = queue.has_gap = False
    queue.next_sequence = 0
    if queue.epoch == _LAST_EPOCH:
        queue.producer_id = None
    queue.epoch = (queue.epoch + 1) % (_LAST_EPOCH + 1)
    for batch in queue.batches:
        batch.sequence = batch.landing = None


def _doubt(batches: Sequence[PendingBatch]) -> None:
    for batch in batches:
        batch.is_in_doubt = True


def _is_up_to(batch: PendingBatch, last: int) -> bool:
    """Return whether a batch ends at a sequence or before it, modulo the number of sequences."""
    if batch.sequence is None or batch.landing is None:
        return False
    return (last - batch.sequence - batch.count + 1) % SEQUENCES < SEQUENCES // 2
