"""Work in threads beside a measurement: loads, consumers and the yardstick."""

import threading
from abc import ABC, abstractmethod
from typing import Self

__all__ = ["InThreads"]


class InThreads(ABC):
    """Work in threads until the ``with`` block ends, or `stop`; an exception of one is raised there."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def begin(self, *arguments: str) -> None:
        """Start a thread of `work`."""
        thread = threading.Thread(target=self._call, args=arguments, name=type(self).__name__)
        self._threads.append(thread)
        thread.start()

    @abstractmethod
    def work(self, *arguments: str) -> None:
        """Work until `_over` is set."""

    def _call(self, *arguments: str) -> None:
        try:
            self.work(*arguments)
        except BaseException as error:  # raised by stop
            self._failures.append(error)

    def stop(self) -> None:
        """End the threads, and return when they have ended."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
