"""Topics for trials: many small batches of every sort, loaded in a second."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rig.read import Isolation
from rig.wait import wait_until

from .arena import BROKERS, Side
from .setup import Age, Setup

__all__ = ["add_partitions", "await_ends", "create_on", "delete_on", "layout", "load"]

_FLUSH_TIMEOUT_S = 60
_TRANSACTION_TIMEOUT_S = 60

_BATCH_BY_FLUSH: dict[str, object] = {
    "linger.ms": 20_000,
    "batch.num.messages": 1_000_000,
    "batch.size": 900_000,
    "log_level": 0,
}

THIRTY_DAYS_MS = 30 * 86_400_000

#: Rounds of old records, and of fresh ones, if they alternate.
_IN_TURN = 8

#: Keeps all records, however old.
_CONFIG = {"retention.ms": "-1", "min.insync.replicas": "2"}


class LoadFailed(Exception):
    """A record was not acknowledged; the text has librdkafka's reason."""


def layout(topic: str, side: Side, partitions: int) -> list[list[int]]:
    """Draw each partition's replicas, the leader first."""
    dice = random.Random(f"{topic}/{side.value}")
    return [dice.sample(range(1, BROKERS + 1), BROKERS) for _ in range(partitions)]


def create_on(bootstrap: str, topic: str, replicas: list[list[int]]) -> None:
    """Create a topic, each partition on all brokers, and wait until they all have it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas, config=_CONFIG)
    admin.create_topics([new])[topic].result()
    _await_replicas(admin, topic, len(replicas))


def add_partitions(bootstrap: str, topic: str, partitions: int, replicas: list[list[int]]) -> None:
    """Add partitions to a topic that has this many, and wait until all brokers have them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    more = NewPartitions(topic, partitions + len(replicas), replica_assignment=replicas)
    admin.create_partitions([more])[topic].result()
    _await_replicas(admin, topic, partitions + len(replicas))


def _await_replicas(admin: AdminClient, topic: str, partitions: int) -> None:
    def is_replicated() -> bool:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == partitions and all(len(each.isrs) >= BROKERS - 1 for each in found.values())

    wait_until(is_replicated, f"replicas of {topic}", timeout_s=60)


def delete_on(bootstrap: str, topic: str) -> None:
    """Delete a topic that a trial no longer needs."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result()


def await_ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Wait until no transaction is open (markers come after the commit), and return the end offsets."""
    ends: list[int] = []

    def is_settled() -> bool:
        try:
            ends[:] = _watermarks(bootstrap, topic, partitions, "read_uncommitted")
            return ends == _watermarks(bootstrap, topic, partitions, "read_committed")
        except KafkaException:
            return False  # a broker is down

    wait_until(is_settled, f"the last markers of {topic}", timeout_s=60)
    return ends


def _watermarks(bootstrap: str, topic: str, partitions: int, isolation: Isolation) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",  # required by librdkafka, never joined
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        return [
            int(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1])
            for number in range(partitions)
        ]
    finally:
        consumer.close()


def load(bootstrap: str, setup: Setup, topic: str, partitions: int, rounds: int, first_key: int) -> int:
    """Load all partitions of a topic; every record has a unique key.

    In each round each partition gets a batch: by an idempotent or a plain producer, in a committed
    transaction, or in an aborted one. An aborted one has a batch of another producer between its own.

    Returns:
        Number of records that a consumer of the setup's isolation level reads.
    """
    return _Loader(bootstrap, setup, topic, partitions, first_key).run(rounds)


class _Loader:
    def __init__(self, bootstrap: str, setup: Setup, topic: str, partitions: int, first_key: int) -> None:
        self._setup = setup
        self._topic = topic
        self._partitions = partitions
        self._dice = random.Random(f"{topic}/{first_key}")
        self._count = first_key - 1
        self._failures: list[KafkaError] = []
        self._others = [
            Producer({**_BATCH_BY_FLUSH, **settings, "bootstrap.servers": bootstrap})
            for codec in setup.codecs
            for settings in (
                {"compression.codec": codec, "enable.idempotence": True},
                {"compression.codec": codec, "enable.idempotence": False, "acks": "all"},
            )
            if settings["enable.idempotence"] or not setup.lasts_s
        ]
        self._transactional = Producer(
            {
                **_BATCH_BY_FLUSH,
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{topic} {first_key}",
                "compression.codec": setup.codecs[0],
            }
        )
        self._transactional.init_transactions(_TRANSACTION_TIMEOUT_S)

    def run(self, rounds: int) -> int:
        seen = 0
        for number in range(rounds):
            match self._dice.randrange(8):
                case 0:
                    self._transactional.begin_transaction()
                    seen += self._round(self._transactional, number)
                    self._transactional.commit_transaction(_TRANSACTION_TIMEOUT_S)
                case 1:
                    self._transactional.begin_transaction()
                    aborted = self._round(self._transactional, number)
                    seen += self._round(self._dice.choice(self._others), number)
                    aborted += self._round(self._transactional, number)
                    seen += aborted if self._setup.isolation == "read_uncommitted" else 0
                    self._transactional.abort_transaction(_TRANSACTION_TIMEOUT_S)
                case _:
                    seen += self._round(self._dice.choice(self._others), number)
        return seen

    def _round(self, producer: Producer, number: int) -> int:
        count = 0
        for partition in range(self._partitions):
            for timestamp, value in self._batch(number):
                self._count += 1
                count += 1
                producer.produce(
                    self._topic,
                    value,
                    b"%d" % self._count,
                    partition=partition,
                    headers=[("n", b"%d" % number)] if self._count % 3 == 0 else None,
                    timestamp=timestamp,
                    on_delivery=self._delivered,
                )
        unsent = producer.flush(_FLUSH_TIMEOUT_S)
        if unsent or self._failures:
            raise LoadFailed(f"{len(self._failures)} failed, {unsent} unsent: {self._failures[:1]}")
        return count

    def _batch(self, number: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield timestamps and values."""
        now_ms = int(time.time() * 1000) - (THIRTY_DAYS_MS if self._is_old(number) else 0)
        for _ in range(self._dice.randint(1, self._setup.largest_batch)):
            size = self._dice.choice([0, 10, 100, 500])
            value = self._dice.choice([None, self._dice.randbytes(size), b"chaos " * (size // 6)])
            # In a long trial, the time until a record arrives is measured.
            yield now_ms + (0 if self._setup.lasts_s else self._count % 1000), value

    def _is_old(self, number: int) -> bool:
        if self._setup.age is Age.MIXED:
            return number % (2 * _IN_TURN) < _IN_TURN
        return self._setup.age is Age.OLD

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
