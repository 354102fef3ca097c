"""The delays between retries."""

from __future__ import annotations

import random

__all__ = ["Backoff"]


class Backoff:
    """
    Delays that double from the first to the longest, each with jitter.

    Half of a delay is fixed and half random ("equal jitter"): if many tasks lose the same broker, they do not
    all return at the same time, and none returns at once.

    """

    def __init__(self, first_ms: int = 100, longest_ms: int = 10_000) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self.failures = 0

    def next_delay_s(self) -> float:
        """Count a failure and return the seconds to wait."""
        delay_ms = min(self._longest_ms, self._first_ms << min(self.failures, 20))
        self.failures += 1
        return delay_ms * random.uniform(0.5, 1.0) / 1000  # noqa: S311 (spreads retries, protects nothing)

    def reset(self) -> None:
        """Start over, after a success."""
        self.failures = 0
