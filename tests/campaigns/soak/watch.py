"""The independent consumer at the destination: it records every arrival in the ledger."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from .ledger import Ledger, read_value

__all__ = ["Watch"]

_LOOK_EVERY_S = 0.25
_POLL_S = 0.1


class Watch:
    """Two threads: one finds topics and partitions, the other reads them all from their beginning.

    No group: its rebalances would look like lag.
    """

    def __init__(self, bootstrap: str, ledger: Ledger, prefix: str) -> None:
        self._ledger = ledger
        self._prefix = prefix
        self._found: queue.SimpleQueue[TopicPartition] = queue.SimpleQueue()
        self._positions: dict[tuple[str, int], int] = {}
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
        self.errors: list[str] = []

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(f"the consumer at the destination: {type(error).__name__}: {error}")

    def _find(self) -> None:
        known: set[tuple[str, int]] = set()
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
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        expected = self._positions.get((topic, partition), 0)
        if offset != expected:
            # A mirror's log has no gaps; and if a record is read twice, it was not written twice.
            self.errors.append(f"{topic}-{partition}: offset {offset} was read, {expected} expected")
            if offset < expected:
                return
        self._positions[topic, partition] = offset + 1
        try:
            said_topic, said_partition, number = read_value(message.value())
        except ValueError:
            self._ledger.stray()
            return
        if (said_topic, said_partition) == (topic, partition):
            self._ledger.arrive(topic, partition, number)
        else:
            self._ledger.stray()
