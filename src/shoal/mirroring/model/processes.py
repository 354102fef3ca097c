"""The resources that a mirror's processes use, for reports and page."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...numbers import counter, gauge

__all__ = ["GarbageCollection", "ProcessRole", "ProcessUsage"]


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """
    The garbage collection of one JVM.

    Attributes:
        pauses: The number of pauses.
        time_s: The total time of the pauses.

    """

    pauses: int = counter(
        "shoal_jvm_gc_collections_total", "Garbage collection pauses since the mirror's start, of JVMs alone."
    )
    time_s: float = counter(
        "shoal_jvm_gc_seconds_total", "Time in these pauses since the mirror's start, of JVMs alone."
    )

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
    cpu_s: float = counter(
        "shoal_process_cpu_seconds_total", "User and system CPU time since the mirror's start."
    )
    rss_bytes: int = gauge("shoal_process_resident_memory_bytes", "Resident memory.", initial=0)
    last_report_at: float = 0.0
    gc: GarbageCollection | None = None
