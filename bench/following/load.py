"""The size of many topics and groups, and a producer that sends records to all of them."""

import itertools
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from bench.measure import MoverFailed
from rig.load import transactional_producer

__all__ = ["Producing", "Size", "producing"]

_PER_TOPIC = 50


@dataclass(frozen=True)
class Size:
    """The size of the topics and groups.

    Attributes:
        name: The beginning of the topics' names.
        partitions: Number of partitions.
        groups: Number of groups.
        topics_per_group: How many topics of 50 partitions a group has offsets of.
        megabytes: Size of the records that are there before.
    """

    name: str
    partitions: int = 1200
    groups: int = 100
    topics_per_group: int = 1
    megabytes: int = 120

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        firsts = range(0, self.partitions, _PER_TOPIC)
        return {
            f"{self.name}.{number}": min(_PER_TOPIC, self.partitions - first)
            for number, first in enumerate(firsts)
        }

    @property
    def topics_regex(self) -> str:
        """A regular expression that matches the topics."""
        return f"{self.name}[.].*"

    def topics_of(self, group: int) -> list[str]:
        """The topics that a group reads."""
        names = list(self.topics)
        count = min(len(names), self.topics_per_group)
        return [names[(group + number) % len(names)] for number in range(count)]


#: The time between two commits of a producer with transactions.
_TRANSACTION_S = 1.0


class Producing:
    """A producer that sends records to all partitions, in a thread."""

    def __init__(
        self, bootstrap: str, topics: Mapping[str, int], records_per_s: float, *, in_transactions: bool
    ) -> None:
        self._places = [(topic, number) for topic, count in topics.items() for number in range(count)]
        self._in_transactions = in_transactions
        if in_transactions:
            self._producer = transactional_producer(bootstrap, "bench-following")
        else:
            config = {"bootstrap.servers": bootstrap, "linger.ms": 50, "enable.idempotence": True}
            self._producer = Producer({**config, "log_level": 0})
        self._interval_s = 1 / records_per_s
        self._failures: list[KafkaError] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer")
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more; the source has acknowledged everything on return."""
        self._over.set()
        self._thread.join()
        if self._producer.flush(60) or self._failures:
            raise MoverFailed(f"records did not reach the source: {self._failures[:1]}")

    def _run(self) -> None:
        rng = random.Random(2)
        due = time.monotonic()
        if self._in_transactions:
            self._producer.begin_transaction()
        for number in itertools.count():
            if self._over.wait(self._interval_s):
                break
            topic, partition = rng.choice(self._places)
            value = b"%d " % number * 20
            self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            if self._in_transactions and time.monotonic() >= due:
                self._producer.commit_transaction(60)
                self._producer.begin_transaction()
                due = time.monotonic() + _TRANSACTION_S
        if self._in_transactions:
            self._producer.commit_transaction(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)


@contextmanager
def producing(
    bootstrap: str, topics: Mapping[str, int], records_per_s: float, *, in_transactions: bool = False
) -> Iterator[Producing]:
    """Send records in a ``with`` block."""
    producer = Producing(bootstrap, topics, records_per_s, in_transactions=in_transactions)
    try:
        yield producer
    finally:
        producer.stop()
