"""Values of the model of the copy path: both clusters, the group, the attempts, and the events."""

from __future__ import annotations

import enum
from functools import cache
from typing import NamedTuple

from .position import Position, Record

__all__ = [
    "FOREIGN",
    "GAP",
    "Attempt",
    "Batch",
    "Commit",
    "Events",
    "Group",
    "Log",
    "Source",
    "State",
    "Stop",
]

#: A source offset without a record to mirror: a marker, an aborted record, a hole, or a skipped record.
GAP = -1

#: The number of a producer's last batches that a broker remembers; as many may be in flight (Kafka: 5).
REMEMBERED = 2


class Stop(enum.Enum):
    """The documented reasons for which an attempt stops."""

    FOREIGN = "foreign records"
    NOT_EMPTY = "no position, and the copy is not empty"
    UNKNOWN_WRITER = "retention deleted all, and the broker does not know our producer"
    DESTINATION_LOSS = "the copy ends before the position"
    SOURCE_RESET = "the source no longer has what was copied"
    SOURCE_RETENTION = "the source deleted what was not copied"


class Source(NamedTuple):
    """The source.

    Attributes:
        slots: For each offset the leader epoch of its record, or :data:`GAP`.
        start: The log's start.
        epoch: The leader's epoch.
    """

    slots: tuple[int, ...]
    start: int = 0
    epoch: int = 0

    @cache  # noqa: B019 -- a search has few sources
    def records_from(self, offset: int) -> tuple[Record, ...]:
        first = max(offset, self.start)
        return tuple(
            Record(each, epoch) for each, epoch in enumerate(self.slots) if each >= first and epoch != GAP
        )

    def end_of(self, epoch: int) -> int:
        """Return what OffsetForLeaderEpoch returns."""
        later = (offset for offset, each in enumerate(self.slots) if each > epoch)
        return next(later, len(self.slots))


class Batch(NamedTuple):
    """A batch in a request or at the copy; a foreign one has one record, and no sequence."""

    producer: int
    sequence: int
    records: tuple[Record, ...]

    def __str__(self) -> str:
        if self == FOREIGN:
            return "[foreign]"
        return "[" + " ".join(str(record.offset) for record in self.records) + "]"


FOREIGN = Batch(-1, -1, (Record(-1, -1),))


@cache
def size_of(batches: tuple[Batch, ...]) -> int:
    """Return the number of records, which is the offset after them."""
    return sum(len(batch.records) for batch in batches)


class Log(NamedTuple):
    """The copy at its leader.

    Attributes:
        batches: All batches from offset 0 on, also deleted ones.
        replicated: Number of batches that the follower has.
        deleted: Number of batches that retention has deleted.
        forgotten: Number of batches whose producer the leader no longer remembers.
        epoch: Number of unclean elections so far.
    """

    batches: tuple[Batch, ...] = ()
    replicated: int = 0
    deleted: int = 0
    forgotten: int = 0
    epoch: int = 0

    @property
    def end(self) -> int:
        return size_of(self.batches)

    def remembered(self, producer: int) -> tuple[tuple[int, Batch], ...]:
        """Return a producer's batches that the leader remembers, with their offsets."""
        return tuple(
            (size_of(self.batches[:number]), batch)
            for number, batch in enumerate(self.batches)
            if number >= self.forgotten and batch.producer == producer
        )

    def handle(self, batch: Batch) -> tuple[Log, int | None]:
        """Append a batch, or recognise it; None instead of its offset if it is refused."""
        recent = self.remembered(batch.producer)
        for offset, known in recent[-REMEMBERED:]:
            if (known.sequence, len(known.records)) == (batch.sequence, len(batch.records)):
                return self, offset
        if recent and recent[-1][1].sequence + len(recent[-1][1].records) != batch.sequence:
            return self, None
        return self._replace(batches=(*self.batches, batch)), self.end

    def handle_at_end(self, batch: Batch) -> tuple[Log, int | None]:
        """Do as a broker that accepts several batches in a request: the sequence must be the log's end."""
        for number, written in enumerate(self.batches):
            if written == batch and size_of(self.batches[:number]) == batch.sequence:
                return self, batch.sequence
        return self.handle(batch) if batch.sequence == self.end else (self, None)

    def cut_to(self, number: int) -> Log:
        """Return the log of a new leader, which has only so many batches."""
        return self._replace(
            batches=self.batches[:number],
            replicated=number,
            deleted=min(self.deleted, number),
            forgotten=min(self.forgotten, number),
        )


class Commit(NamedTuple):
    """A commit on its way.

    Attributes:
        generation: The generation that sent it.
        position: The position.
        attempt: The number of the attempt that waits for the answer; None if nothing waits.
    """

    generation: int
    position: Position
    attempt: int | None


class Group(NamedTuple):
    """The group at the source's coordinator."""

    committed: Position | None = None
    generation: int = 0
    pending: tuple[Commit, ...] = ()

    def next_generation(self) -> Group:
        """Begin a new generation; if nothing waits for an older commit, the refusal has no effect."""
        waited = tuple(each for each in self.pending if each.attempt is not None)
        return self._replace(generation=self.generation + 1, pending=waited)


class Attempt(NamedTuple):
    """A process that copies the partition.

    Attributes:
        number: Its number; also its producer id, if it begins a copy.
        generation: The generation with which it commits.
        position: The map from the last acknowledged batch on, with the batches that are sent or queued;
            None if the attempt has to align.
        acked: The last committed map that the attempt may rely on.
        fetched: The source offset behind the last fetched record.
        queue: Records that were fetched, as batches.
        wire: Requests in flight.
        is_written: Whether the first of them waits for the follower.
        is_established: Whether a batch was acknowledged since the alignment.
        source_epoch: The source's leader epoch at the alignment.
        log_epoch: The copy's :attr:`Log.epoch` at the alignment.
        is_committing: Whether a commit is under way.
        doubts: The maps whose commit had an unknown outcome: each may still replace the committed one.
        stopped: Why it gave up.
    """

    number: int = 0
    generation: int = 0
    position: Position | None = None
    acked: Position | None = None
    fetched: int = 0
    queue: tuple[tuple[Record, ...], ...] = ()
    wire: tuple[Batch, ...] = ()
    is_written: bool = False
    is_established: bool = False
    source_epoch: int = 0
    log_epoch: int = 0
    is_committing: bool = False
    doubts: tuple[Position, ...] = ()
    stopped: Stop | None = None

    @property
    def sent_end(self) -> int:
        """Return the destination offset behind the requests in flight."""
        assert self.position is not None
        return self.position.here.destination + size_of(self.wire)

    @property
    def planned_end(self) -> int:
        return self.sent_end + sum(len(records) for records in self.queue)

    def unaligned(self) -> Attempt:
        """Forget all but the maps that the group may have, and the commit under way."""
        return Attempt(
            self.number,
            self.generation,
            acked=self.acked,
            is_committing=self.is_committing,
            doubts=self.doubts,
        )


class Events(NamedTuple):
    """How often each event may happen."""

    crashes: int = 0
    takeovers: int = 0
    rebalances: int = 0
    unknown_commits: int = 0
    disconnects: int = 0
    refusals: int = 0
    cleanings: int = 0
    source_deletions: int = 0
    source_appends: int = 0
    source_elections: int = 0
    unclean_source_elections: int = 0
    copy_elections: int = 0
    unclean_copy_elections: int = 0
    forgettings: int = 0
    foreign: int = 0
    copy_deletions: int = 0

    def less(self, event: str) -> Events:
        return self._replace(**{event: getattr(self, event) - 1})


class State(NamedTuple):
    """Everything.

    Attributes:
        source: The source.
        log: The copy.
        group: The committed position.
        attempts: The living attempts; the last one is in charge.
        late: Requests of closed connections that may still arrive, in their order.
        left: The events that may still happen.
    """

    source: Source
    log: Log
    group: Group
    attempts: tuple[Attempt, ...]
    late: tuple[Batch, ...]
    left: Events

    @property
    def newest(self) -> Attempt:
        return self.attempts[-1]

    def with_attempt(self, attempt: Attempt) -> State:
        """Replace the attempt of the same number."""
        return self._replace(
            attempts=tuple(attempt if each.number == attempt.number else each for each in self.attempts)
        )

    def after(self, event: str) -> State:
        return self._replace(left=self.left.less(event))
