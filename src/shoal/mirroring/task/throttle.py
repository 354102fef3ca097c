"""
One worker's throttle: which of its topics may be fetched now, and how much.

The driver steers a mirror where it fetches, and nowhere else. A batch that was fetched is produced and
committed at once, and another thread renews the lease. So neither ever waits for a limit. The sender
obeys for the same reason: it gets what was fetched.
"""

from __future__ import annotations

from ..control import WorkerControl
from ..control.limit import LEAST_BYTES
from ..model.steering import UNSTEERED

__all__ = ["Throttle"]


class Throttle:
    """The throttle of one worker, for its thread."""

    def __init__(self, control: WorkerControl) -> None:
        """Begin without any steering; see :meth:`look`."""
        self._control = control
        self._steering = UNSTEERED
        self._left = 0

    def look(self) -> frozenset[str]:
        """Take over the driver's newest steering; return the topics that it pauses, or no longer does."""
        before, self._steering = self._steering, self._control.driver.steering
        if self._steering.bytes_per_s is None:
            self._left = 0
        return self._steering.paused ^ before.paused

    @property
    def paused(self) -> frozenset[str]:
        """The topics that may not be fetched."""
        return self._steering.paused

    @property
    def _is_limited(self) -> bool:
        return self._steering.bytes_per_s is not None

    def may_fetch(self) -> bool:
        """Return whether anything may be fetched now; take bytes of the task if none are left."""
        while self._is_limited and self._left <= 0 and (taken := self._control.driver.allowance.take(self)):
            self._left += taken
        return not self._is_limited or self._left > 0

    @property
    def fetch_bytes(self) -> int | None:
        """The maximum size of the next response; None for no limit. A batch that is larger comes whole."""
        return max(LEAST_BYTES, self._left) if self._is_limited else None

    def spend(self, size: int) -> None:
        """Count bytes that were fetched."""
        if self._is_limited:
            self._left -= size

    def wait(self, seconds: float) -> None:
        """Wait for bytes, or for another steering."""
        self._control.driver.allowance.wait(seconds)
