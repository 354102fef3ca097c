"""The steps of an attempt in the model of the next copy path: align, take, send, commit, and begin again.

An attempt that is not aligned knows only the maps that the group may have, and whether a commit is under way.
An alignment begins from the map that the attempt committed last, or else from the group's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .clusters import REMEMBERED, Attempt, Batch, Commit, Log, State, Stop
from .position import Position, Record, Run
from .rules import Protocol, Rule

__all__ = ["Steps", "attempt_steps", "begin_again", "is_done", "lose_track"]

Steps: TypeAlias = Iterator[tuple[str, State]]


def attempt_steps(protocol: Protocol, state: State, attempt: Attempt) -> Steps:
    """Yield what an attempt may do next."""
    if attempt.stopped:
        return
    if attempt.position is None:
        yield from _align(protocol, state, attempt)
    else:
        yield from _take(protocol, state, attempt)
        yield from _send(protocol, state, attempt)
        yield from _commit(protocol, state, attempt)
    yield from _rejoin(protocol, state, attempt)


# Align


def _align(protocol: Protocol, state: State, attempt: Attempt) -> Steps:
    if attempt.is_committing and protocol.keeps(Rule.QUIET):
        return
    if state.log.replicated < len(state.log.batches) and protocol.keeps(Rule.WATERMARK):
        return
    position = _position_here(protocol, state, attempt)
    if isinstance(position, Stop):
        yield f"stops: {position.value}", state.with_attempt(attempt._replace(stopped=position))
        return
    acked = _known_map(state, attempt)
    if not protocol.keeps(Rule.KEEP):
        acked = None if acked is None or acked.plan else acked
        position = position.without_plan()
    aligned = attempt._replace(
        position=position,
        acked=acked,
        fetched=position.here.source,
        source_epoch=state.source.epoch,
        log_epoch=state.log.epoch,
        is_committing=False,
    )
    yield (
        f"aligns: the copy ends at {state.log.end}, the source goes on at {position.here.source}",
        _abandon_commits(state, attempt).with_attempt(aligned),
    )


def _known_map(state: State, attempt: Attempt) -> Position | None:
    """Return the map that the attempt committed last, or else read the group's."""
    return attempt.acked or state.group.committed


def _abandon_commits(state: State, attempt: Attempt) -> State:
    """Ignore the answer to a commit of before; with QUIET there is none."""
    pending = tuple(
        each._replace(attempt=None) if each.attempt == attempt.number else each
        for each in state.group.pending
    )
    return state._replace(group=state.group._replace(pending=pending))


def _position_here(protocol: Protocol, state: State, attempt: Attempt) -> Position | Stop:
    """Look the log's end up in the committed map, or begin the copy."""
    log, source, committed = state.log, state.source, _known_map(state, attempt)
    if committed is None:
        return _first_position(protocol, state, attempt)
    if log.end < committed.here.destination:
        return Stop.DESTINATION_LOSS
    if protocol.keeps(Rule.TAIL):
        stop = _compare_tail(log, committed)
        if stop:
            return stop
    position = committed.moved_to(log.end, by_last=protocol.keeps(Rule.LAST))
    here = position.here
    has_ended = here.epoch >= 0 and source.end_of(here.epoch) < here.source
    if (has_ended and protocol.keeps(Rule.EPOCH)) or here.source > len(source.slots):
        return Stop.SOURCE_RESET
    if here.source < source.start:
        return Stop.SOURCE_RETENTION
    return position if protocol.keeps(Rule.IDENTITY) else position._replace(producer=attempt.number)


def _first_position(protocol: Protocol, state: State, attempt: Attempt) -> Position | Stop:
    log, source = state.log, state.source
    if log.deleted < len(log.batches):
        return Stop.NOT_EMPTY
    start = max(protocol.bounds.start, source.start)
    return Position(attempt.number, log.end, Run(log.end, start, -1))


def _compare_tail(log: Log, committed: Position) -> Stop | None:
    """Compare the last batch, or if retention deleted it, the leader's memory of our producer."""
    if log.end == committed.begin:
        return None
    last = log.batches[-1]
    if log.deleted == len(log.batches):
        recent = log.remembered(committed.producer)
        if not recent:
            return None if log.end == committed.here.destination else Stop.UNKNOWN_WRITER
        last = recent[-1][1]
    end = last.sequence + len(last.records)
    if last.producer != committed.producer or end < log.end:
        return Stop.FOREIGN
    return Stop.DESTINATION_LOSS if end > log.end else None


# Take, send, commit


def _take(protocol: Protocol, state: State, attempt: Attempt) -> Steps:
    position, source = attempt.position, state.source
    assert position is not None
    if len(attempt.queue) == protocol.bounds.queue:
        return
    if attempt.source_epoch != source.epoch:
        if not attempt.queue and not attempt.wire:
            yield "the source has another leader", lose_track(state, attempt)
        return
    offset = attempt.fetched
    if offset < source.start:
        if not attempt.queue and not attempt.wire:
            stop = Stop.SOURCE_RETENTION
            yield f"stops: {stop.value}", state.with_attempt(attempt.unaligned()._replace(stopped=stop))
        return
    ahead = source.records_from(offset)
    for count in range(1, min(2, len(ahead)) + 1):
        records = ahead[:count]
        # No batch has records of two leader epochs.
        if records[-1].epoch != records[0].epoch and not protocol.bounds.without_epochs:
            continue
        extended = position
        for claim in protocol.claims(attempt.planned_end, records, attempt.source_epoch):
            extended = extended.planned(claim, by_epoch=protocol.keeps(Rule.BREAK))
        taken = attempt._replace(
            position=extended, queue=(*attempt.queue, records), fetched=records[-1].offset + 1
        )
        yield f"takes {Batch(0, 0, records)}", state.with_attempt(taken)


def _send(protocol: Protocol, state: State, attempt: Attempt) -> Steps:
    position = attempt.position
    assert position is not None
    if not attempt.queue or len(attempt.wire) >= _most_in_flight(protocol, attempt):
        return
    if attempt.number != state.newest.number and protocol.keeps(Rule.LEASE):
        return
    records, *rest = attempt.queue
    begin = attempt.sent_end
    if not _is_planned(protocol, attempt, begin, records):
        return
    batch = Batch(position.producer, begin, records)
    sent = attempt._replace(queue=tuple(rest), wire=(*attempt.wire, batch))
    yield f"sends {batch} at {begin}", state.with_attempt(sent)


def _is_planned(protocol: Protocol, attempt: Attempt, begin: int, records: tuple[Record, ...]) -> bool:
    """Whether each map that the group may have leads to the records."""
    if attempt.acked is None or not protocol.keeps(Rule.PLAN):
        return attempt.acked is not None
    doubts = attempt.doubts if protocol.keeps(Rule.DOUBT) else ()
    return all(_leads_to(protocol, attempt, known, begin, records) for known in (attempt.acked, *doubts))


def _leads_to(
    protocol: Protocol, attempt: Attempt, known: Position, begin: int, records: tuple[Record, ...]
) -> bool:
    position = attempt.position
    assert position is not None
    if known.producer != position.producer or known.here.destination > begin:
        return False
    return all(
        known.leads_to(
            claim.destination, Record(claim.source, claim.epoch), by_epoch=protocol.keeps(Rule.BREAK)
        )
        for claim in protocol.claims(begin, records, attempt.source_epoch)
    )


def _most_in_flight(protocol: Protocol, attempt: Attempt) -> int:
    if protocol.bounds.events.forgettings and protocol.keeps(Rule.ONE_IN_FLIGHT):
        return 1
    if protocol.keeps(Rule.FIRST_ALONE) and not attempt.is_established:
        return 1
    return REMEMBERED


def _commit(protocol: Protocol, state: State, attempt: Attempt) -> Steps:
    position = attempt.position
    assert position is not None
    if attempt.is_committing or position == attempt.acked:
        return
    commit = Commit(attempt.generation, position, attempt.number)
    group = state.group._replace(pending=(*state.group.pending, commit))
    committing = state._replace(group=group).with_attempt(attempt._replace(is_committing=True))
    yield f"commits {position}", committing


def _rejoin(protocol: Protocol, state: State, attempt: Attempt) -> Steps:
    """Begin again with a new generation after a commit of unknown outcome: it takes no effect then."""
    if not attempt.doubts or not protocol.keeps(Rule.DOUBT) or attempt.is_committing or attempt.wire:
        return
    if attempt.number == state.newest.number:
        rejoined = state._replace(group=state.group.next_generation())
        yield "begins a new generation", begin_again(rejoined, attempt)


def begin_again(state: State, attempt: Attempt) -> State:
    """Align with the group's generation, and without what was known."""
    return state.with_attempt(Attempt(attempt.number, state.group.generation))


def lose_track(state: State, attempt: Attempt) -> State:
    return state.with_attempt(attempt.unaligned())


def is_done(state: State, attempt: Attempt) -> bool:
    """Whether an attempt has copied all that it can see."""
    position = attempt.position
    if position is None or attempt.queue or attempt.wire or attempt.source_epoch != state.source.epoch:
        return False
    return attempt.fetched >= state.source.start and not state.source.records_from(attempt.fetched)
