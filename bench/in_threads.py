"""Work in threads beside a measurement: loads and consumers."""

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from confluent_kafka import Producer

__all__ = ["InThreads", "Load"]


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


class Load(InThreads):
    """Records for some partitions in turn, at a rate; each is acknowledged when `stop` returns."""

    def __init__(self, bootstrap: str, places: Sequence[tuple[str, int]], records_per_s: float) -> None:
        super().__init__()
        self._places = itertools.cycle(places)
        self._interval_s = 1 / records_per_s
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
        )
        self.begin()

    def work(self, *arguments: str) -> None:
        while not self._over.wait(self._interval_s):
            topic, partition = next(self._places)
            self._producer.produce(topic, bytes(200), partition=partition)
            self._producer.poll(0)
        if unsent := self._producer.flush(60):
            raise RuntimeError(f"{unsent} records were not acknowledged")
