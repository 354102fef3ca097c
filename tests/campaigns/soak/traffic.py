"""The load of a soak, and the independent consumer at the destination.

Small batches and bursts, idempotent and in transactions, over topics of all codecs; the number of records
that arrive of each partition, and their lag.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from rig.load import CODECS, Codec

__all__ = ["Arrival", "Arrivals", "Load", "LoadedTopic", "Partition"]

#: Topic and number.
Partition = tuple[str, int]

#: The records of each tick go to one partition, and so into one batch.
_TICK_S = 0.02
_TRANSACTION_S = (0.2, 0.8)
_ABORTED = 0.15
#: Part of the records, in transactions.
_TRANSACTIONAL = 0.15
_BURST_EVERY_S = 5.0
_BURST = 100
_CALL_S = 60.0

_PRODUCER: dict[str, object] = {
    "linger.ms": 5,
    "message.timeout.ms": 0,  # a broker that is down comes back
    "topic.metadata.refresh.interval.ms": 5_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 50,
    "log_level": 0,  # of brokers that are down
}


_POLL_S = 0.1


class _Threads:
    """
    Threads that work until they are stopped; a context manager.

    Attributes:
        errors: Each failure, as a sentence.

    """

    def __init__(self, *work: Callable[[], None]) -> None:
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(each,)) for each in work]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Return once all threads have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(f"{work.__name__.strip('_')}: {type(error).__name__}: {error}")


@dataclass
class LoadedTopic:
    """
    A topic, and its kind of load.

    Attributes:
        partitions: Number of partitions that get records; may grow.
        transactional: Whether its records are sent in transactions.

    """

    name: str
    codec: Codec
    partitions: int
    transactional: bool = False


class Load(_Threads):
    """
    Threads that send until they are stopped, and then until the outcome of all requests is known.

    Attributes:
        topics: The topics that get records.
        committed: The records of each partition that the source has for certain.
        transactions: The numbers of committed and of aborted ones.

    """

    def __init__(self, bootstrap: str, seed: int, records_per_s: float) -> None:
        super().__init__(self._send_batches, self._send_transactions)
        self.topics: list[LoadedTopic] = []
        self.committed: Counter[Partition] = Counter()
        self.transactions: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._dice = random.Random(seed)
        self._rate = records_per_s
        self._count = itertools.count()
        self._paddings = [self._padding() for _ in range(64)]

    def _padding(self) -> bytes:
        size = self._dice.choice([20, 100, 300, 1000])
        return self._dice.randbytes(size // 2) + b"soak " * (size // 10)

    # Batches

    def _send_batches(self) -> None:
        producers = {codec: self._producer(codec, {"enable.idempotence": True}) for codec in CODECS}
        rate = self._rate * (1 - _TRANSACTIONAL)
        began, sent, burst_at = time.monotonic(), 0, _BURST_EVERY_S
        while not self._stop.wait(_TICK_S):
            elapsed = time.monotonic() - began
            due = int(elapsed * rate) - sent
            sent += due
            if elapsed > burst_at:
                due += _BURST
                burst_at += _BURST_EVERY_S
            topic, partition = self._choose(transactional=False)
            for _ in range(due):
                self._send(producers[topic.codec], topic, partition)
            for producer in producers.values():
                producer.poll(0)
        for producer in producers.values():
            if unsent := producer.flush(_CALL_S):
                self.errors.append(f"{unsent} records were not acknowledged")

    def _choose(self, *, transactional: bool) -> tuple[LoadedTopic, int]:
        topic = self._dice.choice([each for each in self.topics if each.transactional is transactional])
        return topic, self._dice.randrange(topic.partitions)

    def _send(self, producer: Producer, topic: LoadedTopic, partition: int) -> Partition:
        place = topic.name, partition

        def delivered(error: KafkaError | None, message: Message) -> None:
            if topic.transactional:
                return  # the transaction's end decides
            if error is not None:
                self.errors.append(f"{place}: {error}")
            else:
                self.committed[place] += 1

        key, value = b"%d" % next(self._count), self._dice.choice(self._paddings)
        while True:
            try:
                producer.produce(topic.name, value, key, partition, on_delivery=delivered)
                return place
            except BufferError:
                producer.poll(0.05)
            except KafkaException as error:
                # This producer's metadata is older than the partition.
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                with contextlib.suppress(KafkaException):
                    producer.list_topics(topic.name, timeout=10)

    def _producer(self, codec: Codec, more: dict[str, object]) -> Producer:
        return Producer(
            {**_PRODUCER, "bootstrap.servers": self._bootstrap, "compression.codec": codec, **more}
        )

    # Transactions

    def _send_transactions(self) -> None:
        producer = self._transactional_producer()
        while not self._stop.is_set():
            records: Counter[Partition] = Counter()
            duration_s = self._dice.uniform(*_TRANSACTION_S)
            aborts = self._dice.random() < _ABORTED
            try:
                producer.begin_transaction()
                for _ in range(max(1, int(duration_s * self._rate * _TRANSACTIONAL))):
                    records[self._send(producer, *self._choose(transactional=True))] += 1
                self._stop.wait(duration_s)
                # Flush before an abort: otherwise librdkafka would drop the records before they reach the
                # log.
                producer.flush(_CALL_S)
                if aborts:
                    self._abort(producer)
                else:
                    self._persistently(producer.commit_transaction)
                    self.committed += records
                    self.transactions["committed"] += 1
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    self._abort(producer)
                else:
                    # Fenced, or in doubt: a new producer with the same id ends the old one's transaction.
                    producer = self._transactional_producer()

    def _abort(self, producer: Producer) -> None:
        self._persistently(producer.abort_transaction)
        self.transactions["aborted"] += 1

    def _persistently(self, call: Callable[[float], object]) -> None:
        while True:
            try:
                call(_CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _transactional_producer(self) -> Producer:
        producer = self._producer("lz4", {"transactional.id": "soak", "transaction.timeout.ms": 300_000})
        while True:
            try:
                producer.init_transactions(_CALL_S)
                return producer
            except KafkaException as error:
                if not error.args[0].retriable() or self._stop.is_set():
                    raise


class Arrival(NamedTuple):
    """A record at the destination; times are seconds since 1970."""

    sent_s: float
    arrived_s: float

    @property
    def lag_ms(self) -> float:
        return (self.arrived_s - self.sent_s) * 1000


class Arrivals(_Threads):
    """
    A thread that reads partitions from their beginning, in no group: its rebalances would look like lag.

    Attributes:
        counts: The records of each partition.
        first_s: When the first record of a partition arrived.
        all: All arrivals but those of transactions, which are readable only at their commit.

    """

    def __init__(self, bootstrap: str, transactional: str) -> None:
        super().__init__(self._read)
        self.counts: Counter[Partition] = Counter()
        self.first_s: dict[Partition, float] = {}
        self.all: list[Arrival] = []
        self._transactional = transactional
        self._newest_sent_s: dict[Partition, float] = {}
        self._watched: queue.SimpleQueue[TopicPartition] = queue.SimpleQueue()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "soak-watch",  # required by librdkafka, never joined
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.error.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # of brokers that are down
            }
        )

    def watch(self, topic: str, partitions: Iterable[int]) -> None:
        """Read some partitions as soon as the destination has them."""
        for number in partitions:
            self._watched.put(TopicPartition(topic, number, 0))

    def lag_s(self) -> float:
        """Return how long ago the newest record was sent of the partition that is furthest behind."""
        return time.time() - min(self._newest_sent_s.copy().values(), default=0.0)

    def missing(self, committed: Counter[Partition]) -> list[Partition]:
        """Return the partitions of which fewer records have arrived than the source committed."""
        return sorted(each for each, count in committed.items() if self.counts[each] < count)

    def first_of(self, topic: str, partitions: Iterable[int]) -> float | None:
        """Return the time of the first arrival in some partitions; None if there is none."""
        return min(filter(None, (self.first_s.get((topic, each)) for each in partitions)), default=None)

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                with contextlib.suppress(queue.Empty):
                    while True:
                        self._consumer.incremental_assign([self._watched.get_nowait()])
                message = self._consumer.poll(_POLL_S)
                if message is not None:
                    self._take(message)
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                self.errors.append(f"read: {error}")
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
