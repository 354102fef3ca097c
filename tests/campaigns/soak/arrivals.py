"""The independent consumer at the destination: the number of records of each partition, and their lag."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

__all__ = ["Arrival", "Arrivals", "Partition"]

_LOOK_EVERY_S = 0.25
_POLL_S = 0.1

#: Topic and number.
Partition = tuple[str, int]


class Arrival(NamedTuple):
    """A record at the destination; times are seconds since 1970."""

    sent_s: float
    arrived_s: float

    @property
    def lag_ms(self) -> float:
        return (self.arrived_s - self.sent_s) * 1000


class Arrivals:
    """
    Two threads: one finds topics and partitions, the other reads them all from their beginning.

    No group: its rebalances would look like lag.

    Attributes:
        counts: The records of each partition.
        first_s: When the first record of a partition arrived.
        all: All arrivals but those of transactions, which are readable only at their commit.
        errors: Each failure, as a sentence.

    """

    def __init__(self, bootstrap: str, prefix: str, transactional: str) -> None:
        self.counts: Counter[Partition] = Counter()
        self.first_s: dict[Partition, float] = {}
        self.all: list[Arrival] = []
        self.errors: list[str] = []
        self._prefix, self._transactional = prefix, transactional
        self._newest_sent_s: dict[Partition, float] = {}
        self._found: queue.SimpleQueue[TopicPartition] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "soak-watch",  # required by librdkafka, never joined
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.error.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 5_000,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # of brokers that are down
            }
        )
        self._threads = [
            threading.Thread(target=self._guarded, args=(target,), name=target.__name__)
            for target in (self._find, self._read)
        ]

    def __enter__(self) -> Arrivals:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def lag_s(self) -> float:
        """Return how long ago the newest record was sent of the partition that is furthest behind."""
        return time.time() - min(self._newest_sent_s.copy().values(), default=0.0)

    def missing(self, committed: Counter[Partition]) -> list[Partition]:
        """Return the partitions of which fewer records have arrived than the source committed."""
        return sorted(each for each, count in committed.items() if self.counts[each] < count)

    def first_of(self, topic: str, partitions: Iterable[int]) -> float | None:
        """Return the time of the first arrival in some partitions; None if there is none."""
        return min(filter(None, (self.first_s.get((topic, each)) for each in partitions)), default=None)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(f"the consumer at the destination: {type(error).__name__}: {error}")

    def _find(self) -> None:
        known: set[Partition] = set()
        while not self._stop.wait(_LOOK_EVERY_S):
            with contextlib.suppress(KafkaException):
                for name, topic in self._admin.list_topics(timeout=5).topics.items():
                    new = {(name, number) for number in topic.partitions} - known
                    if name.startswith(self._prefix):
                        known |= new
                        for _, number in new:
                            self._found.put(TopicPartition(name, number, 0))

    def _read(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Empty):
                while True:
                    self._consumer.incremental_assign([self._found.get_nowait()])
            message = self._consumer.poll(_POLL_S)
            if message is not None:
                self._take(message)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                self.errors.append(f"the consumer at the destination: {error}")
            return
        partition = message.topic() or "", message.partition() or 0
        offset, (_, sent_ms) = message.offset() or 0, message.timestamp()
        if offset != self.counts[partition]:
            # A mirror's log has no gaps; and if a record is read twice, it was not written twice.
            self.errors.append(f"{partition}: offset {offset} was read, {self.counts[partition]} expected")
            if offset < self.counts[partition]:
                return
        self.counts[partition] = offset + 1
        arrival = Arrival(sent_ms / 1000, time.time())
        self.first_s.setdefault(partition, arrival.arrived_s)
        self._newest_sent_s[partition] = arrival.sent_s
        if partition[0] != self._transactional:
            self.all.append(arrival)
