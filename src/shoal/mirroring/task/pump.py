"""
The pump: sends everything that partitions have queued, and compares each answer with the predicted offset.

Rules of exactly once that are kept here and in ``outbound_queue.py`` (docs/decisions, 0002):

- The first request of a partition since its alignment is in flight alone.
- At most 5 requests are in flight; one, if the destination may have forgotten the producer.
- Any answer but the predicted offset goes to ``refusals.py``.
- The lease is checked before each system call that sends; of a request that is sent by itself, also before it
  is queued. Bytes in a socket may outlast it: then the broker's check of sequences protects the partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from ...client.cluster import Cluster
from ...client.produce import PumpedLot
from ...protocol.produce import ProduceOutcome
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from .destination_leader import DestinationLeader
from .lot import batches_of
from .partition import PartitionCopy
from .refusals import Reaction, land_elsewhere, refuse

__all__ = ["Pump"]

#: With small batches a system call costs more than their bytes: several requests
#: go out together when so few are left that the broker could run out of work.
_REFILL_AT = 2

#: One request's batches; brokers refuse requests of more than 100 MiB (socket.request.max.bytes).
_REQUEST_BYTES = 8 * 1024 * 1024

#: Brokers look for expired producer ids every 10 minutes (producer.id.expiration.check.interval.ms), and a
#: restart may forget them at once. Clocks differ, too, by more than `control.clock` can find out.
_FORGETTING_MARGIN_MS = 30 * 60 * 1000


class Pump:
    """Sends the queued batches of partitions that share a destination leader."""

    def __init__(
        self,
        copies: Sequence[PartitionCopy],
        leader: DestinationLeader,
        destination: Cluster,
        settings: CopySettings,
        control: WorkerControl,
    ) -> None:
        """
        Prepare to send the batches of partitions.

        Args:
            copies: All that may have something to send.
            destination: The destination cluster, for names in messages.
            control: Holds the lease, which is checked before each request, and each system call that sends.

        """
        self._by_destination = {copy.destination: copy for copy in copies}
        self._leader = leader
        self._destination = destination
        self._settings = settings
        self._control = control
        self._remembered_for_ms = max(0, settings.producer_id_expiration_ms - _FORGETTING_MARGIN_MS)

    def send_all(self, copies: Sequence[PartitionCopy]) -> None:
        """Send everything that partitions have queued, and wait until nothing is in flight."""
        producer = self._leader.connection
        ready = deque(copy for copy in copies if copy.outbound.queue)
        self._send_lots(ready)
        while True:
            if producer.in_flight <= _REFILL_AT:
                self._send_some(ready)
            if not producer.in_flight:
                return
            self._compare(producer.receive())

    def _compare(self, outcomes: Mapping[TopicPartition, ProduceOutcome]) -> None:
        """Compare the answer to a request with the predicted offsets."""
        for partition, outcome in outcomes.items():
            copy = self._by_destination[partition]
            outbound = copy.outbound
            if not outbound.in_flight:
                pass  # an earlier request failed: the alignment finds the outcome of this one
            elif outcome.base_offset == outbound.landing_offset and not outcome.error_code:
                # One offset is answered for several batches: they are written together, in a row.
                copy.acknowledge()
            else:
                self._react(copy, outcome)

    def _send_lots(self, ready: Sequence[PartitionCopy]) -> None:
        """
        Send the lots of all partitions by the connection's pump, which ends at the first unexpected answer.

        Whatever it leaves in the queues is sent request by request. The pump may leave all: without a gate
        in the control, and on connections that it cannot use.

        """
        producer = self._leader.connection
        with self._control.gate() as gate:
            if gate is None or not ready:
                return
            try:
                pumped = producer.pump(
                    [self._lot_of(copy) for copy in ready],
                    gate,
                    max_in_flight=self._settings.max_in_flight,
                    refill_at=_REFILL_AT,
                    request_bytes=_REQUEST_BYTES,
                    forgotten_up_to_ms=int(self._forgotten_up_to_ms),
                )
            except BaseException:
                # Ctrl-C while the pump waits: the requests that it sent are unknown.
                producer.close()
                for copy in ready:
                    copy.lose_track()
                raise
        if pumped is None:
            return
        for copy, count in zip(ready, pumped.landed, strict=True):
            copy.land(count)
        for parts, _ in pumped.handed_back:
            for place, first, end in parts:
                ready[place].outbound.put_in_flight(end - first)
        for parts, answer in pumped.handed_back:
            if answer is not None:
                partitions = [ready[place].destination for place, _, _ in parts]
                self._compare(producer.outcomes_of(answer, partitions))
        if pumped.failure is not None:
            raise pumped.failure

    def _lot_of(self, copy: PartitionCopy) -> PumpedLot:
        outbound = copy.outbound
        together_bytes = outbound.together_bytes if self._leader.may_send_multi_batch(copy) else 0
        return PumpedLot(
            copy.destination,
            [lot.view for lot in outbound.queue],
            b"".join(lot.index for lot in outbound.queue),
            outbound.landing_offset,
            outbound.newest_ms,
            together_bytes,
        )

    @property
    def _forgotten_up_to_ms(self) -> float:
        """The destination may forget a producer whose last batch has no newer timestamp."""
        return self._control.now_ms() - self._remembered_for_ms

    def _send_some(self, ready: deque[PartitionCopy]) -> None:
        """Send as many requests as may be in flight, in one system call."""
        producer = self._leader.connection
        while ready and producer.in_flight < self._settings.max_in_flight:
            batches = self._next_request(ready)
            if not batches:
                break
            self._control.check_lease()
            producer.prepare(batches)
        producer.send_prepared(self._control.check_lease)

    def _next_request(self, ready: deque[PartitionCopy]) -> Mapping[TopicPartition, Sequence[memoryview]]:
        """Take one batch of each partition that may send, or several, up to a request's size."""
        batches: dict[TopicPartition, Sequence[memoryview]] = {}
        size = 0
        forgotten_up_to_ms = self._forgotten_up_to_ms
        for _ in range(len(ready)):
            copy = ready.popleft()
            outbound = copy.outbound
            if outbound.may_send(forgotten_up_to_ms):
                views = outbound.next_to_send(multi_batch=self._leader.may_send_multi_batch(copy))
                batches[copy.destination] = views
                for view in views:
                    size += len(view)
            if outbound.queue:
                ready.append(copy)
            if size >= _REQUEST_BYTES:
                break
        return batches

    def _react(self, copy: PartitionCopy, outcome: ProduceOutcome) -> None:
        batches = batches_of(copy.outbound.in_flight[0])
        if outcome.error_code:
            reaction = refuse(copy, batches, outcome, self._destination, self._settings)
            if reaction is Reaction.SEND_ONE_BY_ONE:
                self._leader.forget(copy.destination.topic)
        else:
            land_elsewhere(copy, batches, outcome.base_offset, self._destination, self._settings)
