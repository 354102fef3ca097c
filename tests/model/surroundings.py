"""Steps of the model of the next copy path that the attempts do not take: brokers, coordinator, faults."""

from __future__ import annotations

from .attempt import Steps, begin_again, lose_track
from .clusters import FOREIGN, GAP, Attempt, Batch, Group, Log, State
from .rules import Protocol, Rule

__all__ = ["coordinator_steps", "copy_steps", "process_steps", "request_steps", "source_steps"]


# Processes


def process_steps(protocol: Protocol, state: State) -> Steps:
    """Yield crashes, and attempts that begin while another one lives."""
    if state.left.crashes:
        yield "a crash, and a new attempt", _next_attempt(protocol, state.after("crashes"), survivors=())
    if state.left.takeovers and len(state.attempts) == 1 and not state.newest.stopped:
        former = state.newest.unaligned() if state.newest.wire else state.newest
        yield (
            "a new attempt, while the former lives",
            _next_attempt(protocol, state.after("takeovers"), survivors=(former,)),
        )
    if state.left.rebalances:
        group = state.group.next_generation()
        yield "another member joins the group", state.after("rebalances")._replace(group=group)


def _next_attempt(protocol: Protocol, state: State, survivors: tuple[Attempt, ...]) -> State:
    former = state.newest
    numbers = [attempt.number for attempt in survivors]
    # The answer to a dead attempt's commit has no effect.
    pending = tuple(
        each if each.attempt in numbers else each._replace(attempt=None) for each in state.group.pending
    )
    group = state.group._replace(pending=pending)
    if protocol.keeps(Rule.FENCE):
        group = group.next_generation()
    late = state.late + (_on_the_way(former) if protocol.bounds.late else ())
    attempt = Attempt(former.number + 1, group.generation)
    return state._replace(group=group, late=late, attempts=(*survivors, attempt))


# Requests


def request_steps(protocol: Protocol, state: State) -> Steps:
    """Yield the ways of the oldest request in flight of each attempt, and of the late ones."""
    for attempt in state.attempts:
        if attempt.wire and attempt.is_written:
            if state.log.replicated == len(state.log.batches):
                batch = attempt.wire[0]
                acknowledged = _acknowledge(state, attempt, batch.sequence)
                yield f"{batch} is acknowledged", acknowledged
        elif attempt.wire:
            yield from _handle(protocol, state, attempt)
        if attempt.wire and state.left.disconnects:
            lost = state.after("disconnects")
            if protocol.bounds.late:
                lost = lost._replace(late=(*lost.late, *_on_the_way(attempt)))
            yield "the connection is lost", lose_track(lost, attempt)
    if state.late:
        batch, *rest = state.late
        log, _ = _append(protocol, state, batch)
        yield f"the late request {batch} arrives", state._replace(log=log, late=tuple(rest))
        yield f"the late request {batch} never arrives", state._replace(late=tuple(rest))


def _on_the_way(attempt: Attempt) -> tuple[Batch, ...]:
    return attempt.wire[attempt.is_written :]


def _append(protocol: Protocol, state: State, batch: Batch) -> tuple[Log, int | None]:
    handle = state.log.handle_at_end if protocol.bounds.compares_with_end else state.log.handle
    log, offset = handle(batch)
    return (log if protocol.replicates else log._replace(replicated=len(log.batches))), offset


def _handle(protocol: Protocol, state: State, attempt: Attempt) -> Steps:
    batch = attempt.wire[0]
    log, offset = _append(protocol, state, batch)
    handled = state._replace(log=log)
    if offset is None:
        yield f"{batch} is refused", lose_track(state, attempt)
        return
    if protocol.replicates:
        if offset == batch.sequence:
            yield f"{batch} is written", handled.with_attempt(attempt._replace(is_written=True))
        else:
            yield f"{batch} is written at {offset}", lose_track(handled, attempt)
    else:
        yield f"{batch} lands at {offset}", _acknowledge(handled, attempt, offset)
    if state.left.disconnects:
        yield f"{batch} lands, its answer is lost", lose_track(handled.after("disconnects"), attempt)
    if state.left.refusals:
        # The broker handles the requests behind it all the same.
        refused = state.after("refusals")
        for following in attempt.wire[1:]:
            log, _ = _append(protocol, refused, following)
            refused = refused._replace(log=log)
        yield f"{batch} is refused once", lose_track(refused, attempt)


def _acknowledge(state: State, attempt: Attempt, offset: int) -> State:
    position, batch = attempt.position, attempt.wire[0]
    assert position is not None
    if offset != batch.sequence:
        return lose_track(state, attempt)
    return state.with_attempt(
        attempt._replace(
            position=position.moved_to(offset + len(batch.records)),
            wire=attempt.wire[1:],
            is_written=False,
            is_established=True,
        )
    )


# The coordinator


def coordinator_steps(state: State) -> Steps:
    """Yield the outcomes of each commit under way."""
    for number, commit in enumerate(state.group.pending):
        rest = state.group.pending[:number] + state.group.pending[number + 1 :]
        group = state.group._replace(pending=rest)
        waiting = [attempt for attempt in state.attempts if attempt.number == commit.attempt]
        if commit.generation != group.generation:
            yield "the commit is refused", _fence(state._replace(group=group), waiting)
            continue
        done = state._replace(group=group._replace(committed=commit.position))
        for attempt in waiting:
            acked = commit.position if attempt.position is not None else None
            done = done.with_attempt(attempt._replace(acked=acked, is_committing=False))
        when = "takes effect" if waiting else "takes effect late"
        yield f"the commit {commit.position} {when}", done
        if waiting and state.left.unknown_commits:
            yield "the commit's outcome is unknown", _unknown(state, group, number, waiting[0])


def _fence(state: State, waiting: list[Attempt]) -> State:
    """Let a refused attempt join the group again, or end if another one has taken over."""
    for attempt in waiting:
        if attempt.number == state.newest.number:
            return begin_again(state, attempt)
        return state._replace(attempts=(state.newest,))
    return state


def _unknown(state: State, group: Group, number: int, attempt: Attempt) -> State:
    commit = state.group.pending[number]._replace(attempt=None)
    doubts = (*attempt.doubts, commit.position)
    unknown = state.after("unknown_commits")._replace(group=group._replace(pending=(*group.pending, commit)))
    return unknown.with_attempt(attempt._replace(is_committing=False, doubts=doubts))


# The copy


def copy_steps(protocol: Protocol, state: State) -> Steps:
    """Yield what happens to the copy beside the mirror."""
    log, left = state.log, state.left
    if log.replicated < len(log.batches):
        replicated = log._replace(replicated=log.replicated + 1)
        yield f"the follower has {log.batches[log.replicated]}", state._replace(log=replicated)
    if left.copy_elections:
        lost = len(log.batches) - log.replicated
        elected = state.after("copy_elections")
        yield f"the copy's follower is elected, {lost} batches are lost", _elect(elected, log.replicated)
    if left.unclean_copy_elections:
        for number in range(log.deleted, log.replicated):
            elected = state.after("unclean_copy_elections")
            elected = elected._replace(log=log._replace(epoch=log.epoch + 1))
            yield f"an unclean election at the copy leaves {number} batches", _elect(elected, number)
    if left.forgettings and log.forgotten < len(log.batches) and _may_forget(protocol, state):
        forgot = log._replace(forgotten=len(log.batches))
        yield "the copy's leader forgets its producers", state.after("forgettings")._replace(log=forgot)
    if left.foreign:
        written = log._replace(batches=(*log.batches, FOREIGN), replicated=len(log.batches) + 1)
        yield "another program writes to the copy", state.after("foreign")._replace(log=written)
    if left.copy_deletions and log.deleted < log.replicated:
        deleted = log._replace(deleted=log.deleted + 1)
        what = f"retention at the copy deletes {log.batches[log.deleted]}"
        yield what, state.after("copy_deletions")._replace(log=deleted)


def _elect(state: State, number: int) -> State:
    """Elect a leader that has so many batches; it refuses what was sent to the former one."""
    elected = state._replace(log=state.log.cut_to(number))
    for attempt in state.attempts:
        if attempt.wire:
            elected = lose_track(elected, attempt)
    return elected


def _may_forget(protocol: Protocol, state: State) -> bool:
    """Whether no request can arrive that a forgetful broker would write twice.

    No client can know this: docs/architecture.md has the failure.
    """
    attempt = state.newest
    is_at_rest = attempt.is_established or attempt.position is None
    return protocol.bounds.compares_with_end or (not state.late and is_at_rest)


# The source


def source_steps(state: State) -> Steps:
    """Yield what happens to the source."""
    source, left = state.source, state.left
    slots, epoch = source.slots, source.epoch
    if left.cleanings:
        for offset in range(source.start, len(slots) - 1):
            if slots[offset] != GAP:
                cleaned = source._replace(slots=(*slots[:offset], GAP, *slots[offset + 1 :]))
                yield f"the cleaner removes {offset}", state.after("cleanings")._replace(source=cleaned)
    if left.source_deletions and source.start < len(slots):
        deleted = source._replace(start=source.start + 1)
        yield f"retention deletes {source.start}", state.after("source_deletions")._replace(source=deleted)
    if left.source_appends:
        grown = source._replace(slots=(*slots, epoch))
        what = f"{len(slots)} is written at epoch {epoch}"
        yield what, state.after("source_appends")._replace(source=grown)
    if left.source_elections:
        elected = source._replace(epoch=epoch + 1)
        yield "an election at the source", state.after("source_elections")._replace(source=elected)
    if left.unclean_source_elections:
        for end in range(source.start, len(slots)):
            elected = source._replace(slots=slots[:end], epoch=epoch + 1)
            changed = state.after("unclean_source_elections")._replace(source=elected)
            yield f"an unclean election at the source leaves {end} offsets", changed
