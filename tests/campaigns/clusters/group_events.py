"""Coordinators of consumer groups move or end, and the mirror dies around the commit of a translation."""

from __future__ import annotations

import random
from functools import partial

from rig.leaders import CONSUMER_OFFSETS
from rig.proxy import Disturbance, Step
from shoal.protocol.apis import ApiKey

from .arena import BROKERS, Ending, Side, coordinator_of
from .events import CLUSTERS, Family, happens
from .world import ClustersWorld

__all__: list[str] = []

#: Time for which the commit of a translated offset is held up, so that the mirror can be killed meanwhile.
_HELD_S = 5.0


def _coordinators_move(world: ClustersWorld, dice: random.Random, side: Side) -> None:
    steps = dice.randint(1, BROKERS - 1)
    world.later(dice, lambda: world.arena.move_leaders(side, CONSUMER_OFFSETS, steps))


def _coordinator_is_killed(world: ClustersWorld, dice: random.Random, side: Side) -> None:
    down_s = dice.choice([0.0, 1.5, 5.0])
    world.later(dice, lambda: world.arena.restart(side, coordinator_of, Ending.KILL, down_s))


for _side in Side:
    CLUSTERS.add(
        f"group coordinators of the {_side.value} move",
        Family.GROUPS,
        partial(_coordinators_move, side=_side),
    )
    CLUSTERS.add(
        f"group coordinator of the {_side.value} is killed",
        Family.GROUPS,
        partial(_coordinator_is_killed, side=_side),
    )


@happens(Family.GROUPS, weight=2)
def mirror_is_killed_before_it_commits_a_translation(world: ClustersWorld, dice: random.Random) -> None:
    """The coordinator never gets the commit of a translated offset."""
    world.later(dice, lambda: world.kill_at(_held(Step.BEFORE_REQUEST)))


@happens(Family.GROUPS, weight=2)
def mirror_is_killed_after_it_commits_a_translation(world: ClustersWorld, dice: random.Random) -> None:
    """The coordinator has a translated offset, and the mirror never knows."""
    world.later(dice, lambda: world.kill_at(_held(Step.BEFORE_RESPONSE)))


def _held(step: Step) -> Disturbance:
    return Disturbance(ApiKey.OFFSET_COMMIT, step, stall_s=_HELD_S)
