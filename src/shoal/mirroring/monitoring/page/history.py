"""The last hour of a mirror, in at most 600 samples, for the charts of page and report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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

#: Numbers by their names. ``at_ms`` is the time, in milliseconds since 1970. Bytes and CPU time count from
#: the start, so a rate is exact between any two samples. None stands for what is unknown.
Sample: TypeAlias = Mapping[str, Any]

_OF_PROGRESS = ("bytes_in", "bytes_out", "lag_records", "lag_s")


class History:
    """
    The samples. The interval between two doubles whenever they become too many, up to eight seconds.

    One thread adds samples. Other threads may read them meanwhile.

    Attributes:
        interval_s: The time between two samples.

    """

    def __init__(self) -> None:
        self.interval_s = _FIRST_INTERVAL_S
        self._samples: tuple[Sample, ...] = ()

    def add(self, sample: Sample) -> None:
        """Add the next sample, and drop those that are older than an hour."""
        kept = tuple(each for each in self._samples if each["at_ms"] >= sample["at_ms"] - _HOUR_MS)
        if len(kept) >= _MOST_SAMPLES and self.interval_s < _LAST_INTERVAL_S:
            kept = kept[::2]
            self.interval_s *= 2
        self._samples = (*kept[-_MOST_SAMPLES:], sample)

    def columns(self) -> dict[str, list[Any]]:
        """Return the samples as one list for each number, rounded for figures."""
        samples = self._samples
        return {name: [_rounded(each[name]) for each in samples] for name in samples[-1]} if samples else {}


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


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
        progress, processes = self._metrics.progress(), self.processes()
        sample: dict[str, Any] = {"at_ms": int(time.time() * 1000)}
        sample |= {name: getattr(progress, name) for name in _OF_PROGRESS}
        for role in ProcessRole:
            of_role = [each for each in processes if each.role is role]
            sample[f"{role.value}_cpu_s"] = sum(each.cpu_s for each in of_role)
            sample[f"{role.value}_rss_bytes"] = sum(each.rss_bytes for each in of_role)
        sample["worker_cpu_s"] = self._metrics.task_cpu_s  # of those that have ended, too
        self.history.add(sample)

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
