"""
The batches of one partition on their way out: queued, then in flight.

A batch is stamped when it is queued, for the destination offset behind everything that is
queued before it. So the offset that a response must have is known before the request is sent
(docs/decisions, 0002). Batches leave the queue in their order, and requests are answered in
the order in which they were sent: the oldest request in flight is the one that a response is for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

from ...records import Run, stamp
from ..model.position import ProducerIdentity
from .outbound import OutboundBatch, copy_of_run

__all__ = ["OutboundQueue"]

#: Of a partition in one request. A broker checks and decompresses them under the partition's lock, and
#: more made it no faster; no record set may be larger than a segment.
TOGETHER_BYTES = 1024 * 1024


class OutboundQueue:
    """
    The queue of one partition, and its requests in flight.

    Attributes:
        queue: Stamped batches, in the order of their offsets.
        in_flight: For each request without a response, its batches; the oldest first.
        next_offset: The destination offset of the next batch to queue.
        together_bytes: The most bytes of batches in one request, if the broker takes several.
        one_by_one_until: The source offset up to which each batch has a request of its own.

    """

    def __init__(self) -> None:
        self.queue: deque[OutboundBatch] = deque()
        self.in_flight: deque[Sequence[OutboundBatch]] = deque()
        self.next_offset = -1
        self.together_bytes = TOGETHER_BYTES
        self.one_by_one_until = -1
        #: A timestamp that the destination's producer state has since the alignment, for :meth:`may_send`.
        self._newest_ms: int | None = None

    def successor(self) -> OutboundQueue:
        """Return an empty queue with the same limits."""
        heir = OutboundQueue()
        heir.together_bytes, heir.one_by_one_until = self.together_bytes, self.one_by_one_until
        return heir

    def put(self, outgoing: OutboundBatch, identity: ProducerIdentity) -> None:
        """Stamp a batch for the place behind all that is queued, and queue it."""
        sequence = identity.sequence(self.next_offset)
        stamp(outgoing.batch, identity.producer_id, identity.producer_epoch, sequence)
        outgoing.destination_offset = self.next_offset
        self.next_offset += outgoing.records_count
        self.queue.append(outgoing)

    def put_run(self, run: Run) -> None:
        """Queue batches that go together, stamped for :attr:`next_offset`."""
        self.queue.append(copy_of_run(run, self.next_offset))
        self.next_offset += run.records_count

    def rewind(self, destination_offset: int) -> None:
        """Forget the queue; the next batch is for this offset. Nothing is in flight."""
        self.queue.clear()
        self.next_offset = destination_offset

    def clear(self) -> None:
        """Forget the queue and all requests in flight: their outcome is unknown, and so is the log end."""
        self.queue.clear()
        self.in_flight.clear()
        self._newest_ms = None

    def may_send(self, forgotten_up_to_ms: float) -> bool:
        """
        Whether the next queued batch may go out now (docs/decisions, 0002).

        A second request while one is in flight needs a broker that remembers the producer:
        one that does not would accept the second even if the first failed.

        Args:
            forgotten_up_to_ms: The destination may forget a producer whose last batch has no newer
                timestamp than this.

        """
        if not self.queue:
            return False
        if not self.in_flight:
            return True
        return (
            self._newest_ms is not None
            and self._newest_ms > forgotten_up_to_ms
            and all(each.newest_ms > forgotten_up_to_ms for request in self.in_flight for each in request)
        )

    @property
    def has_several(self) -> bool:
        """Whether the next request could have several batches."""
        return (len(self.queue) > 1 or any(each.batches_count > 1 for each in self.queue)) and self.queue[
            0
        ].source_start >= self.one_by_one_until

    def next_to_send(self, *, multi_batch: bool) -> Sequence[OutboundBatch]:
        """Move the next batch from the queue into flight; with ``several``, all that one request can have."""
        batches = [self.queue.popleft()]
        if multi_batch:
            room = self.together_bytes - len(batches[0].view)
            while self.queue and (room := room - len(self.queue[0].view)) >= 0:
                batches.append(self.queue.popleft())
        self.in_flight.append(batches)
        return batches

    def acknowledge(self) -> Sequence[OutboundBatch]:
        """Remove and return the oldest request in flight: the broker wrote it at the predicted offset."""
        batches = self.in_flight.popleft()
        newest_ms = batches[-1].newest_ms
        self._newest_ms = newest_ms if newest_ms >= 0 else None
        return batches

    def displace(self, by: int) -> None:
        """Expect everything that is in flight or queued so many offsets later."""
        for each in chain(*self.in_flight, self.queue):
            each.destination_offset += by
        self.next_offset += by

    def send_one_by_one(self, refused: Sequence[OutboundBatch]) -> None:
        """Give each batch up to the end of a refused request a request of its own."""
        self.one_by_one_until = refused[-1].source_end

    def send_fewer(self) -> None:
        """Halve the bytes of a request with several batches."""
        self.together_bytes //= 2
