"""
One worker's throttle: which of its topics may be fetched now, and how much.

The driver steers a mirror where it fetches, and nowhere else. A batch that was fetched is produced and
committed at once, and another thread renews the lease. So neither ever waits for a limit. The sender
obeys for the same reason: it gets what was fetched.

If nothing is paused or limited, a pair asks one question per turn: has the driver's steering changed?
"""

from __future__ import annotations

from ..control import WorkerControl
from ..control.allowance import LEAST_BYTES
from ..model.steering import UNSTEERED

__all__ = ["Throttle"]


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
        self._left = 0
        self.is_on = False

    def look(self) -> None:
        """Take over the driver's newest steering."""
        newest = self._control.steering
        if newest is self._steering:
            return
        self._steering = newest
        self.is_on = newest.is_on
        if newest.bytes_per_s is None:
            self._left = 0

    # While it is on

    @property
    def may_fetch(self) -> bool:
        """Whether anything may be fetched now."""
        return self._steering.bytes_per_s is None or self._left > 0

    @property
    def paused(self) -> frozenset[str]:
        """The topics that may not be fetched."""
        return self._steering.paused

    @property
    def fetch_bytes(self) -> int | None:
        """The maximum size of the next response; None for no limit. A batch that is larger comes whole."""
        return None if self._steering.bytes_per_s is None else max(LEAST_BYTES, self._left)

    def spend(self, size: int) -> None:
        """Count bytes that were fetched."""
        if self._steering.bytes_per_s is not None:
            self._left -= size

    def ask(self) -> None:
        """Take bytes of the task if none are left."""
        while not self.may_fetch and (taken := self._control.allowance.take(self)):
            self._left += taken

    def wait(self, seconds: float) -> None:
        """Wait for bytes, or for another steering."""
        self._control.allowance.wait(seconds)
