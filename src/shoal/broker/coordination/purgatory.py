"""
Requests that wait for something: Kafka's purgatory.

A connection's thread waits itself. All of them wake when the broker stops, and
twice a second each looks whether its client is still there: without that, a
client could keep a thread and a connection for as long as it said it would wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from ..storage.log import Log

__all__ = ["NobodyWaits", "Purgatory"]


#: How often a request that waits looks for its client, in seconds.
_LOOK_EVERY_S = 0.5


class NobodyWaits(Exception):
    """The broker stopped, or the client hung up, while a request waited; there will be no answer."""


class Purgatory:
    """Where requests wait for logs to grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[threading.Event] = set()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        """Wake every request, and let no other wait."""
        with self._lock:
            self._closed = True
            for event in self._waiting:
                event.set()

    def wait_for(
        self,
        condition: Callable[[], bool],
        logs: Iterable[Log],
        timeout_s: float,
        has_hung_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Wait until a condition holds or time is up.

        Args:
            condition: Looked at once at first, and whenever one of the logs grew.
            logs: On which it depends.
            timeout_s: The longest wait, in seconds.
            has_hung_up: Whether the client did: then there is nothing to wait for. It may have sent more
                before, which is still served.

        Raises:
            NobodyWaits: The broker stopped meanwhile.

        """
        if condition():
            return
        deadline = time.monotonic() + timeout_s
        with self._told(logs) as event:
            while True:
                # Cleared before the looks: what comes after them sets it again.
                event.clear()
                if self._closed:
                    raise NobodyWaits
                left_s = deadline - time.monotonic()
                if condition() or left_s <= 0:
                    return
                # At the deadline it is looked at once more: what was read may be gone, as a deleted topic.
                while left_s > 0 and not event.wait(min(left_s, _LOOK_EVERY_S)):
                    left_s = deadline - time.monotonic()
                    if left_s > 0 and has_hung_up():
                        return

    def pause(self, seconds: float) -> None:
        """
        Do nothing for a while.

        Raises:
            NobodyWaits: The broker stopped meanwhile.

        """
        if seconds > 0:
            self.wait_for(lambda: False, (), seconds)

    @contextmanager
    def _told(self, logs: Iterable[Log]) -> Iterator[threading.Event]:
        event = threading.Event()
        with ExitStack() as stack:
            for log in logs:
                stack.enter_context(log.watched(event))
            with self._lock:
                self._waiting.add(event)
            try:
                yield event
            finally:
                with self._lock:
                    self._waiting.discard(event)
