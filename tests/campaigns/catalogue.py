"""
Trials of all worlds share these: events, ways to run, and the plan that a seed draws of them.

A plan names events and runs alone. Each draws its details from dice of its own, so a trial without one of
them is otherwise the same: ``python -m tests.campaigns --seed N --without 'EVENT'`` shows which ones matter.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from shoal.mirroring.model.incidents import IncidentKind

from .kinds import Kind

__all__ = ["Catalogue", "Event", "Family", "Plan", "Run", "Step"]


class Explained(Protocol):
    """A world that knows which incidents and stops its events explain."""

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None: ...


World = TypeVar("World", bound=Explained)
#: The result of a run.
End = TypeVar("End")


class Family(enum.Enum):
    """Events that occur in the same trials."""

    #: Transient faults and the life of healthy clusters: no partition stops.
    FAULTS = "faults"
    #: Changes that a mirror cannot repair, and that its policies are for.
    INCIDENTS = "incidents"
    #: Positions that are lost, or of another time.
    POSITIONS = "positions"
    #: The log cleaner at either side.
    CLEANER = "cleaner"
    #: Other producers write to the copy, and that is allowed.
    OTHER_WRITERS = "other writers"
    #: Requests that are cut, held up, or late.
    NETWORK = "network"
    #: Faults of the mirror's processes, and of Spark's.
    SPARK = "Spark"
    #: Topics of the source are created, or grow.
    TOPICS = "topics"
    #: Topics of the source are created again.
    RECREATED = "topics that are created again"
    #: Consumer groups, their coordinators, and the commits of translated offsets.
    GROUPS = "groups"
    #: Consumers that change clusters, and operators that change their groups.
    MOVES = "moves"
    #: Cuts, certificates, and mirrors that go back.
    CUTS = "cut-overs"
    #: Incidents of topics whose consumers stay at the source.
    DAMAGES = "damages"


@dataclass(frozen=True, slots=True)
class Event(Generic[World]):
    """
    A change of a world before a run, or at a moment of it.

    Attributes:
        weight: How often it occurs beside the others of its family.
        change: Changes a world, and draws what it needs from dice of its own.
        incidents: The kinds of incidents that it may cause.
        stops: Parts of the sentences by which a partition may stop for good after it.

    """

    name: str
    family: Family
    weight: int
    change: Callable[[World, random.Random], object]
    incidents: tuple[IncidentKind, ...] = ()
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run(Generic[World, End]):
    """
    A way to run the mirror.

    Attributes:
        weight: How often it occurs beside the others.
        start: Runs it to its end.

    """

    name: str
    weight: int
    start: Callable[[World, random.Random], End]


@dataclass(frozen=True, slots=True)
class Step(Generic[World, End]):
    """The events before a run, and the run."""

    events: tuple[Event[World], ...]
    run: Run[World, End]

    def play(self, world: World, seed: str) -> End:
        """Let the events happen to a world, and run."""
        for number, event in enumerate(self.events):
            world.expect(event.name, event.incidents, event.stops)
            event.change(world, random.Random(f"{seed}/{number}"))
        return self.run.start(world, random.Random(f"{seed}/run"))

    def __str__(self) -> str:
        return ", ".join(each.name for each in self.events) + f" | {self.run.name}"


#: The properties of a world before its first step.
Setup_co = TypeVar("Setup_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Plan(Generic[Setup_co, World, End]):
    """
    A trial; the same seed makes the same one.

    Attributes:
        family: The subject of the trial; None for faults alone.

    """

    kind: Kind
    seed: int
    setup: Setup_co
    family: Family | None
    steps: tuple[Step[World, End], ...]

    @property
    def events(self) -> list[str]:
        """The names of the events, one for each time that it happens."""
        return [event.name for step in self.steps for event in step.events]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.setup}"]
        return "\n".join([*lines, *(f"  {number}: {each}" for number, each in enumerate(self.steps))])


class Catalogue(Generic[World, End]):
    """
    The events and the ways to run of a kind of world.

    Attributes:
        events: All events by name.
        ways: All ways to run by name.

    """

    def __init__(self) -> None:
        self.events: dict[str, Event[World]] = {}
        self.ways: dict[str, Run[World, End]] = {}

    def add(
        self,
        name: str,
        family: Family,
        change: Callable[[World, random.Random], object],
        weight: int = 1,
        incidents: Collection[IncidentKind] = (),
        stops: Collection[str] = (),
    ) -> None:
        """Register an event."""
        self.events[name] = Event(name, family, weight, change, tuple(incidents), tuple(stops))

    def happens(
        self,
        family: Family,
        weight: int = 1,
        incidents: Collection[IncidentKind] = (),
        stops: Collection[str] = (),
    ) -> Callable[[Callable[[World, random.Random], None]], Callable[[World, random.Random], None]]:
        """Register a function as an event under its own name."""

        def register(
            change: Callable[[World, random.Random], None],
        ) -> Callable[[World, random.Random], None]:
            self.add(change.__name__.replace("_", " "), family, change, weight, incidents, stops)
            return change

        return register

    def runs(
        self, weight: int = 1
    ) -> Callable[[Callable[[World, random.Random], End]], Callable[[World, random.Random], End]]:
        """Register a function as a way to run under its own name."""

        def register(start: Callable[[World, random.Random], End]) -> Callable[[World, random.Random], End]:
            name = start.__name__.replace("_", " ")
            self.ways[name] = Run(name, weight, start)
            return start

        return register

    def draw_steps(
        self,
        dice: random.Random,
        families: Mapping[Family, int],
        steps: tuple[int, int],
        least: int = 0,
        without: Collection[str] = (),
    ) -> tuple[Step[World, End], ...]:
        """
        Draw the steps of a trial.

        Args:
            families: The families whose events occur, and how often beside the others.
            steps: The least and the largest number of steps.
            least: The least number of events of a step; the largest is 3.
            without: Names of events to leave out.

        """
        # Sorted, so that a seed plans the same trial in whatever order the modules are imported.
        events = [each for _, each in sorted(self.events.items()) if each.family in families]
        weights = [each.weight * families[each.family] for each in events]
        ways = [each for _, each in sorted(self.ways.items())]
        drawn = []
        for _ in range(dice.randint(*steps)):
            happen = dice.choices(events, weights, k=dice.randint(least, 3))
            run = dice.choices(ways, [each.weight for each in ways])[0]
            drawn.append(Step(tuple(each for each in happen if each.name not in without), run))
        return tuple(drawn)
