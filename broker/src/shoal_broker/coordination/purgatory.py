"""
Requests that wait: Kafka's purgatory.

Each request waits in its connection's thread. All wake when the broker stops, and twice a second each checks
whether its client hung up. Otherwise a client could occupy a thread for as long as the wait in its request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..storage.log import Log

__all__ = ["NobodyWaits", "Purgatory"]

#: The interval at which a waiting request checks its client, in seconds.
_LOOK_EVERY_S = 0.5


class NobodyWaits(Exception):
    """The broker stopped, or the client hung up, while a request waited; it gets no answer."""


class Purgatory:
    """The requests that wait for logs to grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[threading.Event] = set()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the broker stopped."""
        return self._closed

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._waiting)

    def open(self) -> None:
        """Accept requests that wait."""
        self._closed = False

    def close(self) -> None:
        """Wake every request, and let none wait from now on."""
        with self._lock:
            self._closed = True
            for event in self._waiting:
                event.set()

    def wait_for(
        self,
        condition: Callable[[], bool],
        logs: Sequence[Log],
        timeout_s: float,
        has_hung_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Wait until a condition holds or time is up.

        Args:
            condition: Called at once, and whenever one of the logs grew.
            logs: The logs that it depends on.
            timeout_s: The longest wait, in seconds.
            has_hung_up: Returns whether the client hung up, which ends the wait. Requests that it sent before
                are still served.

        Raises:
            NobodyWaits: The broker stopped.

        """
        if condition():
            return
        deadline = time.monotonic() + timeout_s
        with self._woken_by(logs) as event:
            while True:
                # Cleared before the checks: a change after them sets it again.
                event.clear()
                if self._closed:
                    raise NobodyWaits
                left_s = deadline - time.monotonic()
                if condition() or left_s <= 0:
                    return
                # The loop ends in one more check: a topic that was read may be deleted by now.
                while left_s > 0 and not event.wait(min(left_s, _LOOK_EVERY_S)):
                    left_s = deadline - time.monotonic()
                    if left_s > 0 and has_hung_up():
                        return

    @contextmanager
    def _woken_by(self, logs: Sequence[Log]) -> Iterator[threading.Event]:
        event = threading.Event()
        with self._lock:
            self._waiting.add(event)
        try:
            for log in logs:
                log.watch(event)
            yield event
        finally:
            for log in logs:
                log.unwatch(event)
            with self._lock:
                self._waiting.discard(event)
