"""One trial: a plan, step by step, and the judge after every step."""

from __future__ import annotations

import random
from typing import Any, NamedTuple
from unittest.mock import patch

from shoal.client import send
from shoal.mirroring.model.incidents import IncidentKind
from shoal.native import NATIVE, Native
from tests.world.copies import check_copies, check_places
from tests.world.cuts import CutWorld
from tests.world.quiet import check_in_quiet
from tests.world.reports import Outcome
from tests.world.tasks import TaskWorld
from tests.world.verifying import verified

from .catalogue import Step
from .events import TaskEnd
from .plan import CutPlan, TaskPlan

__all__ = ["Result", "run_cuts", "run_trial"]

#: How many tasks may fail at the end, when all faults are over.
_LAST_ATTEMPTS = 3


class Result(NamedTuple):
    """
    The result of a trial.

    Attributes:
        problems: Sentences about what was wrong first, with the step after which it was found.
        records: The most records that were compared after a step.

    """

    problems: list[str]
    records: int


def run_trial(plan: TaskPlan) -> Result:
    """Run a trial, up to the first step after which anything is wrong."""
    native = _Counted(NATIVE) if NATIVE and plan.setup.sends_natively else None
    started = TaskWorld.started(plan.setup, random.Random(f"{plan.seed}/world"))
    with patch.object(send, "NATIVE", native), started as world:
        for number, step in enumerate(plan.steps):
            _run_step(world, step, f"{plan.seed}/{number}")
            if world.problems:
                return Result([f"after step {number}: {each}" for each in world.problems], world.compared)
        _settle(world)
        is_damaged = any(each.is_damaged for each in world.partitions)
        if not (world.problems or world.blocked or is_damaged):
            before = native and native.requests, world.copied_records
            check_in_quiet(world)
            if native and native.requests == before[0] and world.copied_records > before[1]:
                world.problems.append("nothing was sent natively")
        is_due = any(
            each.is_shown and not each.may_lack
            for partition in world.partitions
            for each in partition.records
        )
        if is_due and not (world.compared or world.blocked):
            world.problems.append("no record was compared")
        return Result([f"at the end: {each}" for each in world.problems], world.compared)


def run_cuts(plan: CutPlan) -> Result:
    """Run a trial with cuts, up to the first step after which anything is wrong."""
    with CutWorld.started(plan.setup, random.Random(f"{plan.seed}/world")) as world:
        world.write()
        for number, step in enumerate(plan.steps):
            world.check(is_complete=step.play(world, f"{plan.seed}/{number}"))
            if world.problems:
                return Result([f"after step {number}: {each}" for each in world.problems], world.compared)
        world.end_faults()
        if world.run():
            world.check(is_complete=True)
        return Result([f"at the end: {each}" for each in world.problems], world.compared)


class _Counted:
    """The native sender, which counts the requests that it sends."""

    def __init__(self, native: Native) -> None:
        self.requests = 0
        self._native = native

    def send(self, *args: Any, **more: Any) -> Any:
        sent = self._native.send(*args, **more)
        self.requests += sent[-1]
        return sent


def _run_step(world: TaskWorld, step: Step[TaskWorld, TaskEnd], seed: str) -> None:
    for each in world.partitions:
        each.grow()
    outcome, ends = step.play(world, seed)
    check_copies(world, outcome, ends)
    world.readers.check(to_end=False)
    for control in world.controls:
        check_places(world, control)
    world.controls.clear()
    world.end_step()
    if outcome.stopped and world.setup.operator_accepts and world.dice.random() < 0.7:
        world.set(continue_after=frozenset(IncidentKind))


def _settle(world: TaskWorld) -> None:
    """End all that is wrong, let the operator accept all incidents, and copy the rest."""
    world.end_faults()
    world.let_late_requests_arrive()
    world.be_hasty_about_gaps()  # a log may end behind one
    if world.setup.operator_accepts:
        world.set(continue_after=frozenset(IncidentKind))
    for each in world.partitions:
        each.end_transactions()
    world.blocked.clear()
    for _ in range(_LAST_ATTEMPTS):
        ends = [each.end_offset for each in world.closed_ranges()]
        outcome = world.run()
        check_copies(world, outcome, ends)
        if world.problems or (outcome.is_complete and not outcome.stopped):
            break
    else:
        _note_unfinished(world, outcome)
    for control in world.controls:
        check_places(world, control)
    world.controls.clear()
    if not world.problems:
        world.readers.check(to_end=True)
    lacks_none = not any(each.may_lack for partition in world.partitions for each in partition.records)
    lacks_none = lacks_none and not world.level_has_changed
    if world.setup.is_verified and not world.problems and lacks_none:
        found = [each.outcome.name for each in verified(world.brokers).partitions]
        if found != ["EQUAL"] * len(found):
            world.problems.append(f"verify says {found}")


def _note_unfinished(world: TaskWorld, outcome: Outcome) -> None:
    if not outcome.is_complete:
        world.problems.append("the last task did not complete")
    if not world.setup.operator_accepts:
        # Each stop is one that an event explains: the world has noted all others.
        world.blocked.update(outcome.stopped)
    world.problems += [
        f"partition {number} stopped: {reason}"
        for number, reason in outcome.stopped.items()
        if number not in world.blocked
    ]
