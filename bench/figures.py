"""The figures of a run of the bench, and the rule by which a ratio may be quoted."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["LEAST_TURNS", "REPEATS_WITHIN", "Figure", "Figures", "Key", "Ratio"]

LEAST_TURNS = 3
REPEATS_WITHIN = 0.15
"""A ratio repeats if its highest turn is at most this part above its lowest."""


class Key(NamedTuple):
    """The name of a figure: a row of the bench, a mover, and a quantity with its unit."""

    row: str
    mover: str
    quantity: str


@dataclass(frozen=True)
class Figure:
    """One quantity, measured in each turn."""

    turns: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.turns)

    def __format__(self, spec: str) -> str:
        """Return the median, and the extremes in parentheses if they look different."""
        median, least, most = (format(each, spec) for each in (self.median, min(self.turns), max(self.turns)))
        return median if least == most else f"{median} ({least} to {most})"


@dataclass(frozen=True)
class Ratio:
    """How many times higher one figure is than another, turn by turn."""

    turns: Sequence[float]

    @classmethod
    def of(cls, higher: Figure, lower: Figure) -> "Ratio":
        return cls([a / b for a, b in zip(higher.turns, lower.turns, strict=False) if b > 0])

    @property
    def median(self) -> float:
        return statistics.median(self.turns)

    @property
    def is_quotable(self) -> bool:
        """Whether at least three turns repeat within 15 %."""
        if len(self.turns) < LEAST_TURNS or min(self.turns) <= 0:
            return False
        return max(self.turns) / min(self.turns) <= 1 + REPEATS_WITHIN

    def __str__(self) -> str:
        least, most = min(self.turns), max(self.turns)
        if self.is_quotable:
            return f"{_short(self.median)} times ({_short(least)} to {_short(most)})"
        if len(self.turns) < LEAST_TURNS:
            return f"not quoted, of {len(self.turns)} turns alone: {_short(self.median)} times"
        return f"not quoted: {_short(least)} to {_short(most)} times"


Figures = dict[Key, Figure]


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"
