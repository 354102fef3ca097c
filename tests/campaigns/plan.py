"""A trial of tasks as a seed plans it: the world, and what happens in each step."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from shoal.mirroring.model.incidents import Delivery
from tests.world.cuts import CutSetup, CutWorld
from tests.world.tasks import Setup, TaskWorld

from . import cleaner_events, fault_events, incident_events, reader_events, runs  # noqa: F401
from .catalogue import Family, Plan, Step
from .cut_events import CUTS
from .driven_runs import EXECUTORS
from .events import TASKS, TaskEnd
from .kinds import Kind

__all__ = ["CutPlan", "TaskPlan", "draw", "draw_cuts", "draw_executors", "draw_readers"]

TaskPlan: TypeAlias = Plan[Setup, TaskWorld, TaskEnd]
CutPlan: TypeAlias = Plan[CutSetup, CutWorld, bool]

#: The subjects of trials, in turn, so that few seeds have all of them. Faults belong to each.
_FAMILIES: Sequence[Family | None] = (
    *(None, Family.INCIDENTS, Family.POSITIONS, Family.INCIDENTS) * 2,
    *(None, Family.INCIDENTS, Family.CLEANER, Family.OTHER_WRITERS) * 2,
    *(None, Family.POSITIONS),
)


def draw(seed: int, without: Collection[str] = ()) -> TaskPlan:
    """Plan the trial of a seed."""
    dice = random.Random(seed)
    family = _FAMILIES[seed % len(_FAMILIES)]
    setup = _draw_setup(dice, family)
    if family is None and not setup.copy_begins_at and not setup.takes_over:
        setup = _with_a_past(setup, seed)
    # Those that a trial is about come as often as all faults together.
    families = {Family.FAULTS: 1, **({family: 3} if family else {})}
    return Plan(Kind.TASK, seed, setup, family, TASKS.draw_steps(dice, families, (4, 8), without=without))


def _with_a_past(setup: Setup, seed: int) -> Setup:
    """Return a setup whose copy was emptied before, or whose group has an offset, often neither."""
    dice = random.Random(f"{seed}/past")
    # Neither the cleaner nor equal records keep the trial from demanding exact translations.
    past = replace(setup, source_config=(), are_same=False)
    match dice.choice([None, "records", "offset"]):
        case "records":
            return replace(past, copy_begins_at=dice.randint(1, 60))
        case "offset":
            return replace(past, takes_over=True, reads_committed=True, is_verified=False)
    return setup


def draw_executors(seed: int, without: Collection[str] = ()) -> TaskPlan:
    """Plan the trial of a seed whose executors die, join and stall."""
    dice = random.Random(f"{seed}/executors")
    setup = replace(_draw_setup(dice, None), partitions=dice.randint(2, 4))
    steps = TASKS.draw_steps(dice, {Family.FAULTS: 1}, (2, 4), without=without)
    return Plan(Kind.EXECUTORS, seed, setup, None, tuple(Step(each.events, EXECUTORS) for each in steps))


def draw_readers(seed: int, without: Collection[str] = ()) -> TaskPlan:
    """Plan the trial of a seed with consumers at both clusters."""
    dice = random.Random(f"{seed}/readers")
    moves = dice.random() < 0.7
    setup = Setup(
        nodes=dice.choice([1, 1, 2]),
        partitions=dice.randint(1, 2),
        several_in_a_request=dice.random() < 0.4,
        continues=not moves,
        readers=dice.randint(2, 4),
        readers_move=moves,
    )
    # After an incident, a translation is only as exact as it says: then consumers move at the end alone.
    subject = Family.MOVES if moves else Family.DAMAGES
    families = {Family.FAULTS: 1, Family.GROUPS: 3, subject: 3}
    return Plan(
        Kind.READERS, seed, setup, subject, TASKS.draw_steps(dice, families, (5, 10), without=without)
    )


def draw_cuts(seed: int, without: Collection[str] = ()) -> CutPlan:
    """Plan the trial of a seed with cuts and ways back."""
    dice = random.Random(f"{seed}/cuts")
    setup = CutSetup(dice.choice([1, 1, 2]), dice.randint(1, 2), dice.random() < 0.4)
    # A loss often ends the chain of cuts: half of the trials have none, and the others few.
    losses = {Family.INCIDENTS: 1} if random.Random(f"{seed}/losses").random() < 0.5 else {}
    steps = CUTS.draw_steps(dice, {Family.CUTS: 3, **losses}, (6, 12), least=1, without=without)
    return Plan(Kind.CUTS, seed, setup, Family.CUTS, steps)


def _draw_setup(dice: random.Random, family: Family | None) -> Setup:
    is_compacted = family is Family.CLEANER
    policy = (("cleanup.policy", "compact,delete"),) if is_compacted else ()
    takes_over = family is None and dice.random() < 0.2
    return Setup(
        nodes=dice.choice([1, 1, 2]),
        partitions=dice.choice([1, 1, 2, 3]),
        several_in_a_request=dice.random() < 0.4,
        reads_committed=takes_over or dice.random() < 0.85,
        delivery=Delivery.AT_LEAST_ONCE if family is Family.OTHER_WRITERS else Delivery.EXACTLY_ONCE,
        keeps_append_time=dice.random() < 0.2,
        source_config=policy or ((("cleanup.policy", "compact,delete"),) if dice.random() < 0.5 else ()),
        destination_config=(*policy, *_some_copy_config(dice)),
        are_same=family is None and not takes_over and dice.random() < 0.25,
        # Sequences begin again at 2^31.
        copy_begins_at=2**31 - dice.randint(1, 60) if family is None and dice.random() < 0.1 else 0,
        continues=family is not Family.POSITIONS and dice.random() < 0.6,
        has_incidents=family is Family.INCIDENTS,
        is_verified=family is None and not takes_over and dice.random() < 0.3,
        # Without a position, to accept an incident means to copy records again.
        operator_accepts=family is not Family.POSITIONS,
        adopts=family is Family.POSITIONS and dice.random() < 0.7,
        # A position has about 450 without runs and milestones.
        most_metadata_bytes=dice.choice([4_096, 4_096, 4_096, 1_500, 600]),
        sends_natively=dice.random() < 0.5,
        lists_names=dice.random() < 0.2,
        takes_over=takes_over,
    )


def _some_copy_config(dice: random.Random) -> Sequence[tuple[str, str]]:
    config = []
    if dice.random() < 0.15:
        config.append(("message.timestamp.type", "LogAppendTime"))
    if dice.random() < 0.2:
        config.append(("compression.type", dice.choice(["gzip", "lz4", "snappy", "zstd", "uncompressed"])))
    return config
