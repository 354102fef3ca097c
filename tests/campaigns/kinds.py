"""The kinds of trials, each with a world of its own."""

from __future__ import annotations

from enum import Enum

__all__ = ["KINDS", "Kind", "kind_of"]


class Kind(Enum):
    """The world of a trial."""

    CLUSTERS = "real clusters"
    """``shoal mirror`` or ``shoal mirror-maker``, between two real clusters."""
    CONSUMERS = "consumers"
    """``shoal mirror`` between them, with consumers that stop at one cluster and go on at the other."""
    TASK = "tasks"
    """Tasks in this process between embedded brokers."""
    EXECUTORS = "executors"
    """The same, whose executors die, join, and stall for longer than a lease."""
    READERS = "tasks and consumers"
    """Tasks with consumers that stop at one broker and go on at the other."""
    CUTS = "cuts and ways back"
    """Tasks between embedded brokers, before and behind certificates of cuts, there and back."""
    ARCHIVES = "archives"
    """``shoal mirror`` from a real or embedded cluster to a directory, and from there to another one."""
    SOAK = "soak"
    """``shoal mirror`` for an hour between two locked clusters; only if it is asked for."""

    @property
    def is_within(self) -> bool:
        """Whether all of a trial is in this process, without real clusters."""
        return self in (Kind.TASK, Kind.EXECUTORS, Kind.READERS, Kind.CUTS)


#: The kinds of trials, in turn: every second one is within this process.
KINDS = (
    *(Kind.CLUSTERS, Kind.READERS, Kind.CLUSTERS, Kind.TASK) * 3,
    *(Kind.ARCHIVES, Kind.CUTS, Kind.CLUSTERS, Kind.TASK),
    *(Kind.CONSUMERS, Kind.READERS, Kind.CLUSTERS, Kind.EXECUTORS),
)


def kind_of(number: int) -> Kind:
    """Return the kind of a trial by its number in a run of all kinds."""
    return KINDS[number % len(KINDS)]
