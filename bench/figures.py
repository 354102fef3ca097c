"""The figures of a row of the bench: of each subject, such as a mover, some quantities in each turn."""

import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bench.report import markdown

__all__ = ["CPU", "FURTHER", "RATIO", "Figures", "costs_as_much", "shown", "table"]

CPU = "CPU-s/GB"

#: The cost without what a command costs whatever it copies.
FURTHER = "CPU-s for a further GB"

Figures: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]

#: The end of the name of a ratio, which has no median: its turns are of two subjects each.
_TIMES = "times"

#: The cost of a subject beside that of the one that it compares with.
RATIO = f"of the compared cost, {_TIMES}"


def costs_as_much(peer: str) -> str:
    """Return the name of the ratio to the cost of a peer."""
    return f"{peer} costs, {_TIMES}"


def shown(quantity: str, turns: Sequence[float]) -> str:
    """Return the median, and the extremes in parentheses if they look different; of a ratio the extremes."""
    if not turns:
        return ""
    least, most = _number(min(turns)), _number(max(turns))
    if quantity.endswith(_TIMES):
        return least if least == most else f"{least}-{most}"
    median = _number(statistics.median(turns))
    return median if least == most else f"{median} ({least}-{most})"


def _number(value: float) -> str:
    """Return three digits or more."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(figures: Figures) -> str:
    """Return a Markdown table: a row for each subject, a column for each quantity."""
    quantities = list(dict.fromkeys(name for each in figures.values() for name in each))
    rows = [
        (subject, *(shown(name, found.get(name, ())) for name in quantities))
        for subject, found in figures.items()
    ]
    return markdown(("", *quantities), rows)
