"""What a process of a mirror takes, as it is reported and shown."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass

__all__ = ["GarbageCollection", "ProcessRole", "ProcessUsage", "process_name"]


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """
    What garbage collection took of one JVM.

    Attributes:
        pauses: Pauses to collect.
        time_s: Their time.
        longest_pause_s: The longest that was seen; between two looks only the last of each collector is.

    """

    pauses: int
    time_s: float
    longest_pause_s: float

    def beside(self, other: GarbageCollection) -> GarbageCollection:
        """Return what two JVMs took together."""
        return GarbageCollection(
            self.pauses + other.pauses,
            self.time_s + other.time_s,
            max(self.longest_pause_s, other.longest_pause_s),
        )


class ProcessRole(enum.Enum):
    """What a process does for the mirror."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """
    What one process takes.

    Attributes:
        name: ``host:pid``.
        role: What it does.
        cpu_s: User and system, since the mirror's start.
        rss_bytes: Its resident memory, when it was heard or looked at.
        heard_at: When that was, as Unix time.
        gc: Garbage collection since the mirror's start; None of Python processes, and of a JVM that
            publishes no counters.

    """

    name: str
    role: ProcessRole
    cpu_s: float
    rss_bytes: int
    heard_at: float
    gc: GarbageCollection | None = None


def process_name(pid: int | None = None) -> str:
    """Return how a process of this machine, by default this one, is called in reports."""
    return f"{os.uname().nodename}:{os.getpid() if pid is None else pid}"
