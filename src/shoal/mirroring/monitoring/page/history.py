"""The history of a mirror's counts and resources, in bounded memory for any duration."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from typing import Any

__all__ = ["History", "Sample", "columns"]

#: Ten minutes, with one sample a second.
_RECENT_SAMPLES = 600

#: The limit for samples of the whole run; beyond it, neighbours are merged.
_WHOLE_SAMPLES = 1440


@dataclass(frozen=True, slots=True)
class Sample:
    """
    One sample of a mirror.

    Counts only grow, so they stay exact if samples are merged. A gauge keeps its largest value.

    Attributes:
        at_ms: The time, in milliseconds since 1970.
        bytes_in: Bytes fetched since the start. ``bytes_out`` and ``records`` count from there, too.
        driver_cpu_s: User and system time since the start, as for the other roles.
        jvm_gc_s: Time in garbage collection pauses since the start; None if no JVM publishes it.
        lag_s: None while it is unknown.

    """

    at_ms: int
    bytes_in: int
    bytes_out: int
    records: int
    driver_cpu_s: float
    jvm_cpu_s: float
    tasks_cpu_s: float
    jvm_gc_s: float | None
    lag_records: int
    lag_s: float | None
    driver_rss_bytes: int
    jvm_rss_bytes: int
    tasks_rss_bytes: int

    def followed_by(self, later: Sample) -> Sample:
        """Return this sample merged with a later one."""
        return replace(
            later, **{name: _larger(getattr(self, name), getattr(later, name)) for name in _GAUGES}
        )


_GAUGES = ("lag_records", "lag_s", "driver_rss_bytes", "jvm_rss_bytes", "tasks_rss_bytes")


def _larger(one: Any, other: Any) -> Any:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


class History:
    """
    The recent samples, and those of the whole run with a growing interval.

    One thread may add samples. Other threads may call :meth:`recent` and :meth:`whole` meanwhile.
    """

    def __init__(self, recent_samples: int = _RECENT_SAMPLES, whole_samples: int = _WHOLE_SAMPLES) -> None:
        self._recent: deque[Sample] = deque(maxlen=recent_samples)
        self._whole: tuple[Sample, ...] = ()
        self._most = whole_samples
        self._stride = 1
        self._pending: Sample | None = None
        self._pending_samples = 0

    def add(self, sample: Sample) -> None:
        """Add the next sample."""
        self._recent.append(sample)
        self._pending = self._pending.followed_by(sample) if self._pending else sample
        self._pending_samples += 1
        # The first sample stays unchanged, as the base of all counts.
        if self._pending_samples >= self._stride or not self._whole:
            self._whole, self._pending, self._pending_samples = (*self._whole, self._pending), None, 0
        if len(self._whole) > self._most:
            self._whole = _halved(self._whole)
            self._stride *= 2

    def recent(self) -> list[Sample]:
        """Return the samples of the last ten minutes."""
        # The interpreter copies a deque in one step.
        return list(self._recent)

    def whole(self) -> list[Sample]:
        """Return the samples of the whole run."""
        pending = self._pending
        return [*self._whole, pending] if pending else list(self._whole)


def _halved(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Merge each two samples after the first."""
    first, *rest = samples
    pairs = zip_longest(rest[::2], rest[1::2])
    return (first, *(one.followed_by(other) if other else one for one, other in pairs))


def columns(samples: Iterable[Sample]) -> dict[str, list[Any]]:
    """Return samples as one list for each attribute, rounded for figures."""
    rows = [asdict(sample) for sample in samples]
    return {field.name: [_rounded(row[field.name]) for row in rows] for field in fields(Sample)}


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value
