"""The result of a part of the campaign."""

from __future__ import annotations

from collections import Counter

__all__ = ["Result"]


class Result:
    """
    The result of one part so far.

    Attributes:
        part: Its name.
        counts: Numbers, by what they count.
        highest: The highest values, by what they measure.
        problems: The broken promises.

    """

    def __init__(self, part: str) -> None:
        self.part = part
        self.counts: Counter[str] = Counter()
        self.highest: dict[str, float] = {}
        self.problems: list[str] = []

    def see(self, measured: str, value: float) -> None:
        """Keep a value if it is the highest of its kind."""
        self.highest[measured] = max(value, self.highest.get(measured, value))

    def __str__(self) -> str:
        counts = [f"{count:,} {what}" for what, count in self.counts.items()]
        highest = [f"{what} at most {value:,.1f}" for what, value in self.highest.items()]
        return f"{self.part}: {', '.join([*counts, *highest])}; {len(self.problems)} problems"
