"""The events of a soak, with their times: drawn from a seed, each required one at least once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tests.campaigns.catalogue import Catalogue, Event, Family, Plan, Run, Step
from tests.campaigns.clusters.arena import Ending, Side
from tests.campaigns.clusters.broker_events import broker_ends, leaders_move
from tests.campaigns.kinds import Kind

if TYPE_CHECKING:
    from .world import SoakWorld

__all__ = ["EVENTS", "Setup", "SoakPlan", "draw"]

#: Between two events, if there is time; a broker's restart is over after 20 to 30 s.
_INTERVAL_S = 100.0
#: The last part of a run has no event, so that its end is distinguishable from one.
_QUIET_END = 0.08
#: Time of the mirror's restart, as a part of the run: early, since memory is judged over one process.
_RESTART_AT = 0.12


@dataclass(frozen=True, slots=True)
class Setup:
    """The properties of a soak.

    Attributes:
        seconds: Duration of the load after the mirror has caught up with it.
        records_per_s: Rate over all topics.
        refresh_s: The mirror's ``--refresh``.
        ends_within_s: Limit from SIGTERM to the mirror's end.
        noticed_within_s: Limit, in addition to ``refresh_s``, until the first record of a new topic or
            partition has arrived.
    """

    seconds: float
    records_per_s: int = 200
    refresh_s: int = 30
    ends_within_s: float = 3.0
    noticed_within_s: float = 15.0


SoakPlan: TypeAlias = Plan[Setup, "SoakWorld", None]

#: Each soak has the events of topics, elections and clean restarts; the faults come if there is time.
_SOAK: Catalogue[SoakWorld, None] = Catalogue()

#: All events by name.
EVENTS = _SOAK.events


@_SOAK.happens(Family.TOPICS)
def topic_is_created(world: SoakWorld, dice: random.Random) -> None:
    """The source gets a topic that the mirror matches."""
    world.notice_topic(dice)


@_SOAK.happens(Family.TOPICS)
def partition_is_added(world: SoakWorld, dice: random.Random) -> None:
    """A topic of the source gets a partition."""
    world.notice_partition(dice)


for _side in Side:
    _SOAK.add(f"leaders of the {_side.value} move", Family.TOPICS, partial(leaders_move, side=_side))
    for _ending, _name, _family in (
        (Ending.STOP, "restarts", Family.TOPICS),
        (Ending.KILL, "is killed", Family.FAULTS),
    ):
        _change = partial(broker_ends, side=_side, ending=_ending)
        _SOAK.add(f"broker of the {_side.value} {_name}", _family, _change)


@_SOAK.happens(Family.FAULTS)
def python_worker_is_killed(world: SoakWorld, dice: random.Random) -> None:
    """Kill a process of the mirror's tasks."""
    world.mirror.process.kill_workers()


@_SOAK.happens(Family.SPARK)
def mirror_is_restarted(world: SoakWorld, dice: random.Random) -> None:
    """An operator stops the mirror, and starts it again."""
    world.restart_mirror()


def draw(seed: int, setup: Setup) -> SoakPlan:
    """Draw a plan: the same arguments make the same one."""
    dice = random.Random(seed)
    events = _events(dice, int(setup.seconds / _INTERVAL_S))
    interval_s = setup.seconds * (1 - _QUIET_END) / len(events)
    # The first event comes a little after the mirror has caught up.
    moments = [(number + 0.2) * interval_s for number in range(len(events))]
    steps = [
        Step((event,), _until(at_s))
        for event, at_s in zip(events, [*moments[1:], setup.seconds], strict=True)
    ]
    return Plan(Kind.SOAK, seed, setup, None, (Step((), _until(moments[0])), *steps))


def _until(at_s: float) -> Run[SoakWorld, None]:
    return Run(f"until {at_s:.0f} s", 1, partial(_wait, at_s=at_s))


def _wait(world: SoakWorld, dice: random.Random, at_s: float) -> None:
    world.wait_until(at_s)


def _events(dice: random.Random, count: int) -> Sequence[Event[SoakWorld]]:
    """Draw events: those that every soak has, or all of them again and again if there is time."""
    required = [each for each in EVENTS.values() if each.family is Family.TOPICS]
    further = [each for each in EVENTS.values() if each.family is Family.FAULTS]
    if count <= len(required) + len(further):
        return dice.sample(required, len(required))
    events: list[Event[SoakWorld]] = []
    while len(events) < count - 1:
        events += dice.sample([*required, *further], len(required) + len(further))
    del events[count - 1 :]
    events.insert(round(count * _RESTART_AT), EVENTS["mirror is restarted"])
    return events
