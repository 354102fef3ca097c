"""The last hour of a mirror, in at most 600 samples, for the charts of page and report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, Self, TypeAlias

from ...model.processes import ProcessRole, ProcessUsage
from ..metrics import Metrics

__all__ = ["History", "Processes", "Sample", "Sampler"]

_MOST_SAMPLES = 600
_FIRST_INTERVAL_S = 1.0
#: 450 samples are an hour then.
_LAST_INTERVAL_S = 8.0
_HOUR_MS = 3_600_000

#: A task's process without a report for this long counts as ended.
_SILENT_S = 60.0

#: The driver and its JVMs, now.
Processes: TypeAlias = Callable[[], Sequence[ProcessUsage]]


@dataclass(frozen=True, slots=True)
class Sample:
    """
    One sample of a mirror. Bytes and CPU time count from the start, so a rate is exact between any two.

    Attributes:
        at_ms: The time, in milliseconds since 1970.
        lag_s: None while it is unknown.

    """

    at_ms: int
    bytes_in: int
    bytes_out: int
    lag_records: int
    lag_s: float | None
    driver_cpu_s: float
    jvm_cpu_s: float
    worker_cpu_s: float
    driver_rss_bytes: int
    jvm_rss_bytes: int
    worker_rss_bytes: int


class History:
    """
    The samples. The interval between two doubles whenever they become too many, up to eight seconds.

    One thread adds samples. Other threads may read them meanwhile.
    """

    def __init__(self) -> None:
        self._samples: tuple[Sample, ...] = ()
        self._interval_s = _FIRST_INTERVAL_S

    @property
    def interval_s(self) -> float:
        """The time between two samples."""
        return self._interval_s

    def add(self, sample: Sample) -> None:
        """Add the next sample, and drop those that are older than an hour."""
        kept = tuple(each for each in self._samples if each.at_ms >= sample.at_ms - _HOUR_MS)
        if len(kept) >= _MOST_SAMPLES and self._interval_s < _LAST_INTERVAL_S:
            kept = kept[::2]
            self._interval_s *= 2
        self._samples = (*kept[-_MOST_SAMPLES:], sample)

    def columns(self) -> dict[str, list[Any]]:
        """Return the samples as one list for each attribute, rounded for figures."""
        rows = [astuple(each) for each in self._samples]
        return {
            each.name: [round(row[at], 3) if isinstance(row[at], float) else row[at] for row in rows]
            for at, each in enumerate(fields(Sample))
        }


class Sampler:
    """
    A thread that keeps the history of a mirror while it is entered.

    Attributes:
        history: The samples.

    """

    def __init__(self, metrics: Metrics, local_processes: Processes) -> None:
        self.history = History()
        self._metrics = metrics
        self._local_processes = local_processes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="shoal-sampler", daemon=True)

    def processes(self) -> list[ProcessUsage]:
        """Return the usage of the mirror's running processes: the driver's, and the tasks' on any machine."""
        now = time.time()
        tasks = [each for each in self._metrics.workers() if now - each.last_report_at < _SILENT_S]
        return [*self._local_processes(), *tasks]

    def look(self) -> None:
        """Add a sample."""
        progress = self._metrics.progress()
        processes = self.processes()

        def total(role: ProcessRole, attribute: str) -> Any:
            return sum(getattr(each, attribute) for each in processes if each.role is role)

        self.history.add(
            Sample(
                int(time.time() * 1000),
                progress.bytes_in,
                progress.bytes_out,
                progress.lag_records,
                progress.lag_s,
                total(ProcessRole.DRIVER, "cpu_s"),
                total(ProcessRole.JVM, "cpu_s"),
                self._metrics.task_cpu_s,
                *(total(role, "rss_bytes") for role in ProcessRole),
            )
        )

    def _sample_until_over(self) -> None:
        while not self._over.wait(self.history.interval_s):
            self.look()

    def __enter__(self) -> Self:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()
