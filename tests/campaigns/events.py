"""
Changes of the clusters between two tasks, or before a later request of one.

An event is a function that changes a world. ``happens`` gives it a family. A trial draws events of few
families, so that one kind of trouble meets itself often enough.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tests.world.tasks import TaskWorld

__all__ = ["EVENTS", "Event", "Family", "happens"]

#: Changes a world; draws what it needs from dice of its own.
Change: TypeAlias = Callable[[TaskWorld, random.Random], None]


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


class Event(NamedTuple):
    """An event by its name."""

    name: str
    family: Family
    weight: int
    change: Change


#: All events by name; the modules ``*_events`` add theirs.
EVENTS: dict[str, Event] = {}


def happens(family: Family, weight: int = 1) -> Callable[[Change], Change]:
    """Register a function as an event, with how often it occurs beside the others of its family."""

    def register(change: Change) -> Change:
        name = change.__name__.replace("_", " ")
        EVENTS[name] = Event(name, family, weight, change)
        return change

    return register
