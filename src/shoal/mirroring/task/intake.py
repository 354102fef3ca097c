"""
From a fetched record set to decided, stamped batches in the queue, for one partition.

Plain batches are stamped in one walk, and queued as one lot. For any other batch the header decides: it is
copied, dropped, or handed to the rebuilder, which crops, converts or joins it. Everything is stamped for
the place behind all that is queued, in the fetch buffer itself: the queue holds views of it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TypedDict

from ...client.config import IsolationLevel
from ...protocol.fetch import FetchedPartition
from ...records import (
    ENTRY,
    AbortedTransactions,
    Codec,
    Decision,
    Joined,
    OffsetsGoBack,
    RecordBatch,
    Scan,
    Walked,
    compressed,
    join_plain,
    split,
    stamp_plain,
)
from ..model.copy_options import CopySettings
from ..model.reports import Counters
from .join_memory import JoinMemory
from .progress import NO_LIMIT, Outgoing, Progress
from .rebuilder import Rebuilder, as_it_came

__all__ = ["Intake"]

#: The most bytes that are joined natively at a time: a response may expand to many more.
_JOINED_BYTES = 16 * 1024 * 1024

#: The most bytes of new batches in a slice of a response, for the same reason. The last one may exceed it.
MADE_BYTES = 64 * 1024 * 1024


class _Place(TypedDict):
    """The place of the next batch at both ends, and which ones are plain: see :func:`.stamp_plain`."""

    first_offset: int
    end_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    append_time: bool


class Intake:
    """
    Decides about the fetched batches of one partition, and queues those that go out.

    Attributes:
        fetch_offset: The next source offset to fetch; ahead of the position by all queued or in flight.
        source_leader_epoch: The source's leader epoch of the last batch before ``fetch_offset``.
        taken_bytes: The size of the whole batches that the last :meth:`take` has taken.

    """

    def __init__(self, settings: CopySettings, progress: Progress) -> None:
        """Prepare to queue batches, from :meth:`rewind` on."""
        self.fetch_offset = -1
        self.source_leader_epoch = -1
        self._dropped: deque[tuple[int, Decision, int]] = deque()
        self.taken_bytes = 0
        self._progress = progress
        self._rest: tuple[memoryview, AbortedTransactions | None] | None = None
        self._log_end = -1
        self._memory = JoinMemory()
        self._room = MADE_BYTES
        #: Whether stamped batches were left out, behind which nothing may be taken: they are fetched again.
        self._is_cut = False
        self._rebuilder = Rebuilder(settings, progress)
        self._keep_append_time = settings.keep_append_time
        joining = settings.joining
        self._decodes_all = joining.everything
        self._join_below_bytes = NO_LIMIT if joining.everything else joining.below_bytes
        self._joined_codec = joining.codec
        self._max_decompressed_bytes = settings.max_decompressed_bytes

    def rewind(self) -> None:
        """Forget queued and gathered batches; begin again at the position. Nothing is in flight."""
        self.forget()
        self.fetch_offset = self._progress.here.source_offset
        self.source_leader_epoch = self._progress.here.source_leader_epoch
        self._progress.rewind()

    def forget(self) -> None:
        """Drop the batches gathered or counted behind the position: they are fetched again."""
        self._rest = None
        self._rebuilder.forget()
        self._dropped.clear()

    def count_dropped(self, end_offset: int, counters: Counters) -> None:
        """Count the dropped batches and offsets before a source offset, each once, by the reason."""
        while self._dropped and self._dropped[0][0] <= end_offset:
            _, decision, count = self._dropped.popleft()
            counters.decisions[decision] += count

    def receive(self, fetched: FetchedPartition, isolation_level: IsolationLevel, memory: JoinMemory) -> None:
        """Keep the partition's part of a response, and the memory to join its batches, for :meth:`take`."""
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        aborted = AbortedTransactions(fetched.aborted_transactions) if is_committed else None
        self._rest = fetched.record_set, aborted
        self._log_end = fetched.high_watermark
        self._memory = memory

    def take(self, end_offset: int) -> bool:
        """
        Decide about each received batch, stamp those that are copied or rebuilt, and queue them.

        Args:
            end_offset: The end of the range.

        Returns:
            Whether there was any whole batch.

            If a commit or memory has no room for all, there is a rest. Take it once all of this slice is
            acknowledged and committed. Behind the end of the range is none: everything up to there is dealt
            with then.

        Raises:
            CorruptBatch: A batch is damaged. Everything before ``fetch_offset`` is queued, and not the batch.
            UnsupportedBatch: A batch cannot be mirrored. The queue ends before it, too.

        """
        assert self._rest is not None
        (record_set, aborted), self._rest = self._rest, None
        self._room, self._is_cut = MADE_BYTES, False
        try:
            return self._take_batches(record_set, aborted, end_offset)
        finally:
            self._queue_gathered()

    @property
    def has_rest(self) -> bool:
        """Whether the last record set has batches that are not taken yet."""
        return self._rest is not None

    def _take_batches(
        self,
        record_set: memoryview,
        aborted: AbortedTransactions | None,
        end_offset: int,
    ) -> bool:
        scan = Scan(
            record_set,
            self.fetch_offset,
            aborted,
            end_offset=end_offset,
            log_end=self._log_end,
            keep_append_time=self._keep_append_time,
            plain=partial(self._take_run, record_set),
        )
        try:
            for decision, batch in scan:
                if self._is_cut:
                    break
                if batch is not None and not (
                    self._has_room and self._take_batch(batch, decision, end_offset)
                ):
                    self._rest = record_set[scan.position :], aborted
                    break
        except OffsetsGoBack:
            self.rewind()  # neither of the two was sent yet
            raise
        finally:
            self.taken_bytes = scan.position
        if scan.is_over:
            self.skip_gap(end_offset, self._progress.source_leader_epoch)
        return scan.position > 0 or scan.is_over or self.has_rest

    def _take_run(
        self, record_set: memoryview, at: int, end_offset: int, transactional: bool
    ) -> Walked[None] | None:
        """Stamp or join the plain batches at a place, and queue them, unless others have to come before."""
        if self._rebuilder.is_gathering or not self._has_room:
            return None
        identity = self._progress.identity
        place: _Place = {
            "first_offset": self.fetch_offset,
            "end_offset": end_offset,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "base_sequence": identity.sequence(self._progress.next_offset),
            "transactional": transactional,
            "append_time": not self._keep_append_time,
        }
        behind = self._stamp(record_set, at, place)
        return Walked(None, behind, self.fetch_offset) if behind > at else None

    def _stamp(self, record_set: memoryview, at: int, place: _Place) -> int:
        if not self._join_below_bytes:
            end, count, entries = stamp_plain(record_set, at, **place)
            self._put_run(record_set[at:end], count, entries, Decision.COPY)
            return end
        joined = None if self._decodes_all else self._join(record_set, at, place)
        if joined is None:
            return at
        codec = joined.codec if self._joined_codec is None else self._joined_codec
        if codec is Codec.NONE:
            self._memory.keep(joined.batches)
            self._put_run(joined.batches, joined.records_count, joined.entries, Decision.JOIN)
            return joined.end
        kept = self._cut(joined.entries)
        for batch, entry in zip(split(joined.batches), ENTRY.iter_unpack(kept), strict=not self._is_cut):
            _, records_count, _, self.source_leader_epoch = entry
            span = self.fetch_offset, self.fetch_offset + records_count
            each = compressed(batch, codec)
            self._put_made(Outgoing(each, [span], self.source_leader_epoch, Decision.JOIN))
            self.fetch_offset = span[1]
        return joined.end

    def _join(self, record_set: memoryview, at: int, place: _Place) -> Joined | None:
        below_bytes = min(self._join_below_bytes, self._most_bytes)
        most_bytes = min(self._max_decompressed_bytes, _JOINED_BYTES)
        if self._joined_codec is Codec.NONE:
            most_bytes = min(most_bytes, self._most_bytes)
        room = self._memory.room(most_bytes)
        return join_plain(record_set, at, **place, below_bytes=below_bytes, to=room)

    def _put_run(self, batches: memoryview, records_count: int, entries: bytes, decision: Decision) -> None:
        """Queue batches that were stamped for the place behind all that is queued, of not too many epochs."""
        entries = self._cut(entries)
        if self._is_cut:
            sizes, counts, *_ = zip(*ENTRY.iter_unpack(entries), strict=True)
            batches, records_count = batches[: sum(sizes)], sum(counts)
        if entries:
            start = self.fetch_offset
            self.source_leader_epoch = self._progress.put_run(
                batches, records_count, entries, start, decision
            )
            self.fetch_offset += records_count
            if decision is Decision.JOIN:
                self._room -= len(batches)

    def _cut(self, entries: bytes) -> bytes:
        """Return the first entries, of no more leader epochs than a commit has room for runs."""
        if not entries or _epoch_at(entries, 0) == _epoch_at(entries, len(entries) - ENTRY.size):
            return entries
        epochs, last_epoch = 0, None
        for number, (_, _, _, leader_epoch) in enumerate(ENTRY.iter_unpack(entries)):
            epochs += leader_epoch != last_epoch
            if epochs > self._progress.most_runs:
                self._is_cut = True
                return entries[: number * ENTRY.size]
            last_epoch = leader_epoch
        return entries

    def _put_made(self, each: Outgoing) -> None:
        self._progress.put(each)
        self._room -= len(each.batch.view)

    @property
    def _has_room(self) -> bool:
        """Whether one more batch may be queued."""
        return self._room > 0 and self._progress.has_room

    @property
    def _most_bytes(self) -> int:
        return self._progress.most_bytes_at(self.fetch_offset)

    def _take_batch(self, batch: RecordBatch, decision: Decision, end_offset: int) -> bool:
        """Take a batch; return False if there is room only for a part of it, which was taken."""
        header = batch.header
        next_offset = min(header.next_offset, end_offset)
        below_bytes = self._join_below_bytes
        if decision is Decision.COPY and header.size < (
            below_bytes if self._decodes_all else min(below_bytes, self._most_bytes)
        ):
            decision = Decision.JOIN
        if decision.is_drop:
            self._dropped.append((next_offset, decision, 1))
        elif decision is Decision.COPY:
            self._queue_gathered()
            self._progress.put(as_it_came(batch))
        else:
            for each in self._rebuilder.take(batch, decision, self.fetch_offset, end_offset):
                self._put_made(each)
                # Not the base offset: a wrapper of magic 0 or 1 has that of its last message.
                if not self._has_room and each.spans[0][0] >= self.fetch_offset:
                    # The rest of it is decoded again, as a batch that begins before the fetch offset.
                    self._rebuilder.forget()
                    self.fetch_offset = each.spans[-1][1]
                    self.source_leader_epoch = header.leader_epoch
                    return self.fetch_offset >= next_offset
        self.fetch_offset = next_offset
        self.source_leader_epoch = header.leader_epoch
        return True

    def _queue_gathered(self) -> None:
        for each in self._rebuilder.gathered():
            self._put_made(each)

    # Offsets without a batch

    def skip_gap(self, end_offset: int, leader_epoch: int, *, unproved: bool = False) -> None:
        """
        Go on at an offset, since the log has nothing before it.

        Args:
            end_offset: The offset.
            leader_epoch: The leader's own epoch.
            unproved: Whether no batch behind the gap proves it, so that its offsets are counted.

        """
        if unproved and end_offset > self.fetch_offset:
            self._dropped.append((end_offset, Decision.SKIP_GAP, end_offset - self.fetch_offset))
        self.fetch_offset = max(self.fetch_offset, end_offset)
        # No batch says in which epoch the gap lies: it may be later than that of the last batch, whose
        # epoch then ends before this offset. The leader that was asked has the log up to here in its own.
        self.source_leader_epoch = max(self.source_leader_epoch, leader_epoch)


def _epoch_at(entries: bytes, at: int) -> int:
    epoch: int = ENTRY.unpack_from(entries, at)[3]
    return epoch
