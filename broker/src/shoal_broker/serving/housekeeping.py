"""The broker's regular work: timeouts and expiry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.printable import logger

__all__ = ["Chore", "Housekeeper"]

_log = logger("shoal_broker")


@dataclass(slots=True)
class Chore:
    """
    Regular work.

    Attributes:
        every_s: The interval, in seconds.
        do: The work; it must not wait.
        next_at: The time of the next run, on the monotonic clock.

    """

    every_s: float
    do: Callable[[], None]
    next_at: float = field(default=0.0, init=False)


class Housekeeper:
    """A thread that does chores while it is started; each first after one interval."""

    def __init__(self, chores: list[Chore]) -> None:
        self._chores = chores
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="shoal-broker-housekeeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        for chore in self._chores:
            chore.next_at = time.monotonic() + chore.every_s
        while not self._stopping.wait(max(0.0, self._next_at() - time.monotonic())):
            for chore in self._chores:
                if chore.next_at <= time.monotonic():
                    chore.next_at = time.monotonic() + chore.every_s
                    self._do(chore)

    def _next_at(self) -> float:
        return min(chore.next_at for chore in self._chores)

    def _do(self, chore: Chore) -> None:
        try:
            chore.do()
        except Exception:
            # A chore that fails must not end the others.
            _log.exception("a chore failed")
