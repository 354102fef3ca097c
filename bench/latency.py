"""Percentiles of times, of all samples."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Percentiles"]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest-rank percentiles in milliseconds: each is a measured time; nan if there is none.

    Attributes:
        count: Number of times.
    """

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    longest: float

    @classmethod
    def of(cls, times_ms: Iterable[float]) -> "Percentiles":
        ordered = sorted(times_ms)
        ranks = (_rank(ordered, part) for part in (0.5, 0.9, 0.99, 0.999, 1.0))
        return cls(len(ordered), *ranks)


def _rank(ordered: Sequence[float], part: float) -> float:
    return ordered[math.ceil(part * len(ordered)) - 1] if ordered else math.nan
