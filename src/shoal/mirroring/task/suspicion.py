"""Source offsets whose batch was damaged or refused, while nothing shows yet whether that will pass."""

from __future__ import annotations

import time

from ...timing import Timing

__all__ = ["Suspicion", "Suspicions"]


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

    def prolong(self, seconds: float) -> None:
        """Count a time that a try took as part of the refusal, and not as a pause before it."""
        self._confirmed_at += seconds

    @property
    def age_s(self) -> float:
        """How long ago the first refusal was."""
        return time.monotonic() - self._began_at

    @property
    def quiet_for_s(self) -> float:
        """How long ago the last refusal was."""
        return time.monotonic() - self._confirmed_at


class Suspicions:
    """
    The suspicions of one partition.

    Attributes:
        open: By source offset, and by whether the refusals were explained: a refusal is explained if it names
            its cause. Those before the position are dropped.

    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.open: dict[tuple[int, bool], Suspicion] = {}
        self._changed_log: tuple[int, int] | None = None

    def is_same_log(self, start: int, end: int) -> bool:
        """Keep the ends of a log that seemed to change; return whether they were the same last time."""
        is_same, self._changed_log = self._changed_log == (start, end), (start, end)
        return is_same

    def forget_log(self) -> None:
        """Forget the ends of a log that seemed to change: the copy is aligned with it."""
        self._changed_log = None

    def next_try(self, offset: int, patience_s: float | None) -> str | None:
        """
        Count a refusal of the batch at an offset.

        Args:
            offset: The batch's source offset.
            patience_s: How long to try again if the refusal is not explained; None for one that is.

        Returns:
            The next try, in words; None if there is none.

        """
        explained = patience_s is None
        suspicion = self.open.get((offset, explained))
        if suspicion is None or self._has_ended(suspicion):
            self.open[offset, explained] = Suspicion()
            return "a second try"
        if patience_s is not None and suspicion.age_s < patience_s:
            suspicion.confirm()
            return "a further try"
        return None

    def tries(self, offset: int, *, explained: bool) -> str:
        """Return in words the tries after the first refusal, all of which ended the same."""
        tries = self.open[offset, explained].tries
        return f"{tries} more tries" if tries > 1 else "a second try"

    def is_explained(self, offset: int) -> bool:
        """Whether the batch at an offset had an explained refusal, and has another try."""
        suspicion = self.open.get((offset, True))
        return suspicion is not None and not self._has_ended(suspicion)

    def _has_ended(self, suspicion: Suspicion) -> bool:
        """Whether a new refusal is the first of another cause."""
        return suspicion.quiet_for_s >= self._timing.forget_refusal_s

    def disregard(self, seconds: float) -> None:
        """Let the time that aligning the partition took make no refusal older."""
        for each in self.open.values():
            each.disregard(seconds)

    def prolong(self, seconds: float) -> None:
        """Let the time that aligning the partition took end no suspicion: the alignment was the try."""
        for each in self.open.values():
            each.prolong(seconds)

    def land(self, end: int) -> None:
        """Drop the suspicions of batches before an offset: they are acknowledged."""
        self.open = {key: each for key, each in self.open.items() if key[0] >= end}
