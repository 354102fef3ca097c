"""
The wall clock with which the driver compares workers' clocks.

A worker checks the age of records before it has several batches of a partition in flight: the destination's
brokers forget the producer of old records. Only the brokers' clocks matter. The driver uses the
clock of the destination's controller if it can read it, otherwise its own. A worker uses the later of this
clock and its own. So if one worker's clock is wrong, records never look younger than they are. At worst they
look older, and the worker sends one batch at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...client.cluster import Cluster
from ...client.config import ClientConfig
from ...client.quorum import controller_ahead_ms
from .protocol import lease_clock_s, wall_clock_ms

__all__ = ["ReferenceClock"]

#: Machines with NTP differ by milliseconds, and messages are late by seconds at most.
_WORTH_A_WARNING_MS = 60_000.0


class ReferenceClock:
    """The destination's wall clock, or the driver's if that is unknown. Thread-safe."""

    def __init__(
        self, ahead_ms: float | None = None, on_warning: Callable[[str], object] = lambda sentence: None
    ) -> None:
        """
        Start from a measured difference.

        Args:
            ahead_ms: The time by which the clock of the destination's controller is ahead of this machine's;
                None if it is unknown.
            on_warning: A function that receives a sentence for each machine whose clock is wrong.

        """
        self._reference = "the driver's" if ahead_ms is None else "that of the destination's controller"
        #: The controller's clock when the boot clock of this machine was 0. A boot clock cannot be set.
        self._at_boot_ms = None if ahead_ms is None else wall_clock_ms() + ahead_ms - lease_clock_s() * 1000
        self._on_warning = on_warning
        self._lock = threading.Lock()
        self._warned_of: set[str] = set()
        if ahead_ms is not None:
            self.compare("the driver", wall_clock_ms())

    @classmethod
    def of(cls, destination: ClientConfig, on_warning: Callable[[str], object]) -> ReferenceClock:
        """Ask the destination for its time; use the driver's clock if it does not return one."""
        with Cluster(destination.impatient()) as cluster:
            return cls(controller_ahead_ms(cluster), on_warning)

    def now_ms(self) -> float:
        """Return the destination's time, as Unix time in milliseconds."""
        return wall_clock_ms() if self._at_boot_ms is None else lease_clock_s() * 1000 + self._at_boot_ms

    def compare(self, process: str, wall_ms: float) -> None:
        """Compare a clock that a process read just now; warn once for each machine whose clock is wrong."""
        machine = process.partition(":")[0]
        difference_ms = wall_ms - self.now_ms()
        is_wrong = abs(difference_ms) >= _WORTH_A_WARNING_MS
        with self._lock:
            is_news = is_wrong and machine not in self._warned_of
            if is_wrong:
                self._warned_of.add(machine)
            else:
                self._warned_of.discard(machine)
        if is_news:
            direction = "ahead of" if difference_ms > 0 else "behind"
            self._on_warning(
                f"{process}: its wall clock is {abs(difference_ms) / 60_000:.0f} min {direction} "
                f"{self._reference}. Set it, by NTP for instance. Until then the later of the two decides "
                "which records are so old that they go one batch at a time"
            )
