"""
A model of the resume protocol: one mirrored partition, and everything that can happen to it.

The promise
-----------

The source holds the records 0, 1, 2, … . Without foreign records, the destination's
log must be a prefix of exactly that sequence: at any time, and in any order of
events. A record that is missing was lost, a record that repeats was doubled
(:meth:`Resume.violation_of`). In addition, a mirror that has reached the end of
its range must have all records at the destination.

:func:`check` visits every state that the rules and the bounds allow, breadth
first. So a failure comes with a shortest trace, and no failure means that there
is none within the bounds. Each rule of :class:`Rule` can be switched off: a rule
whose absence changes nothing is not needed. docs/resume-protocol.md has the results.

The processes
-------------

Four processes take steps, one at a time and in any order (:meth:`Resume.steps`).

- The *mirror* (:class:`Copy`) reads its committed position, asks for the log's end,
  aligns, sends batches, handles answers, and commits. It may crash between any two
  steps, except the last process. Its steps have the names of the code in
  ``shoal.mirroring.task``: ``align``, ``next_to_send``, ``acknowledge``, ``lose_track``.
- The *connection* delivers requests in their order, and the broker handles one
  at a time. It may break at any time. Then the requests on it become *zombies*.
- Each *zombie* arrives at any later time, in the order of its connection, or never.
  No client can detect which.
- The *destination* appends, replicates to a follower, elects it, and forgets its
  producers. Another program may write a record.

The data
--------

A batch is the range of source records in it, and the producer id, epoch and sequence
in its header. A log is a sequence of batches. The position of a batch is the number
of records before it. The committed position is what the group stores: a source offset,
the destination offset that belongs to it, and the writer's identity. The producer
state of a broker is not stored: it follows from the log and from ``forgotten``, the
number of batches that the leader does not remember (:func:`_producer_state`, after
Kafka's ``ProducerAppendInfo``).

The simplifications
-------------------

- *Three records, batches of one or two.* The protocol compares offsets and sequences
  for equality and order, and counts records between them. `make test-night` repeats
  the search in larger bounds.
- *Batches are cut again at each send, in every way.* The code cuts them as the source
  has them, which is one of these ways.
- *Two batches in flight, and two that the broker remembers.* Kafka remembers five, and
  the mirror has at most five in flight. Only the relation counts: as many in flight
  as remembered.
- *One partition.* Brokers store producer state by partition, and a position belongs to
  one partition. So two partitions never share a variable.
- *Two brokers, clean elections.* With acks=all a record is acknowledged when the
  follower has it. A third broker could be elected only if it were in sync, so it
  would hold the same prefix. An unclean election breaks Kafka's own promise: the
  mirror detects it as a lost tail, which has tests of its own.
- *No time.* Requests arrive and brokers forget at any moment. Each real order of
  events is one of these, so a timeout in the code can only remove traces.
- *Sequences do not wrap.* They are offsets modulo 2^31, and a wrap changes no
  comparison, because all compared values lie within a few batches.
- *Retention at the destination deletes on both brokers at once*, and only what both have.
- *The source does not change.* Retention, compaction and elections there have a model
  of their own, ``tests/model/source.py``.
- *The tail comparison finds the right batch.* The model compares the last batch's
  range of records, in the place of fingerprints and records.

The model is larger than reality in one way: a broker may forget a producer, and a
sent request may arrive, at any moment. Both only add traces.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from .search import Found, search

__all__ = ["Behind", "Bounds", "Broker", "Resume", "Rule", "check"]


class Rule(enum.Enum):
    """Rules that the mirror may keep or not."""

    SAME_IDENTITY = "go on with the producer id and epoch of the committed position"
    FIRST_POSITION_FIRST = "commit the first position before the first batch is produced"
    FIRST_ALONE = "the first request after each alignment goes alone, until it is acknowledged"
    ONE_IN_FLIGHT = "one request in flight, never more"
    NO_RESEND = "send nothing again without having asked the destination"
    END_IN_FLIGHT = "after a failure, wait for the answers to everything in flight before asking"
    AWAIT_WATERMARK = "do not believe a log end that the high watermark has not reached"
    AWAIT_ZOMBIES = "do not ask for the log end while a request of a closed connection can still arrive"
    COUNT_DELETED = "count deleted records by the sequences of those that are left, or by the leader's memory"


class Broker(enum.Enum):
    """The destination's handling of sequences."""

    REMEMBERS = "stock, producer state alive"
    FORGETS = "stock, producer state may expire"
    FORGETS_LATE = "as FORGETS, but not between a lost connection and the next acknowledgement"
    COMPARES = "compares a sequence with the log end (cas), producer state may expire"


class Behind(enum.Enum):
    """The user's choice after another producer's records."""

    STOP = "stop"
    MOVED_BASE = "same producer id and epoch, sequences go on without a gap"
    NEW_EPOCH = "same producer id, epoch + 1, sequence 0"


@dataclass(frozen=True)
class Bounds:
    """Bounds of the search.

    Attributes:
        records: Number of records in the source.
        largest_batch: The largest number of records in a batch; batches are cut again each time.
        in_flight: Limit of requests in flight, and number of a producer's batches that the broker remembers.
        processes: Number of processes, one after another; all but the last may crash.
        disconnects: Number of connections lost while a process continues.
        failures: Number of requests refused before they were written, or answered by an error after that.
        elections: Number of clean elections: the follower takes over, without the batches it lacks.
        expiries: Number of times that a broker forgets its producers.
        foreign: Number of records that another producer writes to the partition.
        deletions: Number of batches that retention deletes at the destination, once there is a position.
    """

    records: int = 3
    largest_batch: int = 2
    in_flight: int = 2
    processes: int = 3
    disconnects: int = 1
    failures: int = 1
    elections: int = 1
    expiries: int = 2
    foreign: int = 0
    deletions: int = 0


class ProducerIdentity(NamedTuple):
    """As :class:`shoal.mirroring.model.position.ProducerIdentity`."""

    producer_id: int
    producer_epoch: int = 0
    base: int = 0

    def sequence(self, destination_offset: int) -> int:
        return destination_offset - self.base

    def moved(self, by: int) -> ProducerIdentity:
        return self._replace(base=self.base + by)


class MirrorPosition(NamedTuple):
    """As :class:`shoal.mirroring.model.position.MirrorPosition`."""

    source_offset: int
    destination_offset: int
    identity: ProducerIdentity


class Batch(NamedTuple):
    """A batch in a request or in a log: ``records`` records from the source's ``first`` on."""

    producer_id: int
    epoch: int
    sequence: int
    first: int
    records: int


FOREIGN = Batch(-1, -1, -1, -1, 1)


class OutboundBatch(NamedTuple):
    """As :class:`shoal.mirroring.task.partition.OutboundBatch`."""

    batch: Batch
    destination_offset: int


class Copy(NamedTuple):
    """One process's state of the partition, as :class:`shoal.mirroring.task.partition.PartitionCopy`.

    Attributes:
        position: The acknowledged position; None before the committed position was read.
        aligned: Whether the process aligned with the destination since the last unknown outcome.
        established: Whether any batch was acknowledged since the last alignment.
        in_flight: Batches sent on this connection and not answered.
        landed: The base offset of the first of them; it waits for the follower.
        is_failed: Whether the responses to the batches in flight are to be ignored.
        node: The broker that returned the log end, and to which it is connected.
        log_end: The destination's log end, as returned to a partition that resumes.
        stopped: The reason for which the process gave up.
    """

    position: MirrorPosition | None = None
    aligned: bool = False
    established: bool = False
    in_flight: tuple[OutboundBatch, ...] = ()
    landed: int | None = None
    is_failed: bool = False
    node: int = 0
    log_end: int | None = None
    stopped: str | None = None


class Zombies(NamedTuple):
    """Requests of a closed connection that may still arrive, in their order."""

    node: int
    batches: tuple[Batch, ...]


class State(NamedTuple):
    """Both sides.

    Attributes:
        copy: The running process's state.
        committed: The position in the group.
        log: The leader's log.
        replicated: Number of its batches that the follower has.
        forgotten: Number of batches that the leader's producer state has forgotten.
        deleted: Number of batches that retention has deleted; producer state outlives them.
        node: The leader.
        zombies: Requests that may still arrive.
        process: Number of the running process.
        disconnects, failures, elections, expiries, foreign, deletions: Numbers of each that may still happen.
    """

    copy: Copy
    committed: MirrorPosition | None
    log: tuple[Batch, ...]
    replicated: int
    forgotten: int
    deleted: int
    node: int
    zombies: tuple[Zombies, ...]
    process: int
    disconnects: int
    failures: int
    elections: int
    expiries: int
    foreign: int
    deletions: int


@cache
def size_of(batches: tuple[Batch, ...]) -> int:
    """Return the number of records, which is the offset after them."""
    return sum(batch.records for batch in batches)


def others_of(batches: tuple[Batch, ...]) -> int:
    """Return the number of other producers' records."""
    return sum(batch.records for batch in batches if batch == FOREIGN)


#: The broker's result for a batch that is neither new nor known.
REFUSED = -1


@dataclass(frozen=True)
class Resume:
    """The model's transitions, by rules and bounds.

    Attributes:
        rules: The rules that the mirror keeps.
        broker: The destination's behaviour.
        bounds: The bounds of the search.
        behind: The user's choice after foreign records.
    """

    rules: frozenset[Rule]
    broker: Broker
    bounds: Bounds = field(default_factory=Bounds)
    behind: Behind = Behind.STOP

    @property
    def initial(self) -> State:
        bounds = self.bounds
        return State(
            copy=Copy(),
            committed=None,
            log=(),
            replicated=0,
            forgotten=0,
            deleted=0,
            node=0,
            zombies=(),
            process=0,
            disconnects=bounds.disconnects,
            failures=bounds.failures,
            elections=bounds.elections,
            expiries=0 if self.broker is Broker.REMEMBERS else bounds.expiries,
            foreign=bounds.foreign,
            deletions=bounds.deletions,
        )

    # Violations

    def violation_of(self, state: State) -> str | None:
        """Return a violation: a record is lost, doubled or reordered, or missing after the mirror is done."""
        expected = 0
        for batch in state.log:
            if batch == FOREIGN:
                continue
            if batch.first < expected:
                return "doubled"
            if batch.first > expected:
                return "lost"
            expected += batch.records
        if expected < self.bounds.records and self._is_done(state):
            return "lost"
        return None

    def undetected_of(self, state: State) -> str | None:
        """Return a violation of the destination after the mirror reports that it is done."""
        return self.violation_of(state) if self._is_done(state) else None

    def ending_of(self, state: State) -> str | None:
        """Return the ending of this process, if it has ended."""
        if state.copy.stopped:
            return state.copy.stopped
        return "done" if self._is_done(state) else None

    def _is_done(self, state: State) -> bool:
        copy = state.copy
        return (
            copy.aligned and copy.position is not None and copy.position.source_offset >= self.bounds.records
        )

    # Transitions

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield the next transitions: a sentence, and the state after it."""
        yield from self._process_steps(state)
        yield from self._connection_steps(state)
        yield from self._zombie_steps(state)
        yield from self._broker_steps(state)

    # The mirror

    def _process_steps(self, state: State) -> Iterator[tuple[str, State]]:
        copy = state.copy
        if copy.stopped is None:
            if not copy.aligned:
                yield from self._ask_log_end(state)
            else:
                yield from self._next_to_send(state)
            if copy.position is not None and copy.position != state.committed:
                offsets = f"{copy.position.source_offset}, {copy.position.destination_offset}"
                label = f"the position ({offsets}) is committed"
                yield label, state._replace(committed=copy.position)
            if state.disconnects and copy.in_flight:
                yield self._disconnect(state)
        if state.process + 1 < self.bounds.processes and copy.stopped is None:
            yield (
                f"process {state.process + 1} crashes",
                self._close(state)._replace(copy=Copy(), process=state.process + 1),
            )

    def _ask_log_end(self, state: State) -> Iterator[tuple[str, State]]:
        """Request the destination's log end; then, if the mirror may rely on it, continue after it."""
        copy = state.copy
        if copy.in_flight:
            if Rule.END_IN_FLIGHT not in self.rules:
                # The mirror ignores their responses, which makes them zombies.
                yield "what is in flight is left to itself", self._close(state)
            return
        if copy.log_end is None:
            if Rule.AWAIT_ZOMBIES in self.rules and state.zombies:
                return
            position = copy.position or state.committed
            log_end = size_of(state.log)
            yield (
                f"the log end is asked for: {log_end}",
                state._replace(copy=copy._replace(position=position, log_end=log_end, node=state.node)),
            )
            return
        high_watermark = size_of(state.log[: state.replicated])
        if Rule.AWAIT_WATERMARK in self.rules and high_watermark < copy.log_end:
            # The mirror requests it again the next time.
            yield "the watermark is behind", state._replace(copy=copy._replace(log_end=None))
            return
        if copy.position is None:
            yield self._begin(state, copy.log_end)
        else:
            yield self._resume(state, copy.position, copy.log_end)

    def _begin(self, state: State, log_end: int) -> tuple[str, State]:
        """Begin without a position: after the existing records, as if their tail was found in the source."""
        others = others_of(self._between(state.log, 0, log_end))
        position = MirrorPosition(log_end - others, log_end, ProducerIdentity(state.process))
        if Rule.FIRST_POSITION_FIRST in self.rules:
            state = state._replace(committed=position)
        return f"begins at {log_end}", self._align(state, position)

    def _resume(self, state: State, position: MirrorPosition, log_end: int) -> tuple[str, State]:
        """Resume from a position to the one that describes the destination as it is now."""
        written = log_end - position.destination_offset
        if written < 0:
            return self._stop(state, "the destination lost its tail")
        if written and size_of(state.log) < log_end:
            # Its last batch is missing, so that it cannot be compared.
            return "the log ends before that now", state._replace(copy=state.copy._replace(log_end=None))
        start = max(position.destination_offset, size_of(state.log[: state.deleted]))
        between = self._between(state.log, start, log_end)
        if start > position.destination_offset and size_of(state.log) > log_end:
            # The leader's memory may have what came since.
            return "the log has grown", state._replace(copy=state.copy._replace(log_end=None))
        own_deleted = self._own_deleted(state, position, start, between)
        if own_deleted is None:
            return self._stop(state, "nothing shows which program wrote the deleted records")
        ours = own_deleted + size_of(between) - others_of(between)
        others = written - ours
        identity = position.identity
        if Rule.SAME_IDENTITY not in self.rules and state.process != identity.producer_id:
            identity = ProducerIdentity(state.process)
        if others:
            if self.behind is Behind.STOP:
                return self._stop(state, "foreign records")
            identity = self._behind_others(identity, others, log_end)
        source_offset = position.source_offset + ours
        if between and between[-1] != FOREIGN:
            tail = between[-1]
            if tail.first + tail.records != source_offset:
                return self._stop(state, "the last batch is not the one that it should be")
        aligned = MirrorPosition(source_offset, log_end, identity)
        if others:
            state = state._replace(committed=aligned)
        return f"aligned at ({source_offset}, {log_end})", self._align(state, aligned)

    def _own_deleted(
        self, state: State, position: MirrorPosition, start: int, between: tuple[Batch, ...]
    ) -> int | None:
        """Return how many of the deleted records behind a position are ours; None if nothing shows it."""
        deleted = start - position.destination_offset
        if not deleted or Rule.COUNT_DELETED not in self.rules:
            return 0
        expected = position.identity.sequence(position.destination_offset)
        for batch in between:
            if batch != FOREIGN:
                return batch.sequence - expected
        _, recent = _producer_state(state.log, state.forgotten, position.identity.producer_id)
        own = recent[-1][1].sequence + recent[-1][1].records - expected if recent else None
        return own if own is not None and 0 <= own <= deleted else None

    def _behind_others(self, identity: ProducerIdentity, others: int, log_end: int) -> ProducerIdentity:
        if self.behind is Behind.NEW_EPOCH:
            return ProducerIdentity(identity.producer_id, identity.producer_epoch + 1, base=log_end)
        return identity.moved(others)

    @staticmethod
    def _between(log: tuple[Batch, ...], start: int, end: int) -> tuple[Batch, ...]:
        offset = 0
        found = []
        for batch in log:
            if start <= offset < end:
                found.append(batch)
            offset += batch.records
        return tuple(found)

    @staticmethod
    def _align(state: State, position: MirrorPosition) -> State:
        copy = state.copy._replace(
            position=position, aligned=True, established=False, is_failed=False, log_end=None
        )
        return state._replace(copy=copy)

    def _next_to_send(self, state: State) -> Iterator[tuple[str, State]]:
        copy = state.copy
        assert copy.position is not None
        most = self.bounds.in_flight
        if Rule.ONE_IN_FLIGHT in self.rules or (Rule.FIRST_ALONE in self.rules and not copy.established):
            most = 1
        if len(copy.in_flight) >= most:
            return
        queued = sum(each.batch.records for each in copy.in_flight)
        first = copy.position.source_offset + queued
        destination_offset = copy.position.destination_offset + queued
        identity = copy.position.identity
        for count in range(1, min(self.bounds.largest_batch, self.bounds.records - first) + 1):
            batch = Batch(
                identity.producer_id,
                identity.producer_epoch,
                identity.sequence(destination_offset),
                first,
                count,
            )
            sent = copy._replace(in_flight=(*copy.in_flight, OutboundBatch(batch, destination_offset)))
            yield f"sends {shown(batch)}", state._replace(copy=sent)

    @staticmethod
    def _lose_track(copy: Copy) -> Copy:
        return copy._replace(aligned=False, established=False, is_failed=True)

    def _acknowledge(self, state: State, outgoing: OutboundBatch, base_offset: int) -> State:
        """Handle a success for the oldest request in flight, with its base offset."""
        copy = state.copy
        assert copy.position is not None
        rest = copy._replace(in_flight=copy.in_flight[1:], landed=None)
        if copy.is_failed:
            return state._replace(copy=rest)
        by = base_offset - outgoing.destination_offset
        if by < 0 or (by > 0 and self.behind is Behind.STOP):
            return self._stop(state, "landed elsewhere")[1]
        if by > 0 and self.behind is Behind.NEW_EPOCH:
            # The identity cannot match any more; resuming counts each producer's records.
            return state._replace(copy=self._lose_track(rest))
        # displace
        position = MirrorPosition(
            copy.position.source_offset + outgoing.batch.records,
            base_offset + outgoing.batch.records,
            copy.position.identity.moved(by),
        )
        in_flight = tuple(
            each._replace(destination_offset=each.destination_offset + by) for each in rest.in_flight
        )
        # Otherwise it makes no difference.
        established = Rule.FIRST_ALONE in self.rules or self.broker is Broker.FORGETS_LATE
        return state._replace(
            copy=rest._replace(position=position, established=established, in_flight=in_flight)
        )

    def _refuse(self, state: State) -> State:
        """Handle an error for the oldest request in flight."""
        rest = state.copy._replace(in_flight=state.copy.in_flight[1:], landed=None)
        return state._replace(copy=self._lose_track(rest))

    def _stop(self, state: State, reason: str) -> tuple[str, State]:
        closed = self._close(state)
        return f"stops: {reason}", closed._replace(copy=Copy(stopped=reason))

    # The mirror's connection

    def _close(self, state: State) -> State:
        """Abandon the requests that were sent and not handled: they may arrive, or not."""
        copy = state.copy
        # If the first waits for the follower, the broker already has it.
        on_the_way = tuple(each.batch for each in copy.in_flight[copy.landed is not None :])
        zombies = state.zombies
        if on_the_way and (copy.node == state.node or state.elections):
            zombies = tuple(sorted((*zombies, Zombies(copy.node, on_the_way))))
        return state._replace(copy=copy._replace(in_flight=(), landed=None), zombies=zombies)

    def _disconnect(self, state: State) -> tuple[str, State]:
        copy = state.copy
        closed = self._close(state)._replace(disconnects=state.disconnects - 1)
        if Rule.NO_RESEND in self.rules or copy.is_failed:
            return "the connection is lost", closed._replace(copy=self._lose_track(closed.copy))
        again = closed.copy._replace(in_flight=copy.in_flight, node=state.node)
        return "the connection is lost, and everything is sent again", closed._replace(copy=again)

    def _connection_steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Handle one connection's requests one at a time; a response arrives as soon as it is sent."""
        copy = state.copy
        if not copy.in_flight or copy.stopped is not None:
            return
        outgoing = copy.in_flight[0]
        name = shown(outgoing.batch)
        if copy.landed is not None:
            if size_of(state.log[: state.replicated]) >= copy.landed + outgoing.batch.records:
                yield (
                    f"{name} is acknowledged at {copy.landed}",
                    self._acknowledge(state, outgoing, copy.landed),
                )
            elif state.failures:
                failed = state._replace(failures=state.failures - 1)
                yield f"{name} is answered by an error, but written", self._refuse(failed)
            return
        if copy.node != state.node:
            yield f"{name} is refused: not the leader", self._refuse(state)
            return
        log, base_offset = self._handle(state, outgoing.batch)
        if base_offset == REFUSED:
            yield f"{name} is refused: sequence", self._refuse(state)
        else:
            what = f"{name} is appended" if log is not state.log else f"{name} is known already"
            yield f"{what} at {base_offset}", state._replace(log=log, copy=copy._replace(landed=base_offset))
        if state.failures:
            yield f"{name} is refused", self._refuse(state._replace(failures=state.failures - 1))

    def _zombie_steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, zombie in enumerate(state.zombies):
            others = state.zombies[:number] + state.zombies[number + 1 :]
            if Rule.AWAIT_ZOMBIES in self.rules or self.broker is Broker.FORGETS_LATE:
                # For all others it makes no difference whether they never arrive, or disappear.
                yield "a closed connection's requests are gone", state._replace(zombies=others)
            if zombie.node != state.node:
                continue
            batch, *behind = zombie.batches
            left = others
            if behind:
                left = tuple(sorted((*others, Zombies(zombie.node, tuple(behind)))))
            log, base_offset = self._handle(state, batch)
            name = f"a request that was left behind arrives: {shown(batch)}"
            if log is not state.log:
                yield f"{name} is appended at {base_offset}", state._replace(log=log, zombies=left)
            elif behind:
                yield f"{name} changes nothing", state._replace(zombies=left)
            if behind and state.failures:
                yield f"{name} is refused", state._replace(zombies=left, failures=state.failures - 1)

    # The destination

    def _handle(self, state: State, batch: Batch) -> tuple[tuple[Batch, ...], int]:
        """Return the log after a request, and its batch's base offset; :data:`REFUSED` if it is refused."""
        compares = self.broker is Broker.COMPARES
        base_offset, is_new = _handled(state.log, state.forgotten, batch, self.bounds.in_flight, compares)
        return ((*state.log, batch) if is_new else state.log), base_offset

    def _broker_steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.replicated < len(state.log):
            batch = state.log[state.replicated]
            yield f"the follower has {shown(batch)}", state._replace(replicated=state.replicated + 1)
        if state.elections:
            yield from self._elections(state)
        if state.expiries and state.forgotten < len(state.log) and self._may_forget(state):
            forgot = state._replace(forgotten=len(state.log), expiries=state.expiries - 1)
            yield "the leader forgets its producers", forgot
        if state.foreign:
            changed = state._replace(log=(*state.log, FOREIGN), foreign=state.foreign - 1)
            yield "another program writes a record", changed
        if state.deletions and state.committed is not None and state.deleted < state.replicated:
            rest = state._replace(deleted=state.deleted + 1, deletions=state.deletions - 1)
            yield f"retention deletes {shown(state.log[state.deleted])}", rest

    def _may_forget(self, state: State) -> bool:
        if self.broker is not Broker.FORGETS_LATE:
            return True
        copy = state.copy
        asked = copy.log_end is not None or copy.aligned
        return not state.zombies and (copy.established or not asked)

    def _elections(self, state: State) -> Iterator[tuple[str, State]]:
        log = state.log[: state.replicated]
        lost = len(state.log) - len(log)
        label = f"the follower is elected, {lost} batches are lost" if lost else "the follower is elected"
        node, elections = 1 - state.node, state.elections - 1
        # If a broker never leads again, a request to it has no effect.
        zombies = tuple(each for each in state.zombies if elections or each.node == node)
        elected = state._replace(log=log, node=node, elections=elections, zombies=zombies)
        if state.copy.landed is not None and state.copy.stopped is None:
            elected = self._refuse(elected)  # a request that waits for the follower fails: not the leader
        forgotten = min(state.forgotten, len(log))
        yield label, elected._replace(forgotten=forgotten)
        if forgotten:
            yield f"{label}; it forgot nothing", elected._replace(forgotten=0)


@cache
def _handled(
    log: tuple[Batch, ...], forgotten: int, batch: Batch, remembered: int, compares: bool
) -> tuple[int, bool]:
    """Return a batch's offset in a log, and whether it is new there (Kafka's ProducerAppendInfo)."""
    epoch, recent = _producer_state(log, forgotten, batch.producer_id)
    if recent:
        if batch.epoch == epoch:
            for base_offset, known in recent[-remembered:]:
                if (known.sequence, known.records) == (batch.sequence, batch.records):
                    return base_offset, False
            last = recent[-1][1]
            expected = last.sequence + last.records
        else:
            expected = 0
        if batch.epoch < epoch or batch.sequence != expected:
            return REFUSED, False
    if compares and batch.sequence != size_of(log):
        return REFUSED, False
    return size_of(log), True


def _producer_state(
    log: tuple[Batch, ...], forgotten: int, producer_id: int
) -> tuple[int, list[tuple[int, Batch]]]:
    """Return a producer's newest epoch and its batches with that epoch, as far as the leader remembers."""
    epoch, offset = -1, 0
    recent: list[tuple[int, Batch]] = []
    for number, batch in enumerate(log):
        if number >= forgotten and batch.producer_id == producer_id:
            if batch.epoch != epoch:
                epoch, recent = batch.epoch, []
            recent.append((offset, batch))
        offset += batch.records
    return epoch, recent


@cache
def shown(batch: Batch) -> str:
    """Return a batch in the form of a counter-example."""
    if batch == FOREIGN:
        return "a foreign record"
    end = batch.first + batch.records - 1
    records = f"{batch.first}" if batch.records == 1 else f"{batch.first}-{end}"
    epoch = f" epoch {batch.epoch}" if batch.epoch else ""
    return f"[{records}] (producer {batch.producer_id + 1}{epoch}, sequence {batch.sequence})"


def check(model: Resume, *, only_undetected: bool = False) -> Found[State]:
    """Search all states; ``only_undetected`` ignores violations that the mirror may still detect."""
    wrong = model.undetected_of if only_undetected else model.violation_of
    return search(model.initial, model.steps, wrong, model.ending_of)
