"""A limit: its parts for the tasks, and the bytes that come to each."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from shoal.mirroring.control.assignment import Member
from shoal.mirroring.control.limit import LEAST_BYTES, Allowance, share_limit
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned
from shoal.topic_partition import TopicPartition

LIMIT = 10_000_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Worker:
    """A worker that fetches batches as long as it has bytes."""

    def __init__(self, allowance: Allowance, batch: int) -> None:
        self._allowance = allowance
        self._batch = batch
        self._left = 0
        self.fetched = 0

    def work(self) -> None:
        while self._left <= 0 and (taken := self._allowance.take(self)):
            self._left += taken
        if self._left > 0:
            size = self._batch * max(1, self._left // self._batch)
            self._left -= size
            self.fetched += size


def run(workers: list[Worker], clock: Clock, seconds: float) -> int:
    """Let workers look twenty times a second; return the bytes that they fetched."""
    before = sum(each.fetched for each in workers)
    for _ in range(round(seconds * 20)):
        clock.now += 0.05
        for each in workers:
            each.work()
    return sum(each.fetched for each in workers) - before


@pytest.mark.parametrize("batch", [100, 10_000, 1_000_000])
def test_rate_is_exact_within_ten_percent_in_each_ten_seconds(batch: int) -> None:
    clock = Clock()
    allowance = Allowance(clock)
    allowance.begin(LIMIT)
    workers = [Worker(allowance, batch) for _ in range(4)]
    for _ in range(5):
        assert run(workers, clock, 10) == pytest.approx(10 * LIMIT, rel=0.1)
    shares = [each.fetched for each in workers]
    assert max(shares) < 1.5 * min(shares)


def test_allowance_without_a_limit_any_more_has_nothing_left_for_the_next() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    allowance.begin(LIMIT)
    clock.now += 10
    allowance.begin(None)
    allowance.begin(LEAST_BYTES)
    assert allowance.take(1) == 0


def test_worker_waits_from_a_refusal_until_it_takes_or_asks_no_more() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    allowance.begin(LIMIT)
    assert allowance.take(1) == 0
    assert allowance.waits
    clock.now += 0.2
    assert allowance.take(1) > 0
    assert not allowance.waits
    while allowance.take(1):
        pass
    assert allowance.waits
    clock.now += 1
    assert not allowance.waits


# The parts of the tasks


class Tasks:
    """Tasks that fetch as fast as their parts and their brokers allow."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        #: The most bytes a second by task.
        self.most: dict[Member, float] = {}

    def add(self, partitions: int, most: float) -> Member:
        member = Member(connection=self._connection)
        names = [TopicPartition("topic", number) for number in range(partitions)]
        member.partitions = {each: Assigned(1, CopyRange(*each, "topic", 0, 1)) for each in names}
        self.most[member] = most
        return member

    def share(self, seconds: float) -> None:
        """Share the limit out twice a second."""
        for _ in range(round(seconds * 2)):
            share_limit(LIMIT, self.most)
            assert sum(each.bytes_per_s for each in self.most) <= LIMIT * 1.02
            for each, most in self.most.items():
                each.waits = each.bytes_per_s < most


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    with socket.socket() as connection:
        yield Tasks(connection)


def test_tasks_come_to_their_part_by_partitions(tasks: Tasks) -> None:
    one, three = tasks.add(1, 1e9), tasks.add(3, 1e9)
    tasks.share(20)
    assert one.bytes_per_s == pytest.approx(LIMIT / 4, rel=0.1)
    assert three.bytes_per_s == pytest.approx(3 * LIMIT / 4, rel=0.1)


def test_slow_task_leaves_its_part_to_the_others(tasks: Tasks) -> None:
    slow, fast = tasks.add(2, 1_000_000), tasks.add(2, 1e9)
    tasks.share(20)
    parts = []
    for _ in range(40):
        tasks.share(0.5)
        parts.append(min(slow.bytes_per_s, 1_000_000) + fast.bytes_per_s)
    assert sum(parts) > 0.95 * 40 * LIMIT
    assert fast.bytes_per_s > 0.8 * LIMIT


def test_idle_task_leaves_its_part_to_the_others_and_gets_it_back(tasks: Tasks) -> None:
    idle, busy = tasks.add(2, 0), tasks.add(2, 1e9)
    tasks.share(20)
    assert busy.bytes_per_s > 0.9 * LIMIT
    tasks.most[idle] = 1e9
    tasks.share(10)
    assert [each.bytes_per_s for each in (idle, busy)] == [pytest.approx(LIMIT / 2, rel=0.1)] * 2


def test_part_that_stays_is_not_sent_again(tasks: Tasks) -> None:
    tasks.add(1, 1e9), tasks.add(3, 1e9)
    tasks.share(20)
    assert share_limit(LIMIT, tasks.most) == []
