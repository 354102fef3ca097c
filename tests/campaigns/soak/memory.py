"""The mirror's memory over time, and whether it is flat."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

import psutil

__all__ = ["GROWTH_PER_HOUR", "MemorySample", "Role", "growth_per_hour", "sampled"]

_MEGABYTE = 1_000_000


class Role(Enum):
    """A part of the mirror."""

    DRIVER = "driver"
    JVM = "JVM"
    WORKERS = "Python workers"


GROWTH_PER_HOUR = {Role.DRIVER: 8 * _MEGABYTE, Role.JVM: 40 * _MEGABYTE, Role.WORKERS: 8 * _MEGABYTE}
"""Bytes: the limit of flat memory, stated before the first run.

If a Python process grew by 8 MB an hour, it would take a month to 6 GB. Less than that counts as noise of the
allocator, and of added topics. A JVM grows into its heap of 512 MB, even if it is almost empty.
"""


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


def sampled(process_id: int) -> list[MemorySample]:
    """Return a sample of the mirror with this first process; none if that ends now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [MemorySample(time.monotonic(), process_id, _used(psutil.Process(process_id)))]
    return []


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
