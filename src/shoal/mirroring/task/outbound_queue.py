"""
The batches of one partition on their way out: queued in lots, then in flight.

A batch is stamped when it is queued, for the destination offset behind everything that is
queued before it. So the offset that a response must have is known before the request is sent
(docs/decisions, 0002). Batches leave the queue in their order, and requests are answered in
the order in which they were sent: the oldest request in flight is the one that a response is for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

from ...records import PlainRun, stamp
from ..model.position import MirrorPosition, ProducerIdentity
from .lot import Lot, Piece, lot_of_batch, lot_of_run
from .outbound import OutboundBatch

__all__ = ["OutboundQueue"]

#: The most bytes of a partition in one request. A broker checks and decompresses them under the
#: partition's lock, and more made it no faster. No record set may be larger than a segment.
TOGETHER_BYTES = 1024 * 1024

#: Before the first alignment nothing is queued.
_NOBODY = ProducerIdentity(-1, -1)


class OutboundQueue:
    """
    The queue of one partition, and its requests in flight.

    Attributes:
        queue: The lots that have batches to send, in the order of their offsets.
        in_flight: The pieces of lots of each request without a response; the oldest first.
        identity: The producer that the batches are stamped for.
        next_offset: The destination offset of the next batch to queue.
        landing_offset: The destination offset at which the oldest request in flight has to land.
        together_bytes: The most bytes of batches in one request, if the broker takes several.
        one_by_one_until: The source offset up to which each batch has a request of its own.
        newest_ms: A timestamp that the destination's producer state has since the alignment; None before the
            first acknowledgement, and if the last acknowledged batch has none.

    """

    def __init__(self) -> None:
        self.queue: deque[Lot] = deque()
        self.in_flight: deque[Sequence[Piece]] = deque()
        self.identity = _NOBODY
        self.next_offset = -1
        self.landing_offset = -1
        self.together_bytes = TOGETHER_BYTES
        self.one_by_one_until = -1
        self.newest_ms: int | None = None

    def keep_limits_of(self, other: OutboundQueue) -> None:
        """Send as much at a time as another queue did."""
        self.together_bytes, self.one_by_one_until = other.together_bytes, other.one_by_one_until

    def put(self, outgoing: OutboundBatch) -> Lot:
        """Stamp a batch for the place behind all that is queued, and queue it."""
        identity = self.identity
        sequence = identity.sequence(self.next_offset)
        stamp(outgoing.batch, identity.producer_id, identity.producer_epoch, sequence)
        outgoing.destination_offset = self.next_offset
        self.next_offset += outgoing.records_count
        lot = lot_of_batch(outgoing)
        self.queue.append(lot)
        return lot

    def put_run(self, record_set: memoryview, start: int, run: PlainRun, source_start: int) -> Lot:
        """Queue plain batches, stamped for :attr:`next_offset`; see :func:`lot_of_run`."""
        lot = lot_of_run(record_set, start, run, source_start, self.next_offset)
        self.next_offset += run.records_count
        self.queue.append(lot)
        return lot

    def rewind(self, position: MirrorPosition) -> None:
        """Forget the queue; the next batch is for a position's offset. Nothing is in flight."""
        self.queue.clear()
        self.identity = position.identity
        self.next_offset = self.landing_offset = position.destination_offset

    def clear(self) -> None:
        """Forget the queue and all requests in flight: their outcome is unknown, and so is the log end."""
        self.queue.clear()
        self.in_flight.clear()
        self.newest_ms = None

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
        if self.newest_ms is None or self.newest_ms <= forgotten_up_to_ms:
            return False
        for pieces in self.in_flight:
            for lot, first, end in pieces:
                # As a rule the whole lot is young, and no batch of it has to be looked at.
                if lot.oldest_ms <= forgotten_up_to_ms and any(
                    entry[2] <= forgotten_up_to_ms for entry in lot.entries[first:end]
                ):
                    return False
        return True

    @property
    def has_several(self) -> bool:
        """Whether the next request could have several batches."""
        queue = self.queue
        return (
            bool(queue)
            and (len(queue) > 1 or queue[0].batches_count - queue[0].sent > 1)
            and self._goes_together(queue[0])
        )

    def _goes_together(self, lot: Lot) -> bool:
        return (
            lot.source_start >= self.one_by_one_until
            or lot.source_start_of(lot.sent) >= self.one_by_one_until
        )

    def next_to_send(self, *, multi_batch: bool) -> Sequence[memoryview]:
        """
        Move the next batch from the queue into flight; with ``multi_batch``, all that one request can have.

        Returns:
            The bytes of the batches.

        """
        if multi_batch:
            return self._multi_batch_to_send()
        lot = self.queue[0]
        view = lot.send_next()
        end = lot.sent
        if end == lot.batches_count:
            self.queue.popleft()
        self.in_flight.append(((lot, end - 1, end),))
        return (view,)

    def _multi_batch_to_send(self) -> Sequence[memoryview]:
        room = self.together_bytes
        pieces: list[Piece] = []
        views = []
        while self.queue:
            lot = self.queue[0]
            first = lot.sent
            view = lot.send_within(room, at_least_one=not pieces)
            if lot.sent == first:
                break
            room -= len(view)
            pieces.append((lot, first, lot.sent))
            views.append(view)
            if lot.sent < lot.batches_count:
                break
            self.queue.popleft()
        self.in_flight.append(pieces)
        return views

    def acknowledge(self) -> Sequence[Piece]:
        """Remove and return the oldest request in flight: it landed at :attr:`landing_offset`."""
        pieces = self.in_flight.popleft()
        for lot, _, end in pieces:
            self.landing_offset += lot.land(end)
            self.newest_ms = lot.newest_ms
        return pieces

    def land(self, count: int) -> Sequence[Piece]:
        """Take the first queued batches as sent and landed, with nothing in flight; return them."""
        pieces = self._send_first(count)
        for lot, _, end in pieces:
            self.landing_offset += lot.land(end)
            self.newest_ms = lot.newest_ms
        return pieces

    def put_in_flight(self, count: int) -> None:
        """Take the first queued batches as sent in one request."""
        self.in_flight.append(self._send_first(count))

    def _send_first(self, count: int) -> Sequence[Piece]:
        pieces: list[Piece] = []
        while count:
            lot = self.queue[0]
            first, end = lot.sent, min(lot.sent + count, lot.batches_count)
            lot.send_up_to(end)
            pieces.append((lot, first, end))
            count -= end - first
            if end == lot.batches_count:
                self.queue.popleft()
        return pieces

    def displace(self, by: int) -> None:
        """Expect everything that is in flight or queued so many offsets later; the sequences go on."""
        flying = (lot for pieces in self.in_flight for lot, _, _ in pieces)
        for lot in dict.fromkeys(chain(flying, self.queue)):
            lot.displace(by)
        self.identity = self.identity.moved(by)
        self.next_offset += by
        self.landing_offset += by

    def send_one_by_one(self, refused: Sequence[OutboundBatch]) -> None:
        """Give each batch up to the end of a refused request a request of its own."""
        self.one_by_one_until = refused[-1].source_end

    def send_fewer(self) -> None:
        """Halve the bytes of a request with several batches."""
        self.together_bytes //= 2
