"""Topics of the source that are created, grow, or are created again, while the mirror runs or does not."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from shoal.mirroring.model.incidents import IncidentKind

from .events import CLUSTERS, Family, happens
from .processes import MirrorRun, Part
from .world import ClustersWorld

__all__: list[str] = []

#: Additional time of the mirror's pause, or of its absence, after the change.
_DOWN_S = (0.0, 1.5)

#: The reason for which a partition of a recreated topic stops (docs/operating.md).
_CREATED_AGAIN = "created again"

#: Kafka deletes positions with their topic. If the new one has grown as long as the copy before the mirror
#: sees it, nothing shows that it is another (docs/guarantees.md).
_NO_POSITION = "no committed position"


def _change_while_it_runs(world: ClustersWorld, dice: random.Random, change: Callable[[], None]) -> None:
    world.later(dice, change)


def _change_while_paused(
    world: ClustersWorld, dice: random.Random, change: Callable[[], None], part: Part
) -> None:
    down_s = dice.choice(_DOWN_S)

    def change_paused(run: MirrorRun) -> None:
        with run.paused_part(part):
            change()
            time.sleep(down_s)  # the additional pause, not a wait for a condition

    world.to_mirror(dice, change_paused)


def _change_while_down(
    world: ClustersWorld,
    dice: random.Random,
    change: Callable[[], None],
    end: Callable[[MirrorRun], None],
) -> None:
    down_s = dice.choice(_DOWN_S)

    def change_down() -> None:
        with world.down(end):
            change()
            time.sleep(down_s)  # the additional absence, not a wait for a condition

    world.later(dice, change_down)


_MEANWHILE: dict[str, Callable[[ClustersWorld, random.Random, Callable[[], None]], None]] = {
    "while it runs": _change_while_it_runs,
    "while its workers are paused": partial(_change_while_paused, part=Part.WORKERS),
    "while all of it is paused": partial(_change_while_paused, part=Part.ALL),
    "between kill and start": partial(_change_while_down, end=MirrorRun.kill_with_jvm),
    "between stop and start": partial(_change_while_down, end=MirrorRun.stop),
}


def _topic_is_created_again(world: ClustersWorld, dice: random.Random, meanwhile: str) -> None:
    rounds = dice.randint(1, world.setup.rounds)
    # A mirror with --start latest may leave out what a new topic has before the mirror sees it.
    if not world.setup.starts_latest:
        _MEANWHILE[meanwhile](world, dice, lambda: world.topics.create_again(rounds))


def _partitions_are_added(world: ClustersWorld, dice: random.Random, meanwhile: str) -> None:
    added, rounds = dice.randint(1, 3), dice.randint(1, world.setup.rounds // 2)
    _MEANWHILE[meanwhile](world, dice, lambda: world.topics.add_partitions(added, rounds))


def _topic_is_created(world: ClustersWorld, dice: random.Random, meanwhile: str) -> None:
    partitions, rounds = dice.randint(1, 3), dice.randint(1, world.setup.rounds // 2)
    _MEANWHILE[meanwhile](world, dice, lambda: world.topics.add_topic(partitions, rounds))


_GROWTH = {"partitions are added": _partitions_are_added, "topic is created": _topic_is_created}

for _name in _MEANWHILE:
    CLUSTERS.add(
        f"source topic is created again {_name}",
        Family.RECREATED,
        partial(_topic_is_created_again, meanwhile=_name),
        weight=2,
        incidents=[IncidentKind.SOURCE_RESET],
        stops=[_CREATED_AGAIN, _NO_POSITION],
    )
    for _what, _change in _GROWTH.items():
        CLUSTERS.add(f"{_what} {_name}", Family.TOPICS, partial(_change, meanwhile=_name))


@happens(Family.FAULTS, weight=2)
def source_grows(world: ClustersWorld, dice: random.Random) -> None:
    """Producers write while the mirror runs."""
    rounds = dice.randint(1, world.setup.rounds // 3)
    world.later(dice, lambda: world.topics.load(rounds))
