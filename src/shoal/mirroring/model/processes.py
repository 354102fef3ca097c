"""The resources that a mirror's processes use, for reports and page."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["GarbageCollection", "ProcessRole", "ProcessUsage"]


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """
    The garbage collection of one JVM.

    Attributes:
        pauses: The number of pauses.
        time_s: The total time of the pauses.

    """

    pauses: int
    time_s: float

    def beside(self, other: GarbageCollection) -> GarbageCollection:
        """Return the sum of two JVMs."""
        return GarbageCollection(self.pauses + other.pauses, self.time_s + other.time_s)


class ProcessRole(enum.Enum):
    """The role of a process in a mirror."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """
    The resources that one process uses.

    Attributes:
        name: ``host:pid``.
        cpu_s: User and system time since the mirror's start.
        rss_bytes: The resident memory at the last report or reading.
        last_report_at: The time of that report or reading, as Unix time.
        gc: Garbage collection since the mirror's start; None for Python processes, and for a JVM that
            publishes no counters.

    """

    name: str
    role: ProcessRole
    cpu_s: float
    rss_bytes: int
    last_report_at: float
    gc: GarbageCollection | None = None
