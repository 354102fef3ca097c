"""
A trial as a seed plans it: the world, and what happens in each step.

A plan names events and runs alone. Each draws its details from dice of its own, so a trial without one of
them is otherwise the same: ``python -m tests.campaigns --seed N --without 'EVENT'`` shows which ones matter.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shoal.mirroring.model.incidents import Delivery
from tests.world.tasks import Setup

from . import cleaner_events, fault_events, incident_events  # noqa: F401  they register their events
from .events import EVENTS, Event, Family
from .runs import RUNS, Run

__all__ = ["Plan", "Step", "draw"]

#: The subjects of trials, and how often each comes. Faults belong to each.
_FAMILIES: dict[Family | None, int] = {
    None: 5,
    Family.INCIDENTS: 6,
    Family.CLEANER: 2,
    Family.POSITIONS: 1,
    Family.OTHER_WRITERS: 1,
}


@dataclass(frozen=True, slots=True)
class Step:
    """The events before a run, and the run."""

    events: tuple[Event, ...]
    run: Run

    def __str__(self) -> str:
        return ", ".join(each.name for each in self.events) + f" | {self.run.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial; the same seed makes the same one."""

    seed: int
    setup: Setup
    family: Family | None
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.setup}"]
        return "\n".join([*lines, *(f"  {number}: {each}" for number, each in enumerate(self.steps))])


def draw(seed: int, without: Collection[str] = ()) -> Plan:
    """Plan the trial of a seed."""
    dice = random.Random(seed)
    family = dice.choices(list(_FAMILIES), list(_FAMILIES.values()))[0]
    setup = _draw_setup(dice, family)
    events = [each for each in EVENTS.values() if each.family in (Family.FAULTS, family)]
    # Those that a trial is about come as often as all faults together.
    weights = [each.weight * (1 if each.family is Family.FAULTS else 3) for each in events]
    steps = []
    for _ in range(dice.randint(4, 8)):
        drawn = dice.choices(events, weights, k=dice.randint(0, 3))
        run = dice.choices(list(RUNS.values()), [each.weight for each in RUNS.values()])[0]
        steps.append(Step(tuple(each for each in drawn if each.name not in without), run))
    return Plan(seed, setup, family, tuple(steps))


def _draw_setup(dice: random.Random, family: Family | None) -> Setup:
    is_compacted = family is Family.CLEANER
    policy = (("cleanup.policy", "compact,delete"),) if is_compacted else ()
    return Setup(
        nodes=dice.choice([1, 1, 2]),
        partitions=dice.choice([1, 1, 2, 3]),
        several_in_a_request=dice.random() < 0.4,
        reads_committed=dice.random() < 0.85,
        delivery=Delivery.AT_LEAST_ONCE if family is Family.OTHER_WRITERS else Delivery.EXACTLY_ONCE,
        keeps_append_time=dice.random() < 0.2,
        source_config=policy or ((("cleanup.policy", "compact,delete"),) if dice.random() < 0.5 else ()),
        destination_config=(*policy, *_some_copy_config(dice)),
        are_same=family is None and dice.random() < 0.25,
        # Sequences begin again at 2^31.
        copy_begins_at=2**31 - dice.randint(1, 60) if family is None and dice.random() < 0.1 else 0,
        continues=family is not Family.POSITIONS and dice.random() < 0.6,
        is_verified=family is None and dice.random() < 0.3,
        # Without a position, to accept an incident means to copy records again.
        operator_accepts=family is not Family.POSITIONS,
    )


def _some_copy_config(dice: random.Random) -> Sequence[tuple[str, str]]:
    config = []
    if dice.random() < 0.15:
        config.append(("message.timestamp.type", "LogAppendTime"))
    if dice.random() < 0.2:
        config.append(("compression.type", dice.choice(["gzip", "lz4", "snappy", "zstd", "uncompressed"])))
    return config
