"""The last hour of a mirror, in at most 600 samples, for the charts of page and report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

__all__ = ["History", "Sample"]

_MOST_SAMPLES = 600
_FIRST_INTERVAL_S = 1.0
#: 450 samples are an hour then.
_LAST_INTERVAL_S = 8.0
_HOUR_MS = 3_600_000

#: Numbers by their names. ``at_ms`` is the time, in milliseconds since 1970. Bytes and CPU time count from
#: the start, so a rate is exact between any two samples. None stands for what is unknown.
Sample: TypeAlias = Mapping[str, Any]


class History:
    """
    The samples, taken by a thread while the history is entered.

    The interval between two doubles whenever they become too many, up to eight seconds.

    Attributes:
        interval_s: The time between two samples.

    """

    def __init__(self, look: Callable[[], Sample]) -> None:
        """Prepare the thread; ``look`` returns the sample of now."""
        self.interval_s = _FIRST_INTERVAL_S
        self._look = look
        self._samples: tuple[Sample, ...] = ()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="shoal-sampler", daemon=True)

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

    def _sample_until_over(self) -> None:
        while not self._over.wait(self.interval_s):
            self.add(self._look())

    def __enter__(self) -> Self:
        self.add(self._look())
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self.add(self._look())


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
