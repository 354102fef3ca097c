"""Clocks in the test's hand."""

from __future__ import annotations

import time

__all__ = ["Ahead", "Time"]


class Time:
    """
    A monotonic clock that stands still.

    Attributes:
        now: The time in seconds, which the test sets.

    """

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Ahead:
    """A monotonic clock that runs as others do, and that a test can put ahead."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead_s

    def pass_by(self, seconds: float) -> None:
        """Let a time be over."""
        self._ahead_s += seconds
