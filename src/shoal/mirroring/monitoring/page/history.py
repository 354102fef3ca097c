"""What a mirror took and did over time, in bounded memory however long it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from typing import Any

__all__ = ["History", "Sample", "columns"]

#: At one sample a second: ten minutes.
_RECENT_SAMPLES = 600

#: Of the whole run; when there are more, neighbours become one.
_WHOLE_SAMPLES = 1440


@dataclass(frozen=True, slots=True)
class Sample:
    """
    One look at a mirror.

    Counts only grow, so that leaving samples out between two loses nothing of
    what happened; of the others the largest is kept.

    Attributes:
        at_ms: When, in milliseconds since 1970.
        bytes_in: Fetched, since the start; ``bytes_out`` and ``records``
            likewise.
        driver_cpu_s: User and system, since the start; by role of the process.
        jvm_gc_s: Time in garbage collection's pauses, since the start; None if no JVM publishes it.
        lag_s: None where nobody knows.

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
        """Return one sample for both."""
        return replace(
            later, **{name: _larger(getattr(self, name), getattr(later, name)) for name in _GAUGES}
        )


_GAUGES = ("lag_records", "lag_s", "driver_rss_bytes", "jvm_rss_bytes", "tasks_rss_bytes")


def _larger(one: Any, other: Any) -> Any:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


class History:
    """
    The last samples as they were, and all of the run's ever more coarsely.

    Not for several threads at a time, except that :meth:`recent` and
    :meth:`whole` may be called while another adds.
    """

    def __init__(self, recent_samples: int = _RECENT_SAMPLES, whole_samples: int = _WHOLE_SAMPLES) -> None:
        self._recent: deque[Sample] = deque(maxlen=recent_samples)
        self._whole: tuple[Sample, ...] = ()
        self._most = whole_samples
        self._stride = 1
        self._pending: Sample | None = None
        self._pending_samples = 0

    def add(self, sample: Sample) -> None:
        self._recent.append(sample)
        self._pending = self._pending.followed_by(sample) if self._pending else sample
        self._pending_samples += 1
        # The first stays as it is: what counts grow from.
        if self._pending_samples >= self._stride or not self._whole:
            self._whole, self._pending, self._pending_samples = (*self._whole, self._pending), None, 0
        if len(self._whole) > self._most:
            self._whole = _halved(self._whole)
            self._stride *= 2

    def recent(self) -> list[Sample]:
        # A copy is made in one step of the interpreter.
        return list(self._recent)

    def whole(self) -> list[Sample]:
        pending = self._pending
        return [*self._whole, pending] if pending else list(self._whole)


def _halved(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Make one sample of each two after the first."""
    first, *rest = samples
    pairs = zip_longest(rest[::2], rest[1::2])
    return (first, *(one.followed_by(other) if other else one for one, other in pairs))


def columns(samples: Iterable[Sample]) -> dict[str, list[Any]]:
    """Return samples as one list an attribute, rounded to what a figure shows."""
    rows = [asdict(sample) for sample in samples]
    return {field.name: [_rounded(row[field.name]) for row in rows] for field in fields(Sample)}


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value
