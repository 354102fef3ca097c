"""A source offset whose batch was damaged or refused, while nothing shows yet whether that will pass."""

from __future__ import annotations

import time

__all__ = ["Suspicion"]

#: A second refusal so much later has a cause of its own: the pauses between two tries are at most 10 s. The
#: time of an alignment between them, which may be minutes, does not count; an outage between them does.
_FORGET_AFTER_S = 180.0


class Suspicion:
    """
    How long and how often the batch at one source offset has been refused.

    Attributes:
        tries: How many refusals there were.

    """

    def __init__(self) -> None:
        self.tries = 1
        self._began_at = self._confirmed_at = time.monotonic()

    def confirm(self) -> None:
        """Count one more refusal."""
        self.tries += 1
        self._confirmed_at = time.monotonic()

    def disregard(self, seconds: float) -> None:
        """Leave out of account a time in which there was no try."""
        self._began_at += seconds
        self._confirmed_at += seconds

    @property
    def age_s(self) -> float:
        """How long ago the first refusal was."""
        return time.monotonic() - self._began_at

    @property
    def has_ended(self) -> bool:
        """Whether the last refusal was so long ago that a new one is the first of another cause."""
        return time.monotonic() - self._confirmed_at >= _FORGET_AFTER_S
