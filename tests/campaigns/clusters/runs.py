"""The ways in which a mirror runs between real clusters: once, following, killed, stopped."""

from __future__ import annotations

import random
import signal

from .events import runs
from .processes import MirrorRun
from .world import ClustersWorld

__all__: list[str] = []


@runs(weight=3)
def once(world: ClustersWorld, dice: random.Random) -> None:
    """``--once``, again and again if it is killed, until all is copied."""
    world.copy_all(follows=False)


@runs(weight=5)
def following(world: ClustersWorld, dice: random.Random) -> None:
    """A mirror follows the source until all events have come and all is copied; then it is stopped."""
    world.copy_all(follows=True)


@runs(weight=3)
def killed_on_the_way(world: ClustersWorld, dice: random.Random) -> None:
    """The mirror is killed at a moment, and the copy stays as it is then."""
    world.copy_until_a_moment(dice, MirrorRun.kill_with_jvm)


@runs(weight=2)
def stopped_on_the_way(world: ClustersWorld, dice: random.Random) -> None:
    """The mirror is stopped at a moment, and the copy stays as it is then."""
    world.copy_until_a_moment(dice, lambda run: run.send_signal(signal.SIGTERM))
