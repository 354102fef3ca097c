"""
A leader: the connections to it, the batches that go there, and the outcome of each.

These rules keep the order of each partition, and write no batch twice:

- A batch receives its sequence with its first attempt, and keeps it. It is sent again before those behind it.
- A failed batch leaves a gap. If the broker reports it (OUT_OF_ORDER_SEQUENCE_NUMBER: no batch was
  written), the next batches begin a new epoch. If the failed batch was written after all, the old sequences
  continue.
- If a leader accepts several batches of a partition in one request (:mod:`..multi_batch`), raw batches
  share a request. Such a leader compares sequences with its log end: so the first sequence of a partition is
  that.
- If a broker refuses a request with several batches, it has written none of them: another producer writes to
  the partition, or one batch is invalid. From then on each batch has its own request, with its old sequence,
  on a connection without the mark. So have the batches of the leader's other partitions.
- A stock broker remembers the last five batches of a producer. If it refuses one of more batches whose
  answer was lost, it is asked for the producer's last sequence.
- A broker forgets a producer whose last batch is old, at once in a restart, and then takes that batch again.
  So the producer looks into the log before it repeats an old batch. If the log cannot tell,
  it gives the batch up as one in doubt.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...error_codes import ErrorCode
from ...errors import BrokerError, DeliveryTimedOut, Disconnected, ProtocolError, ShoalError, Stopped
from ...records import stamp
from ...topic_partition import TopicPartition
from ..admin import IDEMPOTENT_WRITE, init_producer_id
from ..broker_state import last_sequence
from ..cluster import Cluster, is_transient
from ..connection import Connection
from ..lot import Limits, Lot, Refused, Sent, open_gate
from ..metadata import Metadata
from ..multi_batch import ProduceConnection
from ..offsets import LATEST, list_offsets, log_end_offsets
from ..send import send
from .batches import SEQUENCES, PendingBatch
from .queues import PartitionQueue, Queues
from .settings import ProducerSettings
from .written import find_written

__all__ = ["Leader"]

#: The most bytes of a partition in a request with several batches, and in a lot.
_MOST_OF_REQUEST = 1024 * 1024
_MOST_OF_LOT = 4 * 1024 * 1024

#: A leader may forget a producer without a newer batch: half of the default of producer.id.expiration.ms.
_REMEMBERED_MS = 12 * 3600 * 1000

#: Old batches wait for the log's end if the partition's last answer is older: others may write there.
_END_IS_FRESH_S = 10.0

_LAST_EPOCH = 2**15 - 1

#: The attempts for a batch that a broker reports as corrupt: its CRC was right when the caller passed it.
_MOST_CORRUPT = 3

#: The codes of a broker that wrote nothing, since the producer's state does not fit.
_START_ANEW = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)

#: The codes with which a broker may have appended the batch. It also answers the last three while it waits
#: for its followers, if the partition's leader or its topic goes meanwhile (DelayedProduce).
_IN_DOUBT = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _Delivery(NamedTuple):
    """The first batches of a queue, and their lot."""

    queue: PartitionQueue
    batches: Sequence[PendingBatch]
    lot: Lot


class Leader:
    """
    Sends the batches of some partitions to their leader, one delivery at a time.

    Attributes:
        is_busy: Whether a delivery is under way.

    """

    def __init__(self, settings: ProducerSettings, queues: Queues, node_id: int) -> None:
        """Prepare; the first delivery connects."""
        self._settings = settings
        self._queues = queues
        self._node_id = node_id
        self._gate = open_gate()
        self._cluster = Cluster(settings.client)
        self._connection: ProduceConnection | None = None
        self._can_be_marked = settings.send_raw_bytes
        self._finished: list[PendingBatch] = []
        self.is_busy = False

    def stop(self) -> None:
        """Send nothing more, and end the wait for the leader; any thread may call this."""
        assert isinstance(self._gate, array)
        self._gate[0] = 0
        self._cluster.abort()

    def close(self) -> None:
        """Close the connections."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._cluster.close()

    def deliver(self, metadata: Metadata, queues: Sequence[PartitionQueue]) -> bool:
        """
        Send the first batches of queues, and take the outcomes. Only this thread changes these batches.

        Returns:
            Whether a partition may have another leader.

        Raises:
            ShoalError: The producer can send nothing any more.

        """
        deliveries: list[_Delivery] = []
        try:
            connection = self._connected(metadata)
            known = self._with_known_ends(self._identified(self._asked(connection, queues)))
            ready = [each for each in known if not self._may_be_forgotten(each) or self._has_more(each)]
            with self._queues.changed:
                deliveries = [self._delivery(each) for each in ready]
            has_moved = len(ready) < len(queues)
            if deliveries:
                lots = [each.lot for each in deliveries]
                sent = send(connection.current, lots, self._limits(), self._gate)
                for place, each in enumerate(deliveries):
                    has_moved |= self._take(each, sent, place)
        except (Disconnected, ProtocolError) as error:
            self.close()
            batches = {each.queue.partition: each.batches for each in deliveries}
            with self._queues.changed:
                for queue in queues:
                    self._disconnect(queue, batches.get(queue.partition, ()), error)
            has_moved = True
        finished, self._finished = self._finished, []
        self._queues.settle(finished)
        return has_moved

    def _connected(self, metadata: Metadata) -> ProduceConnection:
        used = self._connection
        if used is not None and (used.current.closed or used.current.has_hung_up()):
            self.close()  # brokers close idle connections, and may come back without their agent
        if self._connection is None:
            self._cluster = Cluster(self._settings.client, metadata)
            self._connection = ProduceConnection(self._connect, self._settings.client.client_id)
        return self._connection

    def _connect(self, client_id: str | None) -> Connection:
        return self._cluster.connect(self._node_id, client_id=client_id)

    def _asked(
        self, connection: ProduceConnection, queues: Sequence[PartitionQueue]
    ) -> Sequence[PartitionQueue]:
        """Decide which may have several batches in a request; return those whose leader has answered."""
        if self._can_be_marked:
            connection.ask((each.partition for each in queues if each.takes_several is not False), None)
        if any(
            each.takes_several is False and connection.takes_several(each.partition.topic) for each in queues
        ):
            # The sequences of some are not their offsets.
            self._can_be_marked = False
            connection.unmark()
        known: list[PartitionQueue] = []
        for queue in queues:
            topic, may_be_several = queue.partition.topic, queue.takes_several is not False
            if self._can_be_marked and may_be_several and not connection.has_asked([topic]):
                queue.put_off()
            else:
                queue.takes_several = may_be_several and connection.takes_several(topic)
                known.append(queue)
        return known

    def _identified(self, queues: Sequence[PartitionQueue]) -> Sequence[PartitionQueue]:
        """Give new partitions a producer id and their first sequence; return those that have one."""
        new = [each for each in queues if each.producer_id is None]
        if not new:
            return queues
        at_end = [each.partition for each in new if each.takes_several]
        ends: dict[TopicPartition, int | ShoalError] = {}
        try:
            producer_id, _ = init_producer_id(self._cluster)
            if at_end:
                self._cluster.refresh({each.topic for each in at_end})
                ends = log_end_offsets(self._cluster, at_end)
        except BrokerError as error:
            if not is_transient(error):
                raise
            ends = {each.partition: error for each in new}
        for queue in new:
            end = ends.get(queue.partition, 0)
            if isinstance(end, ShoalError):
                queue.put_off()
            else:
                queue.producer_id = producer_id
                queue.next_offset, queue.next_sequence = end, end % SEQUENCES
        return [each for each in queues if each.producer_id is not None]

    def _has_old(self, batches: Iterable[PendingBatch]) -> bool:
        """Return whether the leader may forget a producer after one of these batches."""
        limit_ms = self._limits().forgotten_up_to_ms
        return any(each.newest_ms <= limit_ms for each in batches)

    def _with_known_ends(self, queues: Sequence[PartitionQueue]) -> Sequence[PartitionQueue]:
        """Ask where a look has to begin, before old batches are sent; return the queues that may be sent."""
        now = time.monotonic()
        with self._queues.changed:
            stale = [
                each
                for each in queues
                if not each.takes_several
                and each.next_offset_at + _END_IS_FRESH_S < now
                and not any(batch.is_in_doubt for batch in each.batches)
                and self._has_old(each.batches)
            ]
        if not stale:
            return queues
        unknown = []
        ends: dict[TopicPartition, int | ShoalError]
        try:
            self._cluster.refresh({each.partition.topic for each in stale})
            ends = list_offsets(self._cluster, {each.partition: LATEST for each in stale})
        except BrokerError as error:
            ends = {each.partition: error for each in stale}
        for queue in stale:
            end = ends[queue.partition]
            if isinstance(end, int):
                queue.next_offset, queue.next_offset_at = end, now
            elif is_transient(end):
                unknown.append(queue)
                queue.put_off()
        return [each for each in queues if each not in unknown]

    def _may_be_forgotten(self, queue: PartitionQueue) -> bool:
        """Return whether batches may be written, and the leader may not know that any more."""
        with self._queues.changed:
            return self._has_old([each for each in queue.batches if each.is_in_doubt])

    def _has_more(self, queue: PartitionQueue) -> bool:
        """Acknowledge the batches that are in the log; return whether others may be sent now."""
        assert queue.producer_id is not None
        try:
            written = find_written(
                self._cluster, queue.partition, queue.next_offset, queue.producer_id, queue.epoch
            )
        except ShoalError:
            with self._queues.changed:
                queue.put_off()
            return False
        with self._queues.changed:
            for sent in list(queue.batches):
                if sent.sequence is None or (offset := written.offsets.get(sent.sequence)) is None:
                    break
                self._finish(queue, sent, offset)
                queue.next_offset = offset + sent.count
            head = next(iter(queue.batches), None)
            if head is not None and head.is_in_doubt and written.unproven:
                timeout_ms = self._settings.delivery_timeout_ms
                error = DeliveryTimedOut(*queue.partition, timeout_ms, True, written.unproven)
                self._finish(queue, head, error)
            return bool(queue.batches) and not written.unproven

    def _delivery(self, queue: PartitionQueue) -> _Delivery:
        """Stamp the first batches of a partition; the caller holds the lock."""
        assert queue.producer_id is not None
        size = 0
        offset = queue.next_offset
        batches: list[PendingBatch] = []
        for batch in queue.batches:
            if batch.written is None:
                if queue.holds_open:
                    break
                batch.write(self._settings.compression_type)
            size += batch.size
            if batches and size > _MOST_OF_LOT:
                break
            if batch.sequence is None:
                batch.sequence = queue.next_sequence
                queue.next_sequence = (queue.next_sequence + batch.count) % SEQUENCES
                batch.landing = offset if queue.takes_several else None
            offset += batch.count
            stamp(batch.batch, queue.producer_id, queue.epoch, batch.sequence)
            batches.append(batch)
        lot = Lot(
            queue.partition,
            [batch.batch.view for batch in batches],
            b"".join(batch.entry for batch in batches),
            queue.next_offset,
            queue.newest_ms,
            together_bytes=_MOST_OF_REQUEST if queue.takes_several else 0,
            lands_later=not queue.takes_several,
        )
        return _Delivery(queue, batches, lot)

    def _limits(self) -> Limits:
        return Limits(
            int(time.time() * 1000) - _REMEMBERED_MS,
            self._settings.max_request_size,
            self._settings.max_in_flight,
            self._settings.client.request_timeout_ms,
        )

    # Outcomes

    def _take(self, delivery: _Delivery, sent: Sent, place: int) -> bool:
        """Take the answers about a lot at its place; return whether there may be another leader."""
        queue, batches, lot = delivery
        landed = sent.landed[place]
        refused = sent.refused.get(place)
        later = {each.first: each.base_offset for each in sent.later if each.place == place}
        offset = lot.base_offset
        with self._queues.changed:
            for number, batch in enumerate(batches[:landed]):
                offset = later.get(number, offset)
                self._finish(queue, batch, offset)
                offset += batch.count
            queue.next_offset = offset
            if landed:
                queue.next_offset_at = time.monotonic()
            queue.newest_ms = lot.newest_after(landed)
            left = batches[landed:]
            if refused is None:
                if left:
                    assert sent.failure is not None
                    self._disconnect(queue, left, sent.failure)
                return bool(left)
            where = f"producing to {queue.partition} on {self._cluster}"
            error = BrokerError(refused.error_code, where, refused.message, IDEMPOTENT_WRITE)
            if not _is_unknown(queue, refused):
                return self._react(queue, left, refused, error)
        self._look_up(queue, error)
        return False

    def _finish(self, queue: PartitionQueue, batch: PendingBatch, outcome: int | ShoalError) -> None:
        self._finished.append(queue.finish(batch, outcome))

    def _disconnect(self, queue: PartitionQueue, batches: Sequence[PendingBatch], error: ShoalError) -> None:
        """Send batches again whose answer was lost."""
        for batch in batches:
            batch.is_in_doubt = True
        if queue.backoff.failures >= self._settings.retries and not isinstance(error, Stopped):
            self._finish(queue, queue.batches[0], error)
        queue.put_off()

    def _react(
        self, queue: PartitionQueue, left: Sequence[PendingBatch], refused: Refused, error: BrokerError
    ) -> bool:
        """React to the refusal of the first batches; return whether there may be another leader."""
        code = ErrorCode.of(refused.error_code)
        batches = left[: refused.end - refused.first]
        for batch in left if code in _IN_DOUBT else ():
            batch.is_in_doubt = True
        queue.newest_ms = None  # the batches behind were in flight, and may be refused, too
        is_out_of_order = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        most = _MOST_CORRUPT if code is ErrorCode.CORRUPT_MESSAGE else self._settings.retries
        if not code or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            offset = -1 if code else refused.base_offset
            for batch in batches:
                self._finish(queue, batch, offset)
                offset += batch.count if offset >= 0 else 0
            if offset >= 0:  # else the one before is an earlier one
                queue.next_offset = offset
        elif code.retriable and not is_out_of_order and queue.backoff.failures < most:
            queue.put_off()
            return True
        elif len(batches) > 1 or (is_out_of_order and queue.takes_several):
            queue.takes_several = False
            queue.backoff.reset()
        elif code in _START_ANEW or (is_out_of_order and queue.has_gap):
            _begin_new_epoch(queue)
        else:
            # Also if a sequence is not the next one although all batches before were acknowledged: the broker
            # has lost its state of the producer.
            for batch in batches:
                self._finish(queue, batch, error)
        return False

    def _look_up(self, queue: PartitionQueue, error: BrokerError) -> None:
        """Acknowledge the batches that the leader has by its last sequence; fail the first if it has none."""
        assert queue.producer_id is not None
        with self._queues.changed:
            queue.put_off()
        try:
            self._cluster.refresh({queue.partition.topic})
            last = last_sequence(self._cluster, queue.partition, queue.producer_id)
        except ShoalError as failure:
            if is_transient(failure):
                return  # the batch is sent again, and refused again
            last = None
        with self._queues.changed:
            written = [] if last is None else [each for each in queue.batches if _is_up_to(each, last)]
            for batch in written:
                assert batch.landing is not None
                self._finish(queue, batch, batch.landing)
            if not written:
                self._finish(queue, queue.batches[0], error)


def _begin_new_epoch(queue: PartitionQueue) -> None:
    """Give unwritten batches new sequences, and fence late requests of the old epoch."""
    queue.takes_several = queue.has_gap = False
    queue.next_sequence = 0
    if queue.epoch == _LAST_EPOCH:
        queue.producer_id = None
    queue.epoch = (queue.epoch + 1) % (_LAST_EPOCH + 1)
    for batch in queue.batches:
        batch.sequence = batch.landing = None


def _is_unknown(queue: PartitionQueue, refused: Refused) -> bool:
    """Return whether a broker without its agent may have the first batch, and not remember it."""
    head = queue.batches[0]
    is_alone = refused.end - refused.first == 1 and not queue.takes_several
    is_out_of_order = refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return is_alone and is_out_of_order and head.is_in_doubt and head.landing is not None


def _is_up_to(batch: PendingBatch, last: int) -> bool:
    """Return whether a batch ends at a sequence or before it, modulo the number of sequences."""
    if batch.sequence is None or batch.landing is None:
        return False
    return (last - batch.sequence - batch.count + 1) % SEQUENCES < SEQUENCES // 2
