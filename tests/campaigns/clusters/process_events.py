"""Processes of the mirror are killed, stopped or paused, and a second mirror wants its group."""

from __future__ import annotations

import random

from .events import Family, happens
from .processes import MirrorRun, Part
from .world import ClustersWorld

__all__: list[str] = []

#: The longest pause exceeds the timeouts of requests and sessions.
_PAUSES_S = (0.5, 1.5, 6.0, 12.0)


def _pause(world: ClustersWorld, dice: random.Random, part: Part) -> None:
    paused_s = dice.choice(_PAUSES_S)
    world.to_mirror(dice, lambda run: run.pause(part, paused_s))


@happens(Family.SPARK, weight=5)
def mirror_is_killed(world: ClustersWorld, dice: random.Random) -> None:
    """Kill the mirror's first process, or its JVM, too."""
    world.to_mirror(dice, dice.choice([MirrorRun.kill_with_jvm, MirrorRun.kill]))


@happens(Family.SPARK, weight=2)
def mirror_is_paused(world: ClustersWorld, dice: random.Random) -> None:
    """The mirror's first process stands still."""
    _pause(world, dice, Part.DRIVER)


@happens(Family.SPARK, weight=4)
def python_worker_is_killed(world: ClustersWorld, dice: random.Random) -> None:
    """Kill the process of some tasks."""
    world.to_mirror(dice, MirrorRun.kill_workers)


@happens(Family.SPARK, weight=2)
def jvm_is_killed(world: ClustersWorld, dice: random.Random) -> None:
    """Kill the JVM of the driver."""
    world.to_mirror(dice, MirrorRun.kill_jvm)


@happens(Family.SPARK, weight=2)
def mirror_is_stopped(world: ClustersWorld, dice: random.Random) -> None:
    """Let the mirror end in good order."""
    world.to_mirror(dice, MirrorRun.stop)


@happens(Family.SPARK, weight=2)
def python_workers_are_paused(world: ClustersWorld, dice: random.Random) -> None:
    """The processes of all tasks stand still."""
    _pause(world, dice, Part.WORKERS)


@happens(Family.SPARK, weight=1)
def whole_mirror_is_paused(world: ClustersWorld, dice: random.Random) -> None:
    """All processes of the mirror stand still."""
    _pause(world, dice, Part.ALL)


@happens(Family.SPARK, weight=1)
def another_mirror_wants_the_group(world: ClustersWorld, dice: random.Random) -> None:
    """Whichever of the two mirrors copies, the copy is exact."""
    world.later(dice, world.contend)


@happens(Family.SPARK, weight=2)
def one_python_worker_is_killed(world: ClustersWorld, dice: random.Random) -> None:
    """Kill one worker: its partitions move to the tasks of the others."""
    world.to_mirror(dice, MirrorRun.kill_worker)
