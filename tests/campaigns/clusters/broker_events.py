"""Brokers end and come back, leaders move, and disks are full: at either side."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from .arena import BROKERS, Arena, Ending, Side, controller_of
from .events import CLUSTERS, Family

__all__ = ["BrokerWorld", "broker_ends", "leaders_move"]

_DOWN_S = (0.0, 1.5, 5.0)


class BrokerWorld(Protocol):
    """A world of two clusters whose brokers may end."""

    arena: Arena

    def later(self, dice: random.Random, act: Callable[[], object]) -> None: ...

    def mirrored(self, side: Side) -> Sequence[str]:
        """Return the topics of a side that the mirror reads or writes."""
        ...


def broker_ends(world: BrokerWorld, dice: random.Random, side: Side, ending: Ending) -> None:
    """A broker ends and comes back."""
    node_id, down_s = dice.randint(1, BROKERS), dice.choice(_DOWN_S)
    world.later(dice, lambda: world.arena.restart(side, node_id, ending, down_s))


def leaders_move(world: BrokerWorld, dice: random.Random, side: Side) -> None:
    """Each partition's leadership moves to another broker."""
    steps = dice.randint(1, BROKERS - 1)

    def move() -> None:
        for topic in world.mirrored(side):
            world.arena.move_leaders(side, topic, steps)

    world.later(dice, move)


def _controller_ends(world: BrokerWorld, dice: random.Random, side: Side, ending: Ending) -> None:
    down_s = dice.choice(_DOWN_S)
    world.later(dice, lambda: world.arena.restart(side, controller_of, ending, down_s))


def _disk_is_full(world: BrokerWorld, dice: random.Random) -> None:
    if world.arena.has_disks:
        broker_ends(world, dice, Side.DESTINATION, Ending.FULL_DISK)


for _side, _weight in ((Side.SOURCE, 1), (Side.DESTINATION, 2)):
    for _ending, _how in ((Ending.KILL, "is killed"), (Ending.STOP, "restarts")):
        CLUSTERS.add(
            f"broker of the {_side.value} {_how}",
            Family.FAULTS,
            partial(broker_ends, side=_side, ending=_ending),
            _weight,
        )
        CLUSTERS.add(
            f"controller of the {_side.value} {_how}",
            Family.FAULTS,
            partial(_controller_ends, side=_side, ending=_ending),
        )
    CLUSTERS.add(
        f"leaders of the {_side.value} move", Family.FAULTS, partial(leaders_move, side=_side), _weight
    )
CLUSTERS.add("disk of the destination is full", Family.FAULTS, _disk_is_full)
