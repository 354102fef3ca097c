"""
One worker's throttle: which of its topics may be fetched now, and how much of them.

The driver steers a mirror where it fetches, and nowhere else. A batch that was fetched is produced and
committed at once, and another thread renews the lease. So neither ever waits for a limit. The sender
obeys for the same reason: it gets what was fetched.

If nothing is paused or limited, a copy loop asks one question per turn: has the driver's steering changed?
"""

from __future__ import annotations

from collections import Counter
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
        self._commits = 0
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
            self._allowance.keep_only(newest.numbers)

    def take_commit(self) -> bool:
        """Whether an operator has requested a commit since the last call."""
        before, self._commits = self._commits, self._control.steering.commits
        return before != self._commits

    # While it is on

    @property
    def _bytes(self) -> Allowance:
        assert self._allowance is not None, "it is on, or was"
        return self._allowance

    @property
    def may_fetch(self) -> bool:
        """Whether anything may be fetched now."""
        steering = self._steering
        if steering.is_paused:
            return False
        return steering.total is None or self._bytes.left(steering.total) > 0

    def is_paused(self, topic: str) -> bool:
        """Whether the driver has paused a topic, or all."""
        return self._steering.is_paused or topic in self._steering.paused

    def held(self) -> frozenset[str]:
        """Return the topics that may not be fetched now: paused ones, and those whose rate is used up."""
        steering = self._steering
        if not steering.rates:
            return steering.paused
        left = {rate: self._bytes.left(rate) for rate in set(steering.rates.values())}
        return steering.paused.union(topic for topic, rate in steering.rates.items() if left[rate] <= 0)

    @property
    def fetch_bytes(self) -> int | None:
        """The maximum size of the next response; None for no limit. A batch that is larger comes whole."""
        total = self._steering.total
        return None if total is None else max(_LEAST_FETCH_BYTES, self._bytes.left(total))

    def partition_bytes(self, topic: str, partitions: int) -> int | None:
        """
        Return the maximum size of a partition in a response; None for no limit.

        Args:
            topic: The partition's topic.
            partitions: The number of partitions of this worker that share the topic's rate.

        """
        rate = self._steering.rates.get(topic)
        return None if rate is None else max(_LEAST_FETCH_BYTES, self._bytes.left(rate) // max(1, partitions))

    def sharing(self, topics: Iterable[str]) -> Counter[int]:
        """Return the number of partitions that share each rate, from the topic of each partition."""
        rates = self._steering.rates
        if not rates:
            return Counter()
        return Counter(rates[topic] for topic in topics if topic in rates)

    def rate_of(self, topic: str) -> int | None:
        """Return the number of a topic's own rate."""
        return self._steering.rates.get(topic)

    def spend(self, topic: str, size: int) -> None:
        """Count bytes of a topic that were fetched."""
        for rate in (self._steering.total, self._steering.rates.get(topic)):
            if rate is not None:
                self._bytes.spend(rate, size)

    def ask(self, behind: Iterable[str]) -> None:
        """Ask the driver for bytes of rates that are used up; ``behind`` has the topic of each partition."""
        steering = self._steering
        wanted = {rate: 0 for rate in steering.numbers if self._bytes.left(rate) <= 0}
        if not wanted:
            return
        for topic in behind:
            if not self.is_paused(topic):
                for rate in (steering.total, steering.rates.get(topic)):
                    if rate in wanted:
                        wanted[rate] += 1
        self._bytes.ask(wanted)

    def wait(self, seconds: float) -> None:
        """Wait for the driver: for bytes, or for another steering."""
        self._bytes.wait(seconds)
