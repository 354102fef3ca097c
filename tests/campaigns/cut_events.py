"""Certificates of cuts, writes before and behind them at both sides, and ways back."""

from __future__ import annotations

import random

from shoal.protocol.apis import ApiKey
from tests.world.control import Mortal, Watched
from tests.world.cuts import CutWorld

from .catalogue import Catalogue, Family

__all__ = ["CUTS"]

#: The most checks of a lease before a task dies.
_LATEST_CHECK = 12

CUTS: Catalogue[CutWorld, bool] = Catalogue()
happens, runs = CUTS.happens, CUTS.runs


@happens(Family.CUTS, weight=4)
def producers_write(world: CutWorld, dice: random.Random) -> None:
    """Producers write where they are: before a cut at the mirror's source, behind it at its destination."""
    world.write()


@happens(Family.CUTS)
def a_producer_is_late(world: CutWorld, dice: random.Random) -> None:
    """A producer writes at the mirror's source after a certificate, whether others have moved or not."""
    world.write(late=world.are_there)


@happens(Family.CUTS, weight=4)
def cut_is_certified(world: CutWorld, dice: random.Random) -> None:
    """The mirror copies all, and an operator certifies the cut, perhaps once more."""
    world.certify()


@happens(Family.CUTS, weight=4)
def mirror_goes_back(world: CutWorld, dice: random.Random) -> None:
    """An operator starts the mirror the other way, with the newest certificate."""
    world.go_back(lambda certificates: certificates[-1])


@happens(Family.CUTS)
def mirror_goes_back_with_any_certificate(world: CutWorld, dice: random.Random) -> None:
    """The same, with a certificate that may be of an earlier cut."""
    world.go_back(dice.choice)


@happens(Family.CUTS, weight=2)
def mirror_starts_with_its_certificate_again(world: CutWorld, dice: random.Random) -> None:
    """An operator starts the mirror as before, and the option still names the certificate."""
    world.start_again()


@happens(Family.CUTS, weight=2)
def request_of_the_mirror_fails(world: CutWorld, dice: random.Random) -> None:
    """A later request is not answered, whether it took effect or not."""
    api = dice.choice([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT])
    clusters = world.mirror.destinations if api is ApiKey.PRODUCE else world.mirror.sources
    faults = dice.choice(clusters.nodes).faults
    faults.add(api, times=dice.randint(1, 4))
    faults.add(api, drop=dice.choice(["before", "within", "after"]))


@runs(weight=3)
def to_its_end(world: CutWorld, dice: random.Random) -> bool:
    """The mirror copies up to the present ends."""
    return world.run()


@runs(weight=2)
def dying(world: CutWorld, dice: random.Random) -> bool:
    """The mirror's process dies at some step, if it lives so long."""
    return world.run(Mortal(dice.randint(0, _LATEST_CHECK)))


@runs()
def ending_early(world: CutWorld, dice: random.Random) -> bool:
    """The driver asks the task at some step to end in good order."""
    acting = Watched(dice.randint(0, _LATEST_CHECK), lambda: acting.request_stop())
    world.run(acting)
    return False
