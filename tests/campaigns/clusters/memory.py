"""The memory of a mirror that runs for long, and whether it is flat."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

import psutil

__all__ = ["MEMORY_HEAD", "Memory", "MemorySample", "Role", "growth_per_hour"]

#: The head of `Memory.rows`.
MEMORY_HEAD = ("memory", "MB at the end", "MB more an hour")

_MEGABYTE = 1_000_000
_SAMPLE_EVERY_S = 10.0

#: Memory is judged over the last part of the last process's life, if this part lasts for so long.
_JUDGED_PART = 0.75
_JUDGED_S = 600.0


class Role(Enum):
    """A part of the mirror."""

    DRIVER = "driver"
    JVM = "JVM"
    WORKERS = "Python workers"


#: Bytes: the limit of flat memory, stated before the first run. If a Python process grew by 8 MB an hour, it
#: would take a month to 6 GB. Less than that counts as noise of the allocator, and of added topics. A JVM
#: grows into its heap of 512 MB, even if it is almost empty.
_GROWTH_PER_HOUR = {Role.DRIVER: 8 * _MEGABYTE, Role.JVM: 40 * _MEGABYTE, Role.WORKERS: 8 * _MEGABYTE}


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One sample of the mirror's memory.

    Attributes:
        at_s: Time by `time.monotonic`.
        process_id: Id of the mirror's first process, which identifies a run of the mirror.
        used: Bytes. Resident, for driver and JVM; for the workers, which share most of their pages with
            their daemon, the proportional set size of all of them and the daemon.
    """

    at_s: float
    process_id: int
    used: Mapping[Role, int]


class Memory:
    """The samples of all processes of a trial, one after the other."""

    def __init__(self) -> None:
        self._samples: list[MemorySample] = []

    def look(self, process_id: int) -> None:
        """Sample a mirror by its first process, unless that was done just before."""
        if self._samples and time.monotonic() - self._samples[-1].at_s < _SAMPLE_EVERY_S:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            used = _used(psutil.Process(process_id))
            self._samples.append(MemorySample(time.monotonic(), process_id, used))

    def problems(self) -> Iterator[str]:
        """Yield which part of the last process grows."""
        for role, growth in self._growth().items():
            if growth > _GROWTH_PER_HOUR[role]:
                yield f"memory of the {role.value} grows by {growth / _MEGABYTE:.1f} MB an hour"

    def rows(self) -> list[tuple[str, ...]]:
        """Return part, megabytes at the end, and growth in an hour, if there was time to see it."""
        growth = self._growth()
        return [
            (
                role.value,
                f"{used / _MEGABYTE:.0f}",
                f"{growth[role] / _MEGABYTE:+.1f}" if role in growth else "",
            )
            for role, used in (self._samples[-1].used if self._samples else {}).items()
        ]

    def _growth(self) -> dict[Role, float]:
        if not self._samples:
            return {}
        last = self._samples[-1]
        of_last = [each for each in self._samples if each.process_id == last.process_id]
        since_s = last.at_s - _JUDGED_PART * (last.at_s - of_last[0].at_s)
        if last.at_s - since_s < _JUDGED_S:
            return {}
        judged = [each for each in of_last if each.at_s >= since_s]
        return {role: growth_per_hour(judged, role) for role in Role}


def _used(driver: psutil.Process) -> dict[Role, int]:
    used = dict.fromkeys(Role, 0) | {Role.DRIVER: driver.memory_info().rss}
    for process in driver.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                used[Role.JVM] += process.memory_info().rss
            else:
                used[Role.WORKERS] += process.memory_full_info().pss
    return used


def growth_per_hour(samples: Sequence[MemorySample], role: Role) -> float:
    """Return the growth of a part in bytes per hour.

    The median slope over all pairs of samples (Theil and Sen): a worker that starts or ends changes it
    little.
    """
    pairs = combinations(((each.at_s, each.used[role]) for each in samples), 2)
    return 3600 * statistics.median((b - a) / (t - s) for (s, a), (t, b) in pairs)
