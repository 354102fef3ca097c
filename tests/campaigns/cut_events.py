"""Certificates of cuts, writes before and behind them at both sides, ways back, and losses at both sides."""

from __future__ import annotations

import random

from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from tests.world.control import Mortal, Watched
from tests.world.cuts import CutWorld

from .catalogue import Catalogue, Family
from .incident_events import AFTER_RETENTION

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
    world.go_back(lambda cuts: cuts[-1])


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


# At either side of the mirror, a log may be what it writes to in one direction, and reads in the other.
_TAIL = (IncidentKind.SOURCE_RESET, IncidentKind.DESTINATION_LOSS)
_ANOTHER = (*_TAIL, IncidentKind.FOREIGN_RECORDS)


@happens(Family.INCIDENTS, incidents=_TAIL, stops=AFTER_RETENTION)
def source_loses_its_tail_after_a_certificate(world: CutWorld, dice: random.Random) -> None:
    """An unclean election where the mirror reads: the last batches are gone, those of a cut or later ones."""
    if world.cuts:
        world.lose_tail(world.mirror.source, dice.randrange(len(world.written)))


@happens(Family.INCIDENTS, incidents=_TAIL, stops=AFTER_RETENTION)
def copy_loses_its_tail_after_a_certificate(world: CutWorld, dice: random.Random) -> None:
    """The same where the mirror writes, and behind a cut the producers."""
    if world.cuts:
        world.lose_tail(world.mirror.destination, dice.randrange(len(world.written)))


@happens(Family.INCIDENTS, incidents=[IncidentKind.SOURCE_RETENTION], stops=AFTER_RETENTION)
def source_deletes_records_after_a_certificate(world: CutWorld, dice: random.Random) -> None:
    """Retention where the mirror reads, perhaps before it has copied what is deleted."""
    if world.cuts:
        world.delete_records(world.mirror.source, dice.randrange(len(world.written)))


@happens(Family.INCIDENTS, incidents=[IncidentKind.SOURCE_RETENTION], stops=AFTER_RETENTION)
def copy_deletes_records_after_a_certificate(world: CutWorld, dice: random.Random) -> None:
    """Retention where the mirror writes, before a cut or behind it."""
    if world.cuts:
        world.delete_records(world.mirror.destination, dice.randrange(len(world.written)))


@happens(Family.INCIDENTS, incidents=_ANOTHER, stops=AFTER_RETENTION)
def source_is_created_again_after_a_certificate(world: CutWorld, dice: random.Random) -> None:
    """An operator deletes the topic where the mirror reads, and creates it again."""
    if world.cuts:
        world.create_again(world.mirror.source)


@happens(Family.INCIDENTS, incidents=_ANOTHER, stops=AFTER_RETENTION)
def copy_is_created_again_after_a_certificate(world: CutWorld, dice: random.Random) -> None:
    """An operator deletes the topic where the mirror writes, and creates it again."""
    if world.cuts:
        world.create_again(world.mirror.destination)


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
