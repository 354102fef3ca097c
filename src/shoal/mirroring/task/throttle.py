"""
One worker's throttle: which of its topics may be fetched now, and how much.

The driver steers a mirror where it fetches, and nowhere else. A batch that was fetched is produced and
committed at once, and another thread renews the lease. So neither ever waits for a limit. The sender
obeys for the same reason: it gets what was fetched.

If nothing is paused or limited, a pair asks one question per turn: has the driver's steering changed?
"""

from __future__ import annotations

from collections.abc import Iterable

from ..control import WorkerControl
from ..control.allowance import Allowance
from ..model.steering import UNSTEERED

__all__ = ["Throttle"]

#: A smaller fetch would cut most batches short, and request them twice.
_LEAST_FETCH_BYTES = 64 * 1024


class Throttle:
    """
    The throttle of one worker, for its thread.

    Attributes:
        is_on: Whether anything is paused or limited.

    """

    def __init__(self, control: WorkerControl) -> None:
        """Begin without any steering; see :meth:`look`."""
        self._control = control
        self._steering = UNSTEERED
        self._allowance: Allowance | None = None
        self.is_on = False

    def look(self) -> None:
        """Take over the driver's newest steering."""
        newest = self._control.steering
        if newest is self._steering:
            return
        self._steering = newest
        self.is_on = newest.is_on
        if self.is_on and self._allowance is None:
            self._allowance = self._control.open_allowance()
        if self._allowance is not None:
            self._allowance.begin(newest.rate)

    # While it is on

    @property
    def _bytes(self) -> Allowance:
        assert self._allowance is not None, "it is on, or was"
        return self._allowance

    @property
    def may_fetch(self) -> bool:
        """Whether anything may be fetched now."""
        return self._steering.rate is None or self._bytes.left > 0

    @property
    def paused(self) -> frozenset[str]:
        """The topics that may not be fetched."""
        return self._steering.paused

    @property
    def fetch_bytes(self) -> int | None:
        """The maximum size of the next response; None for no limit. A batch that is larger comes whole."""
        return None if self._steering.rate is None else max(_LEAST_FETCH_BYTES, self._bytes.left)

    def spend(self, size: int) -> None:
        """Count bytes that were fetched."""
        if self._steering.rate is not None:
            self._bytes.spend(size)

    def ask(self, behind: Iterable[str]) -> None:
        """Ask the driver for bytes if none are left; ``behind`` has the topic of each partition."""
        if not self.may_fetch:
            self._bytes.ask(sum(topic not in self._steering.paused for topic in behind))

    def wait(self, seconds: float) -> None:
        """Wait for the driver: for bytes, or for another steering."""
        self._bytes.wait(seconds)
