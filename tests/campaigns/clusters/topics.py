"""The source topics of a trial: load them, change them during the copy, and compare them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AdminClient

from rig.judge import Verdict, compare
from rig.read import read_topic
from rig.record import Record

from .load import add_partitions, await_ends, create_on, delete_on, layout, load
from .plan import BROKERS, Change, Plan, TopicChange

__all__ = ["SourceTopics"]

#: No load of a trial has this many records, so that no two share a key.
_KEYS_OF_A_LOAD = 1_000_000

#: Batches of each partition before the first start of a mirror with ``--start latest``.
_ROUNDS_BEFORE = 5

#: Largest number of partitions to add.
_MOST_ADDED = 3


class SourceTopics:
    """The records of a trial's topics, and which of them must be at the destination.

    Attributes:
        names: The existing topics.
        problems: Problems of the trial itself: a load that cannot be read back.
    """

    def __init__(self, bootstrap: str, plan: Plan) -> None:
        self.names = [plan.topic]
        self.problems: list[str] = []
        self._bootstrap = bootstrap
        self._plan = plan
        self._dice = random.Random(f"{plan.layout_seed}/topics")
        self._loaded = {plan.topic: 0}
        self._loads = 0
        self._passed_over: dict[int, int] = {}
        self._former: dict[int, list[Record]] = {}
        self._was_recreated = False

    def create(self) -> None:
        create_on(self._bootstrap, self._plan.topic, layout(self._plan, "source"))

    def delete(self) -> None:
        for topic in self.names:
            delete_on(self._bootstrap, topic)

    def load_what_is_passed_over(self) -> None:
        """Load records before the first start of a mirror with ``--start latest``, which must skip them."""
        self._load(self._plan.topic, range(self._plan.partitions), _ROUNDS_BEFORE)
        before = self._read(self._plan.topic)
        self._passed_over = {partition: len(records) for partition, records in before.items()}

    def load(self) -> list[int]:
        """Load the plan's topic; return its partitions' ends."""
        ends = self._load(self._plan.topic, range(self._plan.partitions), self._plan.rounds)
        change = self._plan.topic_change
        if change is not None and change.change is Change.RECREATED:
            self._former = self._read(self._plan.topic)
        return ends

    def load_more(self) -> list[int]:
        """Load half as much once more; return the ends."""
        return self._load(self._plan.topic, range(self._plan.partitions), self._plan.rounds // 2)

    def _load(self, topic: str, partitions: Sequence[int], rounds: int) -> list[int]:
        first_key = 1 + self._loads * _KEYS_OF_A_LOAD
        self._loads += 1
        self._loaded[topic] += load(self._bootstrap, self._plan, topic, partitions, rounds, first_key)
        return await_ends(self._bootstrap, topic, len(partitions))

    # The change

    def change(self, change: TopicChange) -> None:
        """Change the topics, and load the new ones before returning."""
        topic, partitions = self._plan.topic, range(self._plan.partitions)
        match change.change:
            case Change.RECREATED:
                delete_on(self._bootstrap, topic)
                self.create()
                self._was_recreated = True
                self._loaded[topic] = 0
                self._load(topic, partitions, change.rounds)
            case Change.PARTITIONS:
                replicas = self._replicas(self._dice.randint(1, _MOST_ADDED))
                add_partitions(self._bootstrap, topic, len(partitions), replicas)
                # All of them: the old ones grow, too.
                self._load(topic, range(len(partitions) + len(replicas)), change.rounds)
            case Change.TOPIC:
                replicas = self._replicas(self._dice.randint(1, _MOST_ADDED))
                create_on(self._bootstrap, self._plan.new_topic, replicas)
                self.names.append(self._plan.new_topic)
                self._loaded[self._plan.new_topic] = 0
                self._load(self._plan.new_topic, range(len(replicas)), change.rounds)

    def _replicas(self, partitions: int) -> list[list[int]]:
        return [self._dice.sample(range(1, BROKERS + 1), BROKERS) for _ in range(partitions)]

    # Promises

    def compare(self, destination: str) -> Verdict:
        """Compare all topics with their copies.

        If a topic was recreated, its copy begins with the former topic's records, up to the mirror's
        position. All of the new topic's follow, in order.
        """
        comparison = Verdict()
        for topic in self.names:
            now, copy = self._read_all(topic), _read_copy(destination, topic)
            if topic == self._plan.topic:
                now = {number: each[self._passed_over.get(number, 0) :] for number, each in now.items()}
                former = self._former if self._was_recreated else {}
                now = {
                    number: mirrored_of(former.get(number, []), copy.get(number, [])) + now.get(number, [])
                    for number in sorted({*now, *former})
                }
            comparison += compare(now, copy, at_least_once=self._plan.at_least_once)
        return comparison

    def compare_stopped(self, destination: str, stopped: Mapping[str, str]) -> list[str]:
        """Describe the faults in the copy of a recreated topic in which the mirror must stop."""
        if not self._was_recreated:
            return []
        topic = self._plan.topic
        now, copy = self._read_all(topic), _read_copy(destination, topic)
        problems = []
        for number in range(self._plan.partitions):
            name = f"{topic}-{number}"
            found = while_stopped(
                self._former.get(number, []),
                now.get(number, []),
                copy.get(number, []),
                has_stopped=name in stopped,
            )
            problems += [f"{name}: {each}" for each in found]
        return problems

    def _read_all(self, topic: str) -> dict[int, list[Record]]:
        found = self._read(topic)
        seen = sum(map(len, found.values()))
        if seen != self._loaded[topic]:
            self.problems.append(
                f"{topic} has {seen} records at the source, not the {self._loaded[topic]} that were loaded"
            )
        return found

    def _read(self, topic: str) -> dict[int, list[Record]]:
        return read_topic(self._bootstrap, topic, self._plan.isolation)


def _read_copy(bootstrap: str, topic: str) -> dict[int, list[Record]]:
    """Read a topic of the destination; if it does not exist, it has no records."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return read_topic(bootstrap, topic) if topic in admin.list_topics(timeout=30).topics else {}


def mirrored_of(former: Sequence[Record], copy: Sequence[Record]) -> list[Record]:
    """Return the copied records of a topic that was deleted: the first ones of a partition's copy."""
    both = zip(former, copy, strict=False)
    return [record for record, _ in itertools.takewhile(lambda each: each[0].same_content(each[1]), both)]


def while_stopped(
    former: Sequence[Record], now: Sequence[Record], copy: Sequence[Record], *, has_stopped: bool
) -> list[str]:
    """Describe how a mirror that must stop at a recreated topic mixed both topics, or did not stop.

    If a partition's copy has any record of the former topic, it must have none of the new one; otherwise it
    must have all of them.
    """
    mirrored = mirrored_of(former, copy)
    of_new = copy[len(mirrored) :]
    if mirrored and of_new:
        return [f"{len(of_new)} records are behind the {len(mirrored)} of the former topic"]
    if mirrored and not has_stopped:
        return [f"it did not stop, and has {len(mirrored)} records of the former topic"]
    wanted = [] if has_stopped else now
    if not mirrored and not compare({0: wanted}, {0: of_new}).is_exact:
        return [f"it has {len(of_new)} records, not the new topic's {len(now)}"]
    return []
