"""A limit: its parts for the tasks, and the bytes that come to each."""

from __future__ import annotations

import pytest

from shoal.mirroring.control.allowance import LEAST_BYTES, Allowance
from shoal.mirroring.control.steered import SteeredTasks
from shoal.mirroring.model.reports import CopyReport, Counters, TaskReport
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


# The parts of the tasks


class Task:
    """A task that fetches as fast as its part and its brokers allow."""

    def __init__(self, name: str, partitions: int, most: float) -> None:
        self.partitions = [TopicPartition(name, number) for number in range(partitions)]
        self.most = most
        self._bytes = 0

    def report(self, part: float, seconds: float) -> TaskReport:
        self._bytes += round(min(part, self.most) * seconds)
        counters = Counters(since=1, bytes_in=self._bytes // len(self.partitions))
        return TaskReport(
            [
                CopyReport(each, source_offset=0, end_offset=int(self.most > 0), counters=counters)
                for each in self.partitions
            ]
        )


class Driver:
    """Shares the limit out twice a second."""

    def __init__(self, *tasks: Task) -> None:
        self._clock = Clock()
        self._tasks = tasks
        self.steered: SteeredTasks[Task] = SteeredTasks(self._clock)
        for each in tasks:
            self.steered.join(each)
        self.steered.set(frozenset(), LIMIT)

    def parts(self) -> list[int]:
        found = [self.steered.of(each, ()).bytes_per_s for each in self._tasks]
        return [each or 0 for each in found]

    def share(self, seconds: float) -> list[int]:
        """Return the parts after some seconds."""
        for _ in range(round(seconds * 2)):
            for each, part in zip(self._tasks, self.parts(), strict=True):
                self.steered.count(each, each.report(part, 0.5))
            self._clock.now += 0.5
            self.steered.look(lambda task: task.partitions)
            assert sum(self.parts()) <= LIMIT * 1.02
        return self.parts()


def test_tasks_come_to_their_part_by_partitions_that_are_behind() -> None:
    parts = Driver(Task("a", 1, 1e9), Task("b", 3, 1e9)).share(20)
    assert parts == [pytest.approx(LIMIT / 4, rel=0.1), pytest.approx(3 * LIMIT / 4, rel=0.1)]


def test_slow_task_leaves_its_part_to_the_others() -> None:
    slow, fast = Driver(Task("slow", 2, 1_000_000), Task("fast", 2, 1e9)).share(20)
    assert fast > 0.8 * LIMIT
    assert slow >= 1_000_000


def test_idle_task_leaves_its_part_to_the_others_and_gets_it_back() -> None:
    idle, busy = Task("idle", 2, 0), Task("busy", 2, 1e9)
    driver = Driver(idle, busy)
    assert driver.share(20)[1] > 0.9 * LIMIT
    idle.most = 1e9
    assert driver.share(20) == [pytest.approx(LIMIT / 2, rel=0.1)] * 2


def test_counts_of_another_task_begin_at_zero() -> None:
    partition = TopicPartition("a", 0)
    tasks = Task("a", 1, 0), Task("b", 1, 1e9)
    driver = Driver(*tasks)
    driver.steered.count(tasks[1], tasks[1].report(0, 0.5))
    for since, size in ((1, 5_000_000), (1, 5_000_000), (2, 500_000)):
        counters = Counters(since=since, bytes_in=size)
        driver.steered.count(tasks[0], TaskReport([CopyReport(partition, counters=counters)]))
    driver.share(0.5)
    assert 0.1 * LIMIT < driver.parts()[0] < 0.2 * LIMIT, "half a megabyte, not less than none nor five"
