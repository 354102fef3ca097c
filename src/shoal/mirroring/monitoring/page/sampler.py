"""Samples a mirror once a second while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...model.processes import ProcessRole, ProcessUsage
from ..metrics import Metrics
from .history import History, Sample

__all__ = ["About", "Processes", "Sampler"]

_INTERVAL_S = 1.0

#: A task's process without a report for this long counts as ended.
_SILENT_S = 60.0

#: The driver and its JVMs, now.
Processes: TypeAlias = Callable[[], Sequence[ProcessUsage]]


@dataclass(frozen=True, slots=True)
class About:
    """
    The identity of a mirror.

    Attributes:
        source: The source's bootstrap servers, as the user wrote them.
        destination: The destination's bootstrap servers, as the user wrote them.
        group: The consumer group with the committed positions; None until it is known.
        warnings: The warnings in the summary.

    """

    source: str
    destination: str
    group: str | None = None
    warnings: tuple[str, ...] = ()


class Sampler:
    """
    A thread that keeps the :class:`History` of a mirror.

    Attributes:
        about: The identity of the mirror; any thread may replace it.
        metrics: The registry to sample.
        started_at: The start of the mirror, in seconds since 1970.

    """

    def __init__(
        self, about: About, metrics: Metrics, processes: Processes, interval_s: float = _INTERVAL_S
    ) -> None:
        self.about = about
        self.metrics = metrics
        self.history = History()
        self.started_at = time.time()
        self._local = processes
        self._interval_s = interval_s
        self._cpu_s = {ProcessRole.DRIVER: 0.0, ProcessRole.JVM: 0.0}
        self._gc_s: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="shoal-sampler", daemon=True)

    def processes(self) -> list[ProcessUsage]:
        """Return the usage of the mirror's running processes: the driver's, and the tasks' on any machine."""
        now = time.time()
        tasks = [each for each in self.metrics.workers() if now - each.last_report_at < _SILENT_S]
        return [*self._local(), *tasks]

    def look(self) -> None:
        """Add a sample to the history."""
        progress = self.metrics.progress()
        processes = self.processes()
        for role, before in self._cpu_s.items():
            # The CPU time of ended processes stays counted.
            self._cpu_s[role] = max(before, sum(each.cpu_s for each in processes if each.role is role))
        if collections := [each.gc.time_s for each in processes if each.gc is not None]:
            self._gc_s = max(self._gc_s or 0.0, sum(collections))
        rss_bytes = {
            role: sum(each.rss_bytes for each in processes if each.role is role) for role in ProcessRole
        }
        self.history.add(
            Sample(
                at_ms=int(time.time() * 1000),
                bytes_in=progress.bytes_in,
                bytes_out=progress.bytes_out,
                records=progress.records,
                driver_cpu_s=self._cpu_s[ProcessRole.DRIVER],
                jvm_cpu_s=self._cpu_s[ProcessRole.JVM],
                tasks_cpu_s=self.metrics.task_cpu_s,
                jvm_gc_s=self._gc_s,
                lag_records=progress.lag_records,
                lag_s=progress.lag_s,
                driver_rss_bytes=rss_bytes[ProcessRole.DRIVER],
                jvm_rss_bytes=rss_bytes[ProcessRole.JVM],
                tasks_rss_bytes=rss_bytes[ProcessRole.WORKER],
            )
        )

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._interval_s):
            self.look()

    def __enter__(self) -> Sampler:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()
