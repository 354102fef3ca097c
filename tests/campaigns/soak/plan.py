"""The disturbances of clusters and mirror in a soak, with their times: drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.campaigns.clusters.plan import BROKERS, Side

__all__ = ["Disturbance", "Kind", "Plan", "draw"]


class Kind(Enum):
    """Kinds of disturbances of a cluster or of the mirror."""

    MOVE_LEADERS = "leaders move"
    RESTART_BROKER = "clean restart of a broker"
    KILL_BROKER = "kill -9 and start of a broker"
    NEW_TOPIC = "new topic"
    NEW_PARTITION = "new partition"
    KILL_WORKER = "kill -9 of a Python worker"
    RESTART_MIRROR = "SIGTERM and start of the mirror"


#: Disturbances of every soak, however short.
_ALWAYS = (
    (Kind.MOVE_LEADERS, Side.SOURCE),
    (Kind.MOVE_LEADERS, Side.DESTINATION),
    (Kind.RESTART_BROKER, Side.SOURCE),
    (Kind.RESTART_BROKER, Side.DESTINATION),
    (Kind.NEW_TOPIC, Side.SOURCE),
    (Kind.NEW_PARTITION, Side.SOURCE),
)
#: Further disturbances, if there is time.
_ALSO = (
    (Kind.KILL_BROKER, Side.SOURCE),
    (Kind.KILL_BROKER, Side.DESTINATION),
    (Kind.KILL_WORKER, None),
)

#: Between two disturbances, if there is time; a broker's restart is over after 20 to 30 s.
_INTERVAL_S = 100.0
#: The last part of a run has no disturbance, so that its end is distinguishable from one.
_QUIET_END = 0.08
#: Time of the mirror's restart, as a part of the run: early, since memory is judged over one process.
_RESTART_AT = 0.12


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A disturbance of a cluster or of the mirror.

    Attributes:
        at_s: Time since the mirror caught up with the load for the first time.
        side: Side of the cluster; None for the mirror.
        node_id: The broker; or the number of steps by which each partition's leader moves.
        down_s: Time between a broker's end and its start.
    """

    kind: Kind
    at_s: float
    side: Side | None = None
    node_id: int = 1
    down_s: float = 0.0

    def __str__(self) -> str:
        where = f" ({self.side.value})" if self.side else ""
        return f"{self.kind.value}{where}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a soak.

    Attributes:
        seconds: Duration of the load after the mirror has caught up with it.
        records_per_s: Rate over all topics.
        refresh_s: The mirror's ``--refresh``.
        ends_within_s: Limit from SIGTERM to the mirror's end.
        noticed_within_s: Limit, in addition to ``refresh_s``, until the first record of a new topic or
            partition has arrived.
    """

    seed: int
    seconds: float
    records_per_s: int
    refresh_s: int
    ends_within_s: float
    noticed_within_s: float
    disturbances: tuple[Disturbance, ...]


def draw(
    seed: int,
    minutes: float,
    records_per_s: int = 200,
    refresh_s: int = 30,
    ends_within_s: float = 3.0,
    noticed_within_s: float = 15.0,
) -> Plan:
    """Draw a plan: the same arguments make the same one."""
    dice = random.Random(seed)
    seconds = minutes * 60
    kinds = _kinds(dice, int(seconds / _INTERVAL_S))
    step = seconds * (1 - _QUIET_END) / len(kinds)
    return Plan(
        seed,
        seconds,
        records_per_s,
        refresh_s,
        ends_within_s,
        noticed_within_s,
        tuple(_disturbance(dice, *what, (number + 0.2) * step) for number, what in enumerate(kinds)),
    )


def _kinds(dice: random.Random, count: int) -> Sequence[tuple[Kind, Side | None]]:
    if count <= len(_ALWAYS) + len(_ALSO):
        return dice.sample(_ALWAYS, len(_ALWAYS))
    kinds: list[tuple[Kind, Side | None]] = []
    while len(kinds) < count - 1:
        deck = [*_ALWAYS, *_ALSO]
        kinds += dice.sample(deck, len(deck))
    del kinds[count - 1 :]
    kinds.insert(round(count * _RESTART_AT), (Kind.RESTART_MIRROR, None))
    return kinds


def _disturbance(dice: random.Random, kind: Kind, side: Side | None, at_s: float) -> Disturbance:
    by = dice.randint(1, BROKERS - 1) if kind is Kind.MOVE_LEADERS else dice.randint(1, BROKERS)
    return Disturbance(kind, at_s, side, by, down_s=dice.choice([0.2, 2.0, 10.0]))
