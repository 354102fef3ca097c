"""The bytes that one worker may fetch: granted by the driver, and used up by fetched record sets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Allowance"]


class Allowance:
    """
    One worker's bytes of the present rate. The control connection receives grants in its own thread.

    Attributes:
        number: The worker's number in its task.
        left: The bytes that are left; 0 or less for none.

    """

    def __init__(self, number: int, send: Callable[[dict[str, Any]], object]) -> None:
        """
        Begin without bytes.

        Args:
            number: The number of the worker in its task.
            send: Sends a line to the driver.

        """
        self.number = number
        self.left = 0
        self._send = send
        self._lock = threading.Lock()
        self._rate: int | None = None
        self._is_asking = False
        self._news = threading.Event()

    def begin(self, rate: int | None) -> None:
        """Drop the bytes and debts of the former rate, unless it is this one."""
        with self._lock:
            if rate != self._rate:
                self._rate, self.left, self._is_asking = rate, 0, False

    def spend(self, size: int) -> None:
        """Use up bytes; a fetch may return more than there were."""
        with self._lock:
            self.left -= size

    def ask(self, partitions: int) -> None:
        """Ask the driver for bytes for partitions that have something to copy, unless an answer is due."""
        with self._lock:
            if self._is_asking or self._rate is None:
                return
            self._is_asking = True
            wanted = [self._rate, self.number, partitions, -self.left]
        self._send({"wants": wanted})

    def receive(self, rate: int, size: int) -> None:
        """Add a grant of the driver; from the connection's thread."""
        with self._lock:
            if self._is_asking and rate == self._rate:
                self.left += size
                self._is_asking = False
        self._news.set()

    def wake(self) -> None:
        """End the wait for news: the steering has changed; from the connection's thread."""
        self._news.set()

    def wait(self, seconds: float) -> None:
        """Wait for a grant or a change of the steering."""
        self._news.wait(seconds)
        self._news.clear()
