"""
Charts of horizontal bars, as SVG inside of a page.

A page without scripts needs no more than rectangles and texts. The chart libraries of the environment either
draw with scripts in the browser, or bring a browser or NumPy to draw without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "bar_chart"]

_WIDTH = 640
_LABELS = 230
_VALUES = 170
_ROW = 22
_BAR = 14


@dataclass(frozen=True, slots=True)
class Bar:
    """
    One bar.

    Attributes:
        label: The text in front of it.
        value: Its length, in the chart's unit.
        text: The text behind it.

    """

    label: str
    value: float
    text: str


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """Return a chart as an element of HTML. All bars have one scale, from 0 to the longest."""
    longest = max((bar.value for bar in bars), default=0.0) or 1.0
    height = _ROW * len(bars) + 4
    rows = "".join(_bar(bar, 2 + _ROW * number, longest) for number, bar in enumerate(bars))
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{escape(title)}">{rows}</svg></figure>'
    )


def _bar(bar: Bar, top: int, longest: float) -> str:
    scale = (_WIDTH - _LABELS - _VALUES) / longest
    length = max(1.0, bar.value * scale) if bar.value else 0.0
    text_at = top + _BAR - 2
    label = bar.label if len(bar.label) <= _MOST_LABEL else f"{bar.label[: _MOST_LABEL - 1]}…"
    return (
        f'<text x="{_LABELS - 8}" y="{text_at}" text-anchor="end"><title>{escape(bar.label)}</title>'
        f"{escape(label)}</text>"
        f'<rect x="{_LABELS}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="var(--series-1)"/>'
        f'<text x="{_LABELS + length + 6:.1f}" y="{text_at}">{escape(bar.text)}</text>'
    )


#: Characters of a label that have room.
_MOST_LABEL = 34
