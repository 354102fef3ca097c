"""The bytes that one worker may fetch: granted by the driver, and used up by fetched record sets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

__all__ = ["Allowance"]


class Allowance:
    """
    One worker's bytes, by the number of a rate. The control connection receives grants in its own thread.

    Attributes:
        number: The worker's number in its task.

    """

    def __init__(self, number: int, send: Callable[[dict[str, Any]], object]) -> None:
        """
        Begin without bytes.

        Args:
            number: The number of the worker in its task.
            send: Sends a line to the driver.

        """
        self.number = number
        self._send = send
        self._lock = threading.Lock()
        self._left: dict[int, int] = {}
        self._asked: set[int] = set()
        self._news = threading.Event()

    def left(self, rate: int) -> int:
        """Return the bytes that are left of a rate; 0 or less for none."""
        return self._left.get(rate, 0)

    def spend(self, rate: int, size: int) -> None:
        """Use up bytes; a fetch may return more than there were."""
        with self._lock:
            self._left[rate] = self._left.get(rate, 0) - size

    def keep_only(self, rates: Collection[int]) -> None:
        """Drop the bytes of all other rates: their limits are over."""
        with self._lock:
            self._left = {rate: left for rate, left in self._left.items() if rate in rates}
            self._asked &= set(rates)

    def ask(self, wanted: Mapping[int, int]) -> None:
        """
        Ask the driver for bytes of rates that are used up, unless an answer is still to come.

        Args:
            wanted: The number of partitions that have something to copy, by rate.

        """
        with self._lock:
            asked = [
                [rate, partitions, -self._left.get(rate, 0)]
                for rate, partitions in wanted.items()
                if rate not in self._asked
            ]
            self._asked.update(wanted)
        if asked:
            self._send({"wants": {"worker": self.number, "of": asked}})

    def receive(self, granted: Mapping[int, int]) -> None:
        """Add the driver's grants; from the connection's thread."""
        with self._lock:
            for rate in self._asked.intersection(granted):
                self._left[rate] = self._left.get(rate, 0) + granted[rate]
                self._asked.discard(rate)
        self._news.set()

    def wake(self) -> None:
        """End the wait for news: the steering has changed; from the connection's thread."""
        self._news.set()

    def wait(self, seconds: float) -> None:
        """Wait for a grant or a change of the steering."""
        self._news.wait(seconds)
        self._news.clear()
