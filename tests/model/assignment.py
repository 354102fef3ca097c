"""
The model of assignment: which task may write a partition, by documents, leases and generations.

One partition, a driver, and its tasks. Time passes in steps, and any line may be late: a task reads and
leaves when it likes. A task writes a partition that its newest document has while its lease lasts. The model
of the copy path has the fate of requests and commits at the clusters. Here a former task must not send, and
no commit of it may take effect, once the next task has the partition.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

__all__ = ["LEASE", "Assignment", "Events", "Rule", "State", "steps", "violation_of"]

#: The length of a lease in steps of time. A place in the group lasts one step longer.
LEASE = 2

#: A task that has been asked to leave has so many steps of time until it gets no lease any more.
PATIENCE = 1

#: The entries of documents: only whether one is the newest matters.
NONE, NEWEST, FORMER = 0, 1, 2


class Rule(enum.Enum):
    """Rules that the driver and its tasks keep; the test names the failure without each."""

    LEFT = "a partition moves once the former task has left it, has ended, or has no lease any more"
    NUMBER = "a report of leaving names the document entry that it is about"
    READING = "a lease counts from a reading of the task's clock that the driver had before it gave it"
    FENCE = "after a task that left no position, the next one begins with a new generation"
    FROZEN = "a task that lost its partitions gets neither lease nor generation until it has left them"
    QUIET = "a task leaves a partition without a request or a commit under way"
    GROUP = "no lease lasts longer than the mirror's place in its group"
    SESSION = "a new driver begins when the place of the former one in the group has ended"
    RUN_OUT = "a task that is silent for a lease loses its partitions"
    PATIENCE = "a task that does not leave in time gets no lease any more"


class Events(NamedTuple):
    """How often each event may happen."""

    joins: int = 2
    deaths: int = 0
    moves: int = 0
    revocations: int = 0
    expulsions: int = 0
    restarts: int = 0


class Line(NamedTuple):
    """
    A line to a task.

    Attributes:
        entry: The document's entry for the partition; ``NONE`` if it has none.
        lease: The rest of the lease, from the reading of the task's clock that it counts from.
        full: The lease if it counted from the time at which the task reads the line.
        is_current: Whether the task may commit in the group's present generation.
    """

    entry: int
    lease: int
    full: int
    is_current: bool


class Task(NamedTuple):
    """
    A task, with what the driver knows about it.

    Attributes:
        is_over: Whether it has ended; the driver sees its connection close.
        inbox: The lines that it has not read.
        entry: The entry of its newest document.
        work: The entry by which it has the partition; ``NONE`` if it does not.
        is_lost: Whether the partition has to be aligned before anything is sent: the lease was interrupted.
        lease: The rest of its lease.
        is_current: Whether it knows the group's present generation.
        commits: Whether a commit of it is under way that the group would take.
        in_flight: Whether a request of it is under way.
        left: The entry in its report of leaving that the driver has not read.
        heard: The age of the newest reading of its clock, and of the newest line, that the driver has.
        given: The most that is left of its lease, as the driver counts.
        is_fenced: Whether it lost its partitions, and has not left them.
        asked: The steps of time since it was asked to leave; -1 if it was not.
        is_known: Whether the present driver knows it.
    """

    is_over: bool = False
    inbox: tuple[Line, ...] = ()
    entry: int = NONE
    work: int = NONE
    is_lost: bool = False
    lease: int = 0
    is_current: bool = True
    commits: bool = False
    in_flight: bool = False
    left: int = NONE
    heard: int = 0
    given: int = 0
    is_fenced: bool = False
    asked: int = -1
    is_known: bool = True


class State(NamedTuple):
    """
    Everything.

    Attributes:
        holder: The task that has the partition in its document, or has not left it; -1 for none.
        is_in: Whether the holder's document has it; if not, the holder was asked to leave.
        wanted: Whether this mirror is to copy the partition.
        ours: Whether the group has given the partition to this mirror.
        place: The rest of the lease that the mirror's place in its group allows.
        is_unsettled: Whether a former task may have sent a commit that no task knows, and the group takes.
        desired: The task that should have the partition, if it can.
        idle: For how long it has been in no live document, though it is wanted and a task could take it.
        broken: The rule that was broken; empty if none was.
        past: The events that have happened.
    """

    tasks: tuple[Task, ...] = ()
    holder: int = -1
    is_in: bool = False
    wanted: bool = True
    ours: bool = True
    place: int = LEASE
    is_unsettled: bool = False
    desired: int = 0
    idle: int = 0
    broken: str = ""
    past: Events = Events(0, 0, 0, 0, 0, 0)

    def with_task(self, number: int, task: Task) -> State:
        return self._replace(tasks=(*self.tasks[:number], task, *self.tasks[number + 1 :]))

    def next_generation(self) -> State:
        """Begin a generation of the group, which refuses the commits of the ones before."""
        tasks = tuple(
            task._replace(
                is_current=False,
                commits=False,
                inbox=tuple(line._replace(is_current=False) for line in task.inbox),
            )
            for task in self.tasks
        )
        return self._replace(tasks=tasks, is_unsettled=False, place=LEASE)


Steps: TypeAlias = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Assignment:
    """The rules and the bounds of one search."""

    rules: frozenset[Rule]
    events: Events

    def keeps(self, rule: Rule) -> bool:
        return rule in self.rules

    def happened(self, state: State, event: str) -> State | None:
        """Return the state after one more event; None if there were enough."""
        past: int = getattr(state.past, event)
        most: int = getattr(self.events, event)
        if past == most:
            return None
        return state._replace(past=state.past._replace(**{event: past + 1}))


def violation_of(state: State) -> str | None:
    if state.broken:
        return state.broken
    live = [task for task in state.tasks if _may_write(task)]
    if len(live) > 1:
        return "two tasks may write the partition"
    if live and not state.ours:
        return "a task may write a partition that the group gave to another process"
    if state.idle > PATIENCE + LEASE:
        return "the partition is in no live document for longer than the patience and a lease"
    return None


def _may_write(task: Task) -> bool:
    """Whether a task may write the partition now, or once it has read a line that waits."""
    if task.is_over:
        return False
    works = task.work != NONE and not task.is_lost and task.lease > 0
    return works or any(line.entry != NONE and line.lease > 0 for line in task.inbox)


def steps(assignment: Assignment, state: State) -> Steps:
    """Yield what may happen next. The driver acts at once on what it learns."""
    for label, after in (*_of_tasks(assignment, state), *_of_driver(assignment, state)):
        yield label, _converge(assignment, after)


# The tasks


def _of_tasks(assignment: Assignment, state: State) -> Steps:
    joined = assignment.happened(state, "joins")
    if joined is not None:
        # Its first line has a reading of its clock.
        yield f"task {len(state.tasks)} joins", joined._replace(tasks=(*state.tasks, Task()))
    for number, task in enumerate(state.tasks):
        if task.commits:
            yield f"the commit of task {number} is answered", _commit(state, number, task)
        if task.is_over:
            continue
        died = assignment.happened(state, "deaths")
        if died is not None:
            yield f"task {number} dies", died.with_task(number, _end(task))
        if task.inbox:
            yield f"task {number} reads", state.with_task(number, _read(assignment, task))
        if not task.is_known:
            yield f"task {number} sees that its driver is gone", state.with_task(number, _end(task))
        yield from _work(assignment, state, number, task)


def _end(task: Task) -> Task:
    return Task(is_over=True, commits=task.commits, is_known=task.is_known)


def _read(assignment: Assignment, task: Task) -> Task:
    line, *rest = task.inbox
    is_interrupted = task.lease == 0 or line.is_current != task.is_current
    return task._replace(
        inbox=tuple(rest),
        entry=line.entry,
        lease=line.lease if assignment.keeps(Rule.READING) else line.full,
        is_current=line.is_current,
        is_lost=task.work != NONE and (task.is_lost or is_interrupted),
        heard=0,  # it sends its clock after each line
    )


def _work(assignment: Assignment, state: State, number: int, task: Task) -> Steps:
    if task.work == NONE:
        if task.entry != NONE and task.lease and task.left == NONE:
            yield f"task {number} begins", state.with_task(number, task._replace(work=task.entry))
        return
    has_it = task.entry == task.work
    if task.is_lost:
        if task.lease:
            yield f"task {number} aligns again", state.with_task(number, task._replace(is_lost=False))
    else:
        if task.lease and not task.in_flight:
            broken = "" if task.work == NEWEST else "a former task sends"
            sent = state.with_task(number, task._replace(in_flight=True))
            yield f"task {number} sends", sent._replace(broken=broken)
    if task.is_current and not task.commits:
        # One that began before an interruption goes out as the newest member.
        yield f"task {number} commits", state.with_task(number, task._replace(commits=True))
    if task.in_flight:
        answered = state.with_task(number, task._replace(in_flight=False))
        yield f"the request of task {number} is answered", answered
    if not has_it and (not (task.commits or task.in_flight) or not assignment.keeps(Rule.QUIET)):
        left = task._replace(work=NONE, is_lost=False, left=task.work)
        yield f"task {number} leaves", state.with_task(number, left)


def _commit(state: State, number: int, task: Task) -> State:
    """The coordinator takes each commit of the present generation."""
    answered = state.with_task(number, task._replace(commits=False))
    others = (each for other, each in enumerate(state.tasks) if other != number)
    if any(each.work == NEWEST for each in others):
        return answered._replace(broken="a commit of a former task takes effect")
    return answered


# The driver, its group, and time


def _of_driver(assignment: Assignment, state: State) -> Steps:
    yield "time passes", _pass_time(state)
    if state.ours and 0 < state.place < LEASE:
        yield "a heartbeat is answered", _send_to_all(assignment, state._replace(place=LEASE))
    for number, task in enumerate(state.tasks):
        if task.left != NONE and task.is_known:
            yield f"the driver hears that task {number} left", _hear(assignment, state, number)
    moved = assignment.happened(state, "moves")
    if moved is not None and len(state.tasks) > 1:
        yield "the driver balances", moved._replace(desired=1 - state.desired)
    revoked = assignment.happened(state, "revocations")
    if revoked is not None and state.wanted:
        yield "the group takes the partition away", revoked._replace(wanted=False)
    if not state.wanted and state.holder < 0 and state.ours:
        yield "the driver lets the group have the partition", state._replace(ours=False)
    expelled = assignment.happened(state, "expulsions")
    if expelled is not None and state.place == 0 and state.ours:
        # The session is longer than the lease.
        yield "the group expels the mirror", _forget(expelled.next_generation()._replace(ours=False, place=0))
    if not state.ours:
        again = state.next_generation()._replace(ours=True, wanted=True)
        yield "the group gives the partition back", again
    restarted = assignment.happened(state, "restarts")
    if restarted is not None and (state.place == 0 or not assignment.keeps(Rule.SESSION)):
        tasks = tuple(task._replace(is_known=False, left=NONE) for task in state.tasks)
        fresh = restarted._replace(tasks=tasks).next_generation()
        yield "the driver starts again", _forget(fresh)


def _forget(state: State) -> State:
    """Nothing is in a document: who had the partition has no lease, or not this driver."""
    if state.holder >= 0:
        held = state.tasks[state.holder]
        state = state.with_task(state.holder, held._replace(is_fenced=not held.is_over, asked=-1))
    return state._replace(holder=-1, is_in=False, is_unsettled=False)


def _hear(assignment: Assignment, state: State, number: int) -> State:
    task = state.tasks[number]
    state = state.with_task(number, task._replace(left=NONE, is_fenced=False, heard=0, asked=-1))
    if state.holder < 0 or (task.left != NEWEST and assignment.keeps(Rule.NUMBER)):
        return state
    return state._replace(holder=-1, is_in=False, is_unsettled=False)


def _pass_time(state: State) -> State:
    tasks = tuple(
        task._replace(
            inbox=tuple(line._replace(lease=max(0, line.lease - 1)) for line in task.inbox),
            lease=max(0, task.lease - 1),
            heard=min(task.heard + 1, LEASE),
            given=max(0, task.given - 1),
            asked=task.asked if task.asked < 0 else min(task.asked + 1, PATIENCE + 1),
        )
        for task in state.tasks
    )
    could = any(map(_can_take, tasks))
    holder = tasks[state.holder] if state.is_in else None
    is_live = holder is not None and (holder.given > 0 or holder.heard < LEASE)
    is_idle = state.wanted and state.ours and state.place > 0 and not is_live and could
    idle = min(state.idle + 1, PATIENCE + LEASE + 1) if is_idle else 0
    return state._replace(tasks=tasks, place=max(0, state.place - 1), idle=idle)


def _can_take(task: Task) -> bool:
    is_heard = task.is_known and not task.is_over and task.heard < LEASE
    return is_heard and not task.is_fenced and task.asked < 0


def _converge(assignment: Assignment, state: State) -> State:
    """Free the partition if no task may write it, and give it to a task."""
    state = _ask(assignment, _free(assignment, state))
    if state.holder >= 0 or not state.wanted or not state.ours or state.place == 0:
        return state
    ready = [number for number, task in enumerate(state.tasks) if _can_take(task)]
    if not ready:
        return state
    if state.is_unsettled and assignment.keeps(Rule.FENCE):
        state = _send_to_all(assignment, state.next_generation())
    number = state.desired if state.desired in ready else ready[0]
    return _send(assignment, _grant(state, number), number)


def _grant(state: State, number: int) -> State:
    tasks = tuple(
        task._replace(
            entry=_older(task.entry),
            work=_older(task.work),
            left=_older(task.left),
            inbox=tuple(line._replace(entry=_older(line.entry)) for line in task.inbox),
        )
        for task in state.tasks
    )
    return state._replace(tasks=tasks, holder=number, is_in=True, is_unsettled=False, idle=0)


def _older(entry: int) -> int:
    return FORMER if entry == NEWEST else entry


def _free(assignment: Assignment, state: State) -> State:
    """Take the partition from a task that has ended, is silent, or does not leave in time."""
    if state.holder < 0:
        return state
    task = state.tasks[state.holder]
    is_silent = task.heard == LEASE and assignment.keeps(Rule.RUN_OUT)
    has_run_out = task.given == 0 and (is_silent or task.asked > PATIENCE)
    if not task.is_over and not has_run_out and (state.is_in or assignment.keeps(Rule.LEFT)):
        return state
    state = state.with_task(state.holder, task._replace(is_fenced=not task.is_over, asked=-1))
    return state._replace(holder=-1, is_in=False, is_unsettled=True)


def _ask(assignment: Assignment, state: State) -> State:
    """Ask the holder to leave, if another task should have the partition, or none."""
    if state.holder < 0 or not state.is_in:
        return state
    others = [number for number, task in enumerate(state.tasks) if _can_take(task)]
    moves = state.desired != state.holder and state.desired in others
    if state.wanted and not moves:
        return state
    asked = state.tasks[state.holder]._replace(asked=0)
    return _send(assignment, state.with_task(state.holder, asked)._replace(is_in=False), state.holder)


def _send_to_all(assignment: Assignment, state: State) -> State:
    for number, task in enumerate(state.tasks):
        if not task.is_over and task.is_known and not task.inbox:
            state = _send(assignment, state, number)
    return state


def _send(assignment: Assignment, state: State, number: int) -> State:
    task = state.tasks[number]
    entry = NEWEST if number == state.holder and state.is_in else NONE
    is_frozen = task.is_fenced and assignment.keeps(Rule.FROZEN)
    is_late = task.asked > PATIENCE and assignment.keeps(Rule.PATIENCE)
    full = state.place if assignment.keeps(Rule.GROUP) else LEASE
    if is_frozen or is_late:
        full = 0
    is_counted = assignment.keeps(Rule.READING)
    line = Line(
        entry, max(0, full - task.heard), 0 if is_counted else full, task.is_current if is_frozen else True
    )
    sent = task._replace(inbox=(*task.inbox, line), given=max(task.given, line.lease))
    return state.with_task(number, sent)
