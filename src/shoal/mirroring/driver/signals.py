"""
Handle signals to a mirror: SIGINT and SIGTERM end it, SIGUSR1 tries stopped partitions again.

A handler runs between any two instructions of the main thread. If that thread holds the lock of an event,
since it is about to wait for it, a handler that sets it waits for ever. So handlers only put a
request into a queue, which takes no lock that they may interrupt, and a thread carries it out.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any

from ...errors import Stopped

__all__ = ["Signals"]

_ENDING = (signal.SIGINT, signal.SIGTERM)
_RETRYING = signal.SIGUSR1

#: Python runs handlers in the main thread, but the kernel may give a signal to another, as after SIGCONT.
#: Then nothing ends a wait of the main thread that has no limit.
_LOOK_EVERY_S = 0.5


class Signals:
    """
    Handles a mirror's signals while it is entered, in the main thread; in other threads it does nothing.

    PySpark installs a SIGINT handler of its own only if it starts in the main thread, which no mirror's does.

    Attributes:
        received: The name of the signal that ended the mirror; None before one came.

    """

    def __init__(self, stop: threading.Event, on_retry: Callable[[], object]) -> None:
        """
        Prepare the handlers; entering the context installs them.

        Args:
            stop: Set by SIGINT and SIGTERM.
            on_retry: Called for SIGUSR1, in a thread of its own.

        """
        self._stop = stop
        self._on_retry = on_retry
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}
        self._to_do: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._do, name="shoal-signals", daemon=True)
        self.received: str | None = None

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """
        Let a signal end the block at once, by raising Stopped: nothing is in flight yet.

        Raises:
            Stopped: A signal came, or the end was requested before.

        """
        self._interrupts = True
        try:
            self._check()
            yield
        finally:
            self._interrupts = False
        self._check()

    def _check(self) -> None:
        if self.received is not None or self._stop.is_set():
            raise Stopped("the mirror was stopped before it began")

    def wait(self) -> None:
        """Wait in the main thread for a signal that ends the program."""
        while not self._stop.wait(_LOOK_EVERY_S):
            pass

    def end_by(self, cause: str) -> None:
        """End the mirror as a signal does, from any thread; ``cause`` stands for the signal's name."""
        self.received = cause
        self._stop.set()

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._to_do.put(self._stop.set)
        if self._interrupts:
            self._interrupts = False  # once: the clean-up must not be interrupted
            self._check()

    def _retry(self, number: int, frame: FrameType | None) -> None:
        self._to_do.put(self._on_retry)

    def _do(self) -> None:
        while (call := self._to_do.get()) is not None:
            call()

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._thread.start()
            self._before = {number: signal.signal(number, self._end) for number in _ENDING}
            self._before[_RETRYING] = signal.signal(_RETRYING, self._retry)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            self._to_do.put(None)
            self._thread.join()
