"""Topics for trials: many small batches of every sort, loaded in a second."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rig.load import Loaded, Producers
from rig.record import Record
from rig.wait import wait_until

from .arena import BROKERS, Side
from .setup import Age, Setup

__all__ = ["add_partitions", "create_on", "delete_on", "layout", "load"]

THIRTY_DAYS_MS = 30 * 86_400_000

#: Rounds of old records, and of fresh ones, if they alternate.
_IN_TURN = 8

#: Keeps all records, however old.
_CONFIG = {"retention.ms": "-1", "min.insync.replicas": "2"}


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


def load(bootstrap: str, setup: Setup, topic: str, partitions: int, rounds: int, first_key: int) -> int:
    """Load all partitions of a topic; every record has a unique key.

    In each round each partition gets a batch: by an idempotent or a plain producer, in a committed
    transaction, or in an aborted one. An aborted one has a batch of another producer between its own.

    Returns:
        Number of records that a consumer of the setup's isolation level reads.
    """
    dice = random.Random(f"{topic}/{first_key}")
    transactional = f"{topic} {first_key}"
    producers = Producers.of(bootstrap, topic, setup.codecs, transactional, setup.codecs[0])
    others = [*producers.idempotent, *([] if setup.lasts_s else producers.plain)]
    records = _Records(setup, dice, partitions, first_key)
    seen = 0
    for number in range(rounds):
        kind, new = dice.randrange(8), records.of_round(number)
        if kind == 1:
            between, last = records.of_round(number), records.of_round(number)
            producers.abort(new, last, between=(dice.choice(others), between))
            seen += _count(between)
            if setup.isolation == "read_committed":
                continue
            seen += _count(last)
        elif kind == 0:
            producers.commit(new)
        else:
            producers.send(dice.choice(others), new)
        seen += _count(new)
    return seen


def _count(records: Loaded) -> int:
    return sum(map(len, records.values()))


class _Records:
    """Records of any content and age, each with a key of its own."""

    def __init__(self, setup: Setup, dice: random.Random, partitions: int, first_key: int) -> None:
        self._setup, self._dice, self._partitions = setup, dice, partitions
        self._keys = itertools.count(first_key)

    def of_round(self, number: int) -> Loaded:
        """Return a batch for each partition."""
        return {partition: list(self._batch(number)) for partition in range(self._partitions)}

    def _batch(self, number: int) -> Iterator[Record]:
        now_ms = int(time.time() * 1000) - (THIRTY_DAYS_MS if self._is_old(number) else 0)
        for _ in range(self._dice.randint(1, self._setup.largest_batch)):
            key, size = next(self._keys), self._dice.choice([0, 10, 100, 500])
            value = self._dice.choice([None, self._dice.randbytes(size), b"chaos " * (size // 6)])
            headers = (("n", b"%d" % number),) if key % 3 == 0 else ()
            # In a long trial, the time until a record arrives is measured.
            yield Record(b"%d" % key, value, headers, now_ms + (0 if self._setup.lasts_s else key % 1000))

    def _is_old(self, number: int) -> bool:
        if self._setup.age is Age.MIXED:
            return number % (2 * _IN_TURN) < _IN_TURN
        return self._setup.age is Age.OLD
