"""A limit: its parts for the tasks, and the bytes that come to each."""

from __future__ import annotations

import pytest

from shoal.mirroring.control.allowance import LEAST_BYTES, Allowance
from shoal.mirroring.control.shared_limit import TaskWork, parts_of
from shoal.mirroring.model.reports import CopyReport, Counters
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


def test_quiet_time_saves_less_than_half_a_second() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    allowance.begin(LIMIT)
    clock.now += 1000
    saved = sum(iter(lambda: allowance.take(1), 0))
    assert 0 < saved < LIMIT / 2


def test_worker_takes_a_tenth_of_a_second_at_most() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    allowance.begin(LIMIT)
    clock.now += 10
    assert allowance.take(1) == LIMIT // 10


def test_clock_that_goes_back_brings_nothing() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    allowance.begin(LIMIT)
    clock.now -= 100
    assert allowance.take(1) == 0


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
        self.work = TaskWork()
        self._partitions = [TopicPartition(name, number) for number in range(partitions)]
        self._most = most
        self.bytes = 0

    def report(self, part: float, seconds: float) -> None:
        self.bytes += round(min(part, self._most) * seconds)
        is_behind = self._most > 0
        self.work.count(
            [
                CopyReport(
                    each,
                    source_offset=0,
                    end_offset=int(is_behind),
                    counters=Counters(since=1, bytes_in=self.bytes // len(self._partitions)),
                )
                for each in self._partitions
            ]
        )
        self.work.look(seconds, self._partitions)


def share(seconds: float, *tasks: Task) -> list[int]:
    """Share the limit out twice a second; return the parts."""
    parts = parts_of(LIMIT, {each: each.work for each in tasks})
    for _ in range(round(seconds * 2)):
        for each in tasks:
            each.report(parts[each], 0.5)
        parts = parts_of(LIMIT, {each: each.work for each in tasks})
        assert sum(parts.values()) <= LIMIT
    return [parts[each] for each in tasks]


def test_tasks_get_their_part_by_partitions_that_are_behind() -> None:
    first, second = share(10, Task("a", 1, 1e9), Task("b", 3, 1e9))
    assert (first, second) == (LIMIT // 4, 3 * LIMIT // 4)


def test_slow_task_leaves_its_part_to_the_others() -> None:
    slow, fast = share(20, Task("slow", 2, 1_000_000), Task("fast", 2, 1e9))
    assert fast > 0.8 * LIMIT
    assert slow >= 1_000_000


def test_idle_task_leaves_its_part_to_the_others_and_gets_it_back() -> None:
    idle, busy = Task("idle", 2, 0), Task("busy", 2, 1e9)
    assert share(20, idle, busy)[1] > 0.9 * LIMIT
    idle = Task("idle", 2, 1e9)
    assert share(20, idle, busy) == [LIMIT // 2, LIMIT // 2]


def test_counts_of_another_task_begin_at_zero() -> None:
    work, partition = TaskWork(), TopicPartition("a", 0)
    for since, size in ((1, 5_000_000), (1, 6_000_000), (2, 500_000)):
        work.count([CopyReport(partition, counters=Counters(since=since, bytes_in=size))])
    for _ in range(6):
        work.look(1.0, [partition])
    assert work.most(0, 1) == pytest.approx(1.5 * 1_500_000)
