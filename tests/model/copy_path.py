"""
A model of the copy path: one partition, whose committed position is a map that is ahead of the log.

The promise
-----------

The copy has each record of the source once, and in order. A stop has a documented
reason (:class:`.clusters.Stop`), and that reason has happened.
From each state a run can end: it is done, or it stops.

:func:`check` visits every state that the rules and bounds allow, breadth first, so
a failure comes with a shortest history. Each rule of :class:`.rules.Rule` can be
switched off.

The parts
---------

``position`` has the map, ``clusters`` the state, ``rules`` what can be switched,
``attempt`` the mirror's steps, and ``surroundings`` all other steps.

The simplifications
-------------------

- Batches have one or two records, and each fetch cuts them in every way. So a
  changed ``--rebatch`` and another fetch are the same event.
- A marker, an aborted record, a hole and a skipped record are one thing: an offset without
  a record to mirror. An option that skips a bad batch in the next run acts as the cleaner does.
- An alignment is one step. A request that arrives between its questions has the same
  effect as one that arrives after them.
- Time does not exist: each timeout in the code can only remove histories.
"""

from __future__ import annotations

from itertools import pairwise

from .attempt import Steps, attempt_steps, is_done
from .clusters import FOREIGN, GAP, Attempt, State, Stop, size_of
from .position import Position, Record
from .rules import Protocol
from .search import Found, search
from .surroundings import coordinator_steps, copy_steps, process_steps, request_steps, source_steps

__all__ = ["check"]


def check(protocol: Protocol, *, only_records: bool = False) -> Found[State]:
    """Search all states; ``only_records`` ignores stops without a cause."""

    def steps(state: State) -> Steps:
        for attempt in state.attempts:
            yield from attempt_steps(protocol, state, attempt)
        yield from process_steps(protocol, state)
        yield from request_steps(protocol, state)
        yield from coordinator_steps(state)
        yield from copy_steps(protocol, state)
        yield from source_steps(state)

    def violation(state: State) -> str | None:
        broken = wrong_records(protocol, state)
        return broken if broken or only_records else needless_stop(protocol, state)

    return search(protocol.initial, steps, violation, ending_of, must_end=True)


def ending_of(state: State) -> str | None:
    """Return how the attempt in charge has ended."""
    attempt = state.newest
    if attempt.stopped:
        return attempt.stopped.value
    return "done" if is_done(state, attempt) else None


def wrong_records(protocol: Protocol, state: State) -> str | None:
    """Return what is wrong with the records of the copy, as far as the attempt in charge can know."""
    copied = _records_of_copy(state)
    if any(before.offset >= after.offset for before, after in pairwise(copied)):
        return "doubled"
    attempt = state.newest
    ends = [0]
    if not _has_unclean_election(protocol, state):
        ends += [record.offset for record in copied]
    if attempt.position is not None and _knows_both_leaders(state, attempt):
        ends.append(attempt.position.here.source)
        if _is_behind_foreign(state, attempt.position):
            return "foreign records unnoticed"
    expected = {
        record for record in state.source.records_from(protocol.bounds.start) if record.offset < max(ends)
    }
    return None if expected <= set(copied) else "lost"


def _records_of_copy(state: State) -> list[Record]:
    return [record for batch in state.log.batches if batch != FOREIGN for record in batch.records]


def _has_unclean_election(protocol: Protocol, state: State) -> bool:
    """Whether the source or the copy lost committed records, which an attempt finds at its next alignment."""
    return any(
        protocol.happened(state, event) for event in ("unclean_source_elections", "unclean_copy_elections")
    )


def _knows_both_leaders(state: State, attempt: Attempt) -> bool:
    return attempt.source_epoch == state.source.epoch and attempt.log_epoch == state.log.epoch


def _is_behind_foreign(state: State, position: Position) -> bool:
    """Whether an attempt copies behind a foreign record of after the copy's begin."""
    batches = state.log.batches
    return any(
        batch == FOREIGN and position.begin <= size_of(batches[:number]) < position.here.destination
        for number, batch in enumerate(batches)
    )


def needless_stop(protocol: Protocol, state: State) -> str | None:
    stop = state.newest.stopped
    return "stopped without a cause" if stop and not _has_cause(protocol, state, stop) else None


def _has_cause(protocol: Protocol, state: State, stop: Stop) -> bool:
    """Whether the reason of a stop has happened."""
    match stop:
        case Stop.FOREIGN | Stop.NOT_EMPTY:
            return protocol.happened(state, "foreign")
        case Stop.UNKNOWN_WRITER:
            is_unknown = protocol.happened(state, "forgettings") or protocol.happened(state, "foreign")
            return is_unknown and protocol.happened(state, "copy_deletions")
        case Stop.DESTINATION_LOSS:
            return protocol.happened(state, "unclean_copy_elections")
        case Stop.SOURCE_RESET:
            return not all(_is_still_there(state, record) for record in _records_of_copy(state))
        case Stop.SOURCE_RETENTION:
            return protocol.happened(state, "source_deletions")


def _is_still_there(state: State, record: Record) -> bool:
    slots = state.source.slots
    return record.offset < len(slots) and slots[record.offset] in (record.epoch, GAP)
