"""
How far a partition is: what is queued for the destination, what has landed, and the map that leads there.

A batch is stamped when it is queued, for the destination offset behind everything that is queued before it.
So the offset that an answer must have is known before the request is sent (docs/architecture.md). Batches
land in their order, and move the position.

A batch may go out only if each map that the group may hold leads to its records: the one that was committed
last, and those whose commit has an unknown outcome. So whichever of them the next task finds, it looks up the
right place (docs/architecture.md, PLAN and DOUBT).

As far as the batches of a fetch response are plain, they are one lot: a view of the fetch buffer, and an
index that has the size and the records of each. So a batch costs no object. A rebuilt or joined batch is a
lot of one, with memory of its own.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from ...client.lot import Lot as LotToSend
from ...records import ENTRY, Decision, RecordBatch, stamp
from ...records.batch import DELETE_HORIZON
from ...topic_partition import TopicPartition
from ..model.acknowledged import add_run
from ..model.offset_map import Stretch
from ..model.position import MirrorPosition, ProducerIdentity
from ..model.ranges import OPEN_END
from ..model.reports import Counters
from ..model.runs import Run

__all__ = ["Head", "Outgoing", "Progress", "count_runs"]

#: The most bytes of a partition in one request. A broker checks and decompresses them under the
#: partition's lock, and more made it no faster. No record set may be larger than a segment.
TOGETHER_BYTES = 1024 * 1024

#: Larger than any batch.
NO_LIMIT = 2**31

#: The most runs ahead in a commit: one has six to nine characters of its metadata. A batch may add a hundred
#: more. The next commit has the others.
_MOST_RUNS = 200


class Outgoing(NamedTuple):
    """
    A batch for the destination, before it is stamped.

    Attributes:
        spans: The runs of source offsets that its records have, each as first and end.
        leader_epoch: The source's leader epoch of its records.
        decision: The decision about the fetched batch.

    """

    batch: RecordBatch
    spans: Sequence[tuple[int, int]]
    leader_epoch: int
    decision: Decision


class Head(NamedTuple):
    """
    The first batches of a queue, as a broker refused them.

    Attributes:
        batches: Their number.
        size: Their bytes.
        source_start: The source offset of the first record.
        source_end: The source offset behind the last one.
        leader_epoch: The source's leader epoch of the last record.
        decision: The decision about the first batch.

    """

    batches: int
    size: int
    records_count: int
    source_start: int
    source_end: int
    leader_epoch: int
    decision: Decision


class _Lot(NamedTuple):
    """Queued batches that lie one behind the other, with an :data:`~shoal.records.ENTRY` for each."""

    view: memoryview
    entries: bytes
    records_count: int
    decision: Decision

    @property
    def batches_count(self) -> int:
        return len(self.entries) // ENTRY.size

    def one_by_one(self) -> Iterator[_Lot]:
        """Yield each batch as a lot of its own."""
        at = 0
        for size, records, newest_ms, leader_epoch in ENTRY.iter_unpack(self.entries):
            entry = ENTRY.pack(size, records, newest_ms, leader_epoch)
            yield _Lot(self.view[at : at + size], entry, records, self.decision)
            at += size


class Progress:
    """
    The progress of one partition.

    Attributes:
        next_offset: The destination offset of the next batch to queue.
        source_leader_epoch: The epoch of the source's leader. Records whose batches have none count as of
            this one: should the leader's log be cut, it ends before them.
        newest_ms: A timestamp that the destination's producer state has since the alignment; None before the
            first acknowledgement, and if the last acknowledged batch has none.
        committed: The map that this process committed last; None if the group may have another.

    """

    def __init__(self, *, has_map: bool) -> None:
        """
        Begin without a position.

        Args:
            has_map: Whether a map is committed that leads to everything that is queued. Not so if other
                programs may write to the partition.

        """
        self._position: MirrorPosition | None = None
        #: The runs that were queued since the map was asked for: many at a time lead it on.
        self._ahead: list[tuple[Run, int]] = []
        self.next_offset = -1
        self.source_leader_epoch = -1
        self.newest_ms: int | None = None
        self.committed: MirrorPosition | None = None
        self._has_map = has_map
        self._most_runs = _MOST_RUNS
        #: Maps whose commit has an unknown outcome, and the generation that sent them; a later one refuses
        #: them.
        self._doubts: list[MirrorPosition] = []
        self._doubts_since = -1
        self._queue: deque[_Lot] = deque()
        #: The most bytes to send and to make at once, before a source offset.
        self._less = NO_LIMIT, -1

    @property
    def position(self) -> MirrorPosition | None:
        """
        The position up to which everything is acknowledged, and the map from there on.

        None before the first alignment.
        """
        if self._ahead and self._position is not None:
            self._position = self._position.leading_to(self._ahead)
            self._ahead.clear()
        return self._position

    @position.setter
    def position(self, position: MirrorPosition) -> None:
        self._position = position
        self._ahead.clear()

    @property
    def here(self) -> MirrorPosition:
        """The position of an aligned partition."""
        assert self.position is not None, "it is aligned"
        return self.position

    @property
    def identity(self) -> ProducerIdentity:
        """The producer that writes from the position on."""
        assert self._position is not None, "it is aligned"
        return self._position.identity

    # Queueing

    @property
    def has_queued(self) -> bool:
        """Whether something is queued that has not landed."""
        return bool(self._queue)

    @property
    def has_room(self) -> bool:
        """
        Whether a commit's metadata have room for one more run, or the next batch needs none.

        Behind an alignment the map may be full, and lead to batches that were never sent.
        """
        assert self._position is not None, "it is aligned"
        if len(self._position.plan) + len(self._ahead) < self._most_runs:
            return True
        plan = self.here.plan
        return len(plan) < self._most_runs or plan[-1].destination >= self.next_offset

    @property
    def most_runs(self) -> int:
        """The most runs that a commit's metadata have room for."""
        return self._most_runs

    def plan_less(self) -> None:
        """Plan fewer runs at a time: the group's coordinator takes no such long metadata."""
        self._most_runs = max(1, self._most_runs // 2)
        # Nothing was sent by a run that no committed map has.
        committed = [run.destination for each in self._in_force if each is not None for run in each.plan]
        kept = sum(run.destination <= max(committed, default=-1) for run in self.here.plan)
        self.position = replace(self.here, plan=self.here.plan[: max(kept, self._most_runs)])

    def put(self, each: Outgoing) -> None:
        """Stamp a batch for the place behind all that is queued, and queue it."""
        header, view = each.batch
        identity = self.identity
        sequence = identity.sequence(self.next_offset)
        stamp(each.batch, identity.producer_id, identity.producer_epoch, sequence)
        time_ms = header.max_timestamp
        if header.is_log_append_time:
            # The first record's create time is known, unless compaction wrote its horizon there (KIP-534).
            time_ms = -1 if header.attributes & DELETE_HORIZON else min(header.base_timestamp, time_ms)
        index = ENTRY.pack(len(view), header.records_count, time_ms, each.leader_epoch)
        self._queue.append(_Lot(view, index, header.records_count, each.decision))
        for start, end in each.spans:
            self._lead_to(start, end - start, each.leader_epoch)

    def put_run(
        self, batches: memoryview, records_count: int, entries: bytes, source_start: int, decision: Decision
    ) -> int:
        """
        Queue batches that are stamped for :attr:`next_offset`, one behind the other.

        Args:
            batches: Their bytes; there is at least one.
            records_count: The number of records in all of them.
            entries: An :data:`~shoal.records.ENTRY` for each.
            source_start: The source offset of the first record; the others follow without a gap.

        Returns:
            The leader epoch of the last batch.

        """
        self._queue.append(_Lot(batches, entries, records_count, decision))
        last_epoch: int = ENTRY.unpack_from(entries, len(entries) - ENTRY.size)[3]
        if ENTRY.unpack_from(entries)[3] == last_epoch:
            self._lead_to(source_start, records_count, last_epoch)
            return last_epoch
        for _, records, _, leader_epoch in ENTRY.iter_unpack(entries):
            self._lead_to(source_start, records, leader_epoch)
            source_start += records
        return last_epoch

    def _lead_to(self, source: int, records: int, leader_epoch: int) -> None:
        """Let the map lead to the next records, which follow one another without a gap."""
        begin, self.next_offset = self.next_offset, self.next_offset + records
        self._ahead.append((Run(begin, source, self._known_epoch(leader_epoch)), self.next_offset))

    def _known_epoch(self, leader_epoch: int) -> int:
        return leader_epoch if leader_epoch >= 0 else self.source_leader_epoch

    def rewind(self) -> None:
        """Forget the queue; the next batch is for the position."""
        self._queue.clear()
        self.next_offset = self.here.destination_offset

    def lose_track(self) -> None:
        """Forget the queue: the outcome of what was sent is unknown, and so is the log end."""
        self._queue.clear()
        self.newest_ms = None

    # Sending

    def most_bytes_at(self, source_offset: int) -> int:
        """Return the most bytes to send and to make at once at an offset."""
        less_bytes, until = self._less
        return less_bytes if source_offset < until else NO_LIMIT

    def send_less(self, refused: Head, *, always: bool) -> None:
        """Send and make at most half of what was refused, up to its end, or from now on."""
        most_bytes = min(refused.size, self.most_bytes_at(refused.source_start)) // 2
        self._less = most_bytes, OPEN_END if always else refused.source_end

    def to_send(
        self, partition: TopicPartition, topic_id: uuid.UUID | None, *, multi_batch: bool
    ) -> LotToSend:
        """Return all that is queued as one lot; nothing is copied."""
        most_bytes = max(1, min(TOGETHER_BYTES, self.most_bytes_at(self.here.source_offset)))
        return LotToSend(
            partition,
            [lot.view for lot in self._queue],
            b"".join(lot.entries for lot in self._queue),
            self.here.destination_offset,
            self.newest_ms,
            most_bytes if multi_batch else 0,
            topic_id,
            not self._has_map,
        )

    def head(self, batches: int) -> Head:
        """Return the first batches of the queue."""
        entries = (each for lot in self._queue for each in ENTRY.iter_unpack(lot.entries))
        sizes, records, *_ = zip(*islice(entries, batches), strict=True)
        here, count = self.here, sum(records)
        end = here.destination_offset + count
        last = here.run_at(end - 1)
        start = here.run_at(here.destination_offset).source_at(here.destination_offset)
        decision = self._queue[0].decision
        return Head(batches, sum(sizes), count, start, last.source_at(end), last.leader_epoch, decision)

    # Landing

    def land(self, batches: int, counters: Counters) -> None:
        """Take the first batches as landed at their offsets: count them, and move behind them."""
        end = self.here.destination_offset
        while batches:
            lot = self._queue.popleft()
            if lot.batches_count > batches:
                self._queue.extendleft(reversed(list(lot.one_by_one())))
                continue
            batches -= lot.batches_count
            end += lot.records_count
            newest_ms: int = ENTRY.unpack_from(lot.entries, len(lot.entries) - ENTRY.size)[2]
            self.newest_ms = newest_ms if newest_ms >= 0 else None
            counters.decisions[lot.decision] += lot.batches_count
            counters.batches += lot.batches_count
            counters.records += lot.records_count
            counters.bytes_out += len(lot.view)
        count_runs(self.here, self.here.destination_offset, end, counters)
        after = self.here.at(end)
        # Other programs may write between two batches: a gap between them has no exact place.
        self.position = after if self._has_map else replace(after, milestones=self.here.milestones)

    def pass_over(self, source_offset: int, leader_epoch: int) -> None:
        """Move behind source offsets of which nothing is left to send, and after this leader epoch."""
        here = self.here
        if source_offset > here.source_offset or leader_epoch >= 0:
            self.position = here.passing_over(source_offset, self._known_epoch(leader_epoch))

    def displace(self, base_offset: int) -> None:
        """Expect all that is queued from another offset on, behind the records of other programs."""
        here = self.here
        by = base_offset - here.destination_offset
        plan = tuple(run._replace(destination=run.destination + by) for run in here.plan)
        self.position = here.moved(
            Stretch.REPEATED,  # a request of a dead process may land so late
            destination_offset=base_offset,
            identity=here.identity.moved(by),
            plan=plan,
        )
        self.next_offset += by

    # Commits

    def to_commit(self) -> MirrorPosition | None:
        """Make the position the newest milestone of its offset map; return what is to be committed."""
        if self.position is None:
            return None
        self.position = self.position.with_milestone()
        return self.position if self._has_map else replace(self.position, plan=())

    def doubt(self, position: MirrorPosition, generation: int) -> None:
        """Keep a map whose commit has an unknown outcome, and the generation that sent it."""
        self.end_doubts(generation)
        if position not in self._doubts:
            self._doubts.append(position)

    def end_doubts(self, generation: int) -> None:
        """Forget the commits that the present generation refuses."""
        if generation != self._doubts_since:
            self._doubts, self._doubts_since = [], generation

    @property
    def doubts(self) -> int:
        """The number of maps whose commit has an unknown outcome."""
        return len(self._doubts)

    def is_planned(self, generation: int) -> bool:
        """Whether each map that the group may have in a generation leads to all that is queued."""
        self.end_doubts(generation)
        if not self._queue or not self._has_map:
            return True
        here = self.here
        return all(
            each is not None and here.leads_as(each, here.destination_offset, self.next_offset)
            for each in self._in_force
        )

    @property
    def _in_force(self) -> Sequence[MirrorPosition | None]:
        """The maps that the group may have; None for one that is not known."""
        return [self.committed, *self._doubts]


def count_runs(position: MirrorPosition, begin: int, end: int, counters: Counters) -> None:
    """Count the records between two destination offsets as acknowledged; a position leads to them."""
    if begin < end:
        pieces = position.pieces(begin, end)
        for run, behind in zip(pieces, [*(each.destination for each in pieces[1:]), end], strict=True):
            add_run(counters.runs, run.source, run.source_at(behind), run.destination)
