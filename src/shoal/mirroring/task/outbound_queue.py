"""
The batches of one partition on their way out, queued in lots.

A batch is stamped when it is queued, for the destination offset behind everything that is queued before it.
So the offset that an answer must have is known before the request is sent (docs/decisions, 0002). Batches
land in their order.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from ...client.lot import Lot as LotToSend
from ...records import PlainRun, stamp
from ...topic_partition import TopicPartition
from ..model.position import MirrorPosition, ProducerIdentity
from .lot import Lot, lot_of_batch, lot_of_run
from .outbound import OutboundBatch

__all__ = ["OutboundQueue"]

#: The most bytes of a partition in one request. A broker checks and decompresses them under the
#: partition's lock, and more made it no faster. No record set may be larger than a segment.
TOGETHER_BYTES = 1024 * 1024

#: Before the first alignment nothing is queued.
_NOBODY = ProducerIdentity(-1, -1)


class OutboundQueue:
    """
    The queue of one partition.

    Attributes:
        queue: The lots of which not every batch has landed, in the order of their offsets.
        identity: The producer that the batches are stamped for.
        next_offset: The destination offset of the next batch to queue.
        landing_offset: The destination offset at which the first queued batch has to land.
        together_bytes: The most bytes of batches in one request, if the broker takes several.
        one_by_one_until: The source offset up to which each batch has a request of its own.
        newest_ms: A timestamp that the destination's producer state has since the alignment; None before the
            first acknowledgement, and if the last acknowledged batch has none.

    """

    def __init__(self) -> None:
        self.queue: deque[Lot] = deque()
        self.identity = _NOBODY
        self.next_offset = -1
        self.landing_offset = -1
        self.together_bytes = TOGETHER_BYTES
        self.one_by_one_until = -1
        self.newest_ms: int | None = None

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
        """Forget the queue; the next batch is for a position's offset."""
        self.queue.clear()
        self.identity = position.identity
        self.next_offset = self.landing_offset = position.destination_offset

    def clear(self) -> None:
        """Forget the queue: the outcome of what was sent is unknown, and so is the log end."""
        self.queue.clear()
        self.newest_ms = None

    @property
    def has_several(self) -> bool:
        """Whether the next request could have several batches."""
        queue = self.queue
        return (
            bool(queue)
            and (len(queue) > 1 or queue[0].batches_count > 1)
            and queue[0].source_start >= self.one_by_one_until
        )

    def to_send(
        self,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        *,
        multi_batch: bool,
        lands_later: bool,
    ) -> LotToSend:
        """Return all that is queued, none of which has landed, as one lot; nothing is copied."""
        return LotToSend(
            partition,
            [lot.view for lot in self.queue],
            b"".join(lot.index for lot in self.queue),
            self.landing_offset,
            self.newest_ms,
            self.together_bytes if multi_batch else 0,
            topic_id,
            lands_later,
        )

    def first(self, count: int) -> list[OutboundBatch]:
        """Return the first batches that have not landed by themselves, for decisions about one of them."""
        return list(islice(self._batches(), count))

    def _batches(self) -> Iterator[OutboundBatch]:
        for lot in self.queue:
            yield from map(lot.batch, range(lot.landed, lot.batches_count))

    def land(self, count: int) -> Iterator[Lot]:
        """Take the first batches as landed at their offsets; yield each lot that has some of them."""
        while count:
            lot = self.queue[0]
            end = min(lot.landed + count, lot.batches_count)
            count -= end - lot.landed
            self.landing_offset += lot.land(end)
            self.newest_ms = lot.newest_ms
            if end == lot.batches_count:
                self.queue.popleft()
            yield lot

    def displace(self, by: int) -> None:
        """Expect everything that is queued so many offsets later; the sequences go on."""
        for lot in self.queue:
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
