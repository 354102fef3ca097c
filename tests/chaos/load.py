"""Topics for trials: many small batches of every sort, loaded in a second."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rig.wait import wait_until

from .plan import BROKERS, THIRTY_DAYS_MS, Age, Plan

__all__ = ["create_on", "delete_on", "layout", "load"]

_FLUSH_TIMEOUT_S = 60
_TRANSACTION_TIMEOUT_S = 60

_BATCH_BY_FLUSH: dict[str, object] = {
    "linger.ms": 20_000,
    "batch.num.messages": 1_000_000,
    "batch.size": 900_000,
    "log_level": 0,
}

#: Rounds of old records, and of fresh ones, where they come in turn.
_IN_TURN = 8

#: What makes sure that nothing is deleted, however old.
_CONFIG = {"retention.ms": "-1", "min.insync.replicas": "2"}


class LoadFailed(Exception):
    """A record was not acknowledged; the text has librdkafka's reason."""


def layout(plan: Plan, side: str) -> list[list[int]]:
    """Draw each partition's replicas, the leader first."""
    dice = random.Random(f"{plan.layout_seed}/{side}")
    return [dice.sample(range(1, BROKERS + 1), BROKERS) for _ in range(plan.partitions)]


def create_on(bootstrap: str, plan: Plan, replicas: list[list[int]]) -> None:
    """Create the topic, each partition on all brokers, and wait until they all have it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(plan.topic, num_partitions=plan.partitions, replica_assignment=replicas, config=_CONFIG)
    admin.create_topics([new])[plan.topic].result()

    def is_replicated() -> bool:
        found = admin.list_topics(plan.topic, timeout=10).topics[plan.topic].partitions
        return len(found) == plan.partitions and all(len(each.isrs) == BROKERS for each in found.values())

    wait_until(is_replicated, f"replicas of {plan.topic}", timeout_s=60)


def delete_on(bootstrap: str, topic: str) -> None:
    """Delete a topic that a trial is through with."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result()


def load(bootstrap: str, plan: Plan) -> int:
    """
    Load the plan's topic; every record has a key that no other has.

    In each round each partition gets a batch: by an idempotent or a plain producer, in a transaction
    that commits, or in one that aborts, with a batch of somebody else's in between.

    Returns:
        How many records a reader of the plan's isolation level sees.
    """
    return _Loader(bootstrap, plan).run()


class _Loader:
    def __init__(self, bootstrap: str, plan: Plan) -> None:
        self._plan = plan
        self._dice = random.Random(plan.layout_seed)
        self._now_ms = int(time.time() * 1000)
        self._count = 0
        self._failures: list[KafkaError] = []
        self._others = [
            Producer({**_BATCH_BY_FLUSH, **settings, "bootstrap.servers": bootstrap})
            for codec in plan.codecs
            for settings in (
                {"compression.codec": codec, "enable.idempotence": True},
                {"compression.codec": codec, "enable.idempotence": False, "acks": "all"},
            )
        ]
        self._transactional = Producer(
            {
                **_BATCH_BY_FLUSH,
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{plan.topic} {plan.layout_seed}",
                "compression.codec": plan.codecs[0],
            }
        )
        self._transactional.init_transactions(_TRANSACTION_TIMEOUT_S)

    def run(self) -> int:
        seen = 0
        for number in range(self._plan.rounds):
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
                    seen += aborted if self._plan.isolation == "read_uncommitted" else 0
                    self._transactional.abort_transaction(_TRANSACTION_TIMEOUT_S)
                case _:
                    seen += self._round(self._dice.choice(self._others), number)
        return seen

    def _round(self, producer: Producer, number: int) -> int:
        count = 0
        for partition in range(self._plan.partitions):
            for timestamp, value in self._batch(number):
                self._count += 1
                count += 1
                producer.produce(
                    self._plan.topic,
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
        age_ms = THIRTY_DAYS_MS if self._is_old(number) else 0
        for _ in range(self._dice.randint(1, self._plan.largest_batch)):
            size = self._dice.choice([0, 10, 100, 500])
            value = self._dice.choice([None, self._dice.randbytes(size), b"chaos " * (size // 6)])
            yield self._now_ms - age_ms + self._count % 1000, value

    def _is_old(self, number: int) -> bool:
        if self._plan.age is Age.MIXED:
            return number % (2 * _IN_TURN) < _IN_TURN
        return self._plan.age is Age.OLD

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
