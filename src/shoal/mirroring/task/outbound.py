"""
The batches of one partition on their way out, queued in lots, and the map that leads to them.

A batch is stamped when it is queued, for the destination offset behind everything that is queued before it.
So the offset that an answer must have is known before the request is sent (docs/architecture.md). Batches
land in their order, and move the map's position.
"""

from __future__ import annotations

import uuid
from collections import deque

from ...client.lot import Lot as LotToSend
from ...records import PlainRun, RecordBatch, read_header, stamp
from ...topic_partition import TopicPartition
from ..model.offset_map import Stretch
from ..model.reports import Counters
from .lot import Lot
from .moving_map import MovingMap

__all__ = ["Outbound"]

#: The most bytes of a partition in one request. A broker checks and decompresses them under the
#: partition's lock, and more made it no faster. No record set may be larger than a segment.
TOGETHER_BYTES = 1024 * 1024


class Outbound:
    """
    The queue of one partition.

    Attributes:
        queue: The lots that have not landed, in the order of their offsets.
        next_offset: The destination offset of the next batch to queue.
        apart_until: The source offset up to which each batch goes as it came, in a request of its own.
        newest_ms: A timestamp that the destination's producer state has since the alignment; None before the
            first acknowledgement, and if the last acknowledged batch has none.

    """

    def __init__(self, map_: MovingMap, *, allows_other_writers: bool) -> None:
        """
        Begin with an empty queue.

        Args:
            map_: The partition's map. It leads to everything that is queued, unless other programs may write
                to the partition.

        """
        self.queue: deque[Lot] = deque()
        self.next_offset = -1
        self.apart_until = -1
        self.newest_ms: int | None = None
        self._map = map_
        self._allows_other_writers = allows_other_writers

    # Queueing

    def put(self, lot: Lot) -> None:
        """Stamp a batch for the place behind all that is queued, and queue it."""
        identity = self._map.identity
        batch = RecordBatch(read_header(lot.view), lot.view)
        stamp(batch, identity.producer_id, identity.producer_epoch, identity.sequence(self.next_offset))
        self._append(lot)

    def put_run(self, record_set: memoryview, start: int, run: PlainRun, source_start: int) -> Lot:
        """
        Queue plain batches that a walk has stamped for :attr:`next_offset`; it found at least one.

        Args:
            record_set: The bytes that contain them.
            start: The position of the first.
            run: The walk.
            source_start: The source offset of the first record.

        """
        source_end = source_start + run.records_count
        lot = Lot(record_set[start : run.end], run.entries, run.records_count, source_start, source_end)
        self._append(lot)
        return lot

    def _append(self, lot: Lot) -> None:
        lot.destination_offset = self.next_offset
        self.queue.append(lot)
        self.next_offset += lot.records_count
        if not self._allows_other_writers:
            for run, end in lot.runs():
                self._map.lead_to(run, end)

    def rewind(self) -> None:
        """Forget the queue; the next batch is for the map's position."""
        self.queue.clear()
        self.next_offset = self._map.destination_offset

    def lose_track(self) -> None:
        """Forget the queue: the outcome of what was sent is unknown, and so is the log end."""
        self.queue.clear()
        self.newest_ms = None

    # Sending

    @property
    def has_several(self) -> bool:
        """Whether the next request could have several batches."""
        queue = self.queue
        is_several = len(queue) > 1 or bool(queue and queue[0].batches_count > 1)
        return is_several and queue[0].source_start >= self.apart_until

    def to_send(
        self, partition: TopicPartition, topic_id: uuid.UUID | None, *, multi_batch: bool
    ) -> LotToSend:
        """Return all that is queued as one lot; nothing is copied."""
        return LotToSend(
            partition,
            [lot.view for lot in self.queue],
            b"".join(lot.index for lot in self.queue),
            self._map.destination_offset,
            self.newest_ms,
            TOGETHER_BYTES if multi_batch else 0,
            topic_id,
            self._allows_other_writers,
        )

    def first(self, batches: int) -> list[Lot]:
        """Return the first batches, each as a lot of its own, for decisions about one of them."""
        found: list[Lot] = []
        for lot in self.queue:
            while lot.batches_count > 1 and len(found) < batches:
                first, lot = lot.split(1)
                found.append(first)
            if len(found) >= batches:
                break
            found.append(lot)
        return found

    def land(self, batches: int, counters: Counters) -> None:
        """Take the first batches as landed at their offsets: count them, and move the map behind them."""
        while batches:
            lot = self.queue.popleft()
            if lot.batches_count > batches:
                lot, rest = lot.split(batches)
                self.queue.appendleft(rest)
            batches -= lot.batches_count
            lot.count(counters)
            if not batches:
                self.newest_ms = lot.newest_ms
            self._map.land(lot.landed_end())

    def displace(self, by: int) -> None:
        """Expect all that is queued so many offsets later, behind the records of other programs."""
        before = self._map.get()
        assert before is not None, "it is aligned"
        self._map.put(
            before.moved(
                Stretch.REPEATED,  # a request of a dead process may land so late
                destination_offset=before.destination_offset + by,
                identity=before.identity.moved(by),
                last_batch=None,
            )
        )
        self.next_offset += by
        for lot in self.queue:
            lot.destination_offset += by
