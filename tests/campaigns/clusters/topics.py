"""The source topics of a trial: load them, change them during the copy, and say what a copy must have."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence

from rig.load import await_markers
from rig.read import read_topic
from rig.record import Record
from shoal.topic_partition import TopicPartition

from .arena import BROKERS, Side
from .load import add_partitions, create_on, delete_on, layout, load
from .setup import Setup

__all__ = ["SourceTopics"]

#: No load of a trial has this many records, so that no two share a key.
_KEYS_OF_A_LOAD = 1_000_000


class SourceTopics:
    """The topics of a trial, and their producers; any thread may change them.

    Attributes:
        partitions: The number of partitions of each topic.
        ends: The end of each partition, by topic and number.
        problems: Problems of the trial itself: a load that cannot be read back.
    """

    def __init__(self, bootstrap: str, setup: Setup) -> None:
        self.partitions = {setup.topic: setup.partitions}
        self.ends: dict[TopicPartition, int] = {}
        self.problems: list[str] = []
        self._bootstrap = bootstrap
        self._setup = setup
        self._dice = random.Random(f"{setup.topic}/topics")
        self._loaded = {setup.topic: 0}
        self._loads = 0
        self._passed_over: dict[int, int] = {}
        self._former: dict[int, list[Record]] = {}
        self._changing = threading.RLock()

    @property
    def names(self) -> list[str]:
        return list(self.partitions)

    @property
    def was_created_again(self) -> bool:
        return bool(self._former)

    def create(self) -> None:
        """Create the first topic."""
        topic, partitions = self._setup.topic, self._setup.partitions
        create_on(self._bootstrap, topic, layout(topic, Side.SOURCE, partitions))

    def delete(self) -> None:
        """Delete all topics."""
        for topic in self.partitions:
            delete_on(self._bootstrap, topic)

    def load(self, rounds: int) -> None:
        """Let all partitions of all topics grow by this many batches."""
        with self._changing:
            for topic in self.partitions:
                self._load(topic, rounds)

    def pass_over(self) -> None:
        """Note that a mirror with ``--start latest`` has started now, and leaves out all before."""
        before = self.read(self._setup.topic)
        self._passed_over = {number: len(records) for number, records in before.items()}

    def _load(self, topic: str, rounds: int) -> None:
        first_key, partitions = 1 + self._loads * _KEYS_OF_A_LOAD, self.partitions[topic]
        self._loads += 1
        self._loaded[topic] += load(self._bootstrap, self._setup, topic, partitions, rounds, first_key)
        ends = await_markers(self._bootstrap, topic, range(partitions))
        self.ends |= {TopicPartition(topic, number): end for number, end in enumerate(ends)}

    # Changes

    def create_again(self, rounds: int) -> None:
        """Delete the first topic, create it again with as many partitions, and load it; only once."""
        topic = self._setup.topic
        with self._changing:
            if self._former:
                return
            self._former = self.read(topic)
            delete_on(self._bootstrap, topic)
            create_on(self._bootstrap, topic, self._replicas(self.partitions[topic]))
            self._loaded[topic], self._passed_over = 0, {}
            self._load(topic, rounds)

    def add_partitions(self, added: int, rounds: int) -> None:
        """Add partitions to the first topic, and load all of it."""
        topic = self._setup.topic
        with self._changing:
            add_partitions(self._bootstrap, topic, self.partitions[topic], self._replicas(added))
            self.partitions[topic] += added
            self._load(topic, rounds)

    def add_topic(self, partitions: int, rounds: int) -> None:
        """Create another topic that the mirror matches, and load it."""
        with self._changing:
            topic = f"{self._setup.topic}-new-{len(self.partitions)}"
            create_on(self._bootstrap, topic, self._replicas(partitions))
            self.partitions[topic], self._loaded[topic] = partitions, 0
            self._load(topic, rounds)

    def _replicas(self, partitions: int) -> list[list[int]]:
        return [self._dice.sample(range(1, BROKERS + 1), BROKERS) for _ in range(partitions)]

    # For comparisons

    def read(self, topic: str) -> dict[int, list[Record]]:
        """Read what a topic has now; it is a problem if that is not what was loaded."""
        found = read_topic(self._bootstrap, topic, self._setup.isolation)
        seen = sum(map(len, found.values()))
        if seen != self._loaded[topic]:
            self.problems.append(
                f"{topic} has {seen} records at the source, not the {self._loaded[topic]} that were loaded"
            )
        return found

    def due(self, topic: str, number: int, now: Sequence[Record]) -> Sequence[Record]:
        """Return which records of a partition a mirror has to copy."""
        return now[self._passed_over.get(number, 0) :] if topic == self._setup.topic else now

    def mirrored_before(self, topic: str, number: int, copy: Sequence[Record]) -> list[Record]:
        """Return the records of a deleted topic with which the copy of a partition begins."""
        former = self._former if topic == self._setup.topic else {}
        return mirrored_of(former.get(number, []), copy)


def mirrored_of(former: Sequence[Record], copy: Sequence[Record]) -> list[Record]:
    """Return the copied records of a topic that was deleted: the first ones of a partition's copy."""
    both = zip(former, copy, strict=False)
    return [record for record, _ in itertools.takewhile(lambda each: each[0].same_content(each[1]), both)]
