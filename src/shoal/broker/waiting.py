"""
Requests that wait for something: Kafka's purgatory.

A connection's thread waits itself. All of them wake when the broker stops.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from .log import Log

__all__ = ["BrokerStopped", "Purgatory"]


class BrokerStopped(Exception):
    """The broker stopped while a request waited; its connection ends without an answer."""


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

    def wait_for(self, condition: Callable[[], bool], logs: Iterable[Log], timeout_s: float) -> None:
        """
        Wait until a condition holds or time is up.

        Args:
            condition: Looked at once at first, and whenever one of the logs grew.
            logs: On which it depends.
            timeout_s: The longest wait, in seconds.

        Raises:
            BrokerStopped: It stopped meanwhile.

        """
        if condition():
            return
        deadline = time.monotonic() + timeout_s
        with self._told(logs) as event:
            while True:
                # Cleared before the looks: what comes after them sets it again.
                event.clear()
                if self._closed:
                    raise BrokerStopped
                left_s = deadline - time.monotonic()
                if condition() or left_s <= 0:
                    return
                event.wait(left_s)

    def pause(self, seconds: float) -> None:
        """
        Do nothing for a while.

        Raises:
            BrokerStopped: It stopped meanwhile.

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
