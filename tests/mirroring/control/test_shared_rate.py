"""A rate is shared out exactly, by partitions; what one worker leaves, the others get. The clock is ours."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from shoal.mirroring.control.shared_rate import SharedRate

RATE = 1_000_000
TICK_S = 0.05


@dataclass
class Worker:
    """A worker that fetches as fast as it may, and at most so fast."""

    weight: int = 1
    at_most: float = float("inf")
    #: A fetch returns whole batches of this size.
    batch: int = 1
    left: int = 0
    busy_until: float = 0.0
    fetched: int = 0
    is_asking: bool = False

    def step(self, key: str, shared: SharedRate[str], now: float) -> None:
        if now < self.busy_until:
            return
        if self.left > 0:
            size = -(-self.left // self.batch) * self.batch
            self.left -= size
            self.fetched += size
            self.busy_until = now + size / self.at_most
        if self.left <= 0 and not self.is_asking:
            shared.ask(key, self.weight, -self.left, now)
            self.is_asking = True


def run(workers: dict[str, Worker], seconds: float, shared: SharedRate[str] | None = None) -> SharedRate[str]:
    """Let workers fetch for so long, in steps of 10 ms, with grants every 50 ms."""
    shared = shared or SharedRate(RATE, 0.0)
    start = shared.at
    for tick in range(1, round(seconds * 100) + 1):
        now = start + tick / 100
        for key, worker in workers.items():
            worker.step(key, shared, now)
        if tick % 5 == 0:
            for key, size in shared.grants(now).items():
                workers[key].left += size
                workers[key].is_asking = False
    return shared


@pytest.mark.parametrize("batch", [1, 1_000, 16_384, 300_000])
def test_rate_is_exact_within_ten_percent_over_ten_seconds(batch: int) -> None:
    workers = {"one": Worker(batch=batch), "two": Worker(batch=batch)}
    run(workers, 10)
    assert sum(each.fetched for each in workers.values()) == pytest.approx(10 * RATE, rel=0.1)


def test_rate_is_exact_within_ten_percent_in_each_ten_seconds() -> None:
    workers = {str(number): Worker(number, batch=10_000, at_most=400_000 * number) for number in range(1, 5)}
    shared: SharedRate[str] = SharedRate(RATE, 0.0)
    sums = []
    for _ in range(300):
        before = sum(each.fetched for each in workers.values())
        run(workers, 0.1, shared)
        sums.append(sum(each.fetched for each in workers.values()) - before)
    windows = [sum(sums[first : first + 100]) for first in range(len(sums) - 100)]
    assert min(windows) > 9 * RATE
    assert max(windows) < 11 * RATE


def test_workers_get_their_part_by_partitions() -> None:
    workers = {"one": Worker(1), "three": Worker(3)}
    run(workers, 10)
    assert workers["three"].fetched / workers["one"].fetched == pytest.approx(3, rel=0.1)


def test_slow_worker_leaves_its_part_to_the_others() -> None:
    workers = {"slow": Worker(at_most=RATE / 10), "fast": Worker()}
    run(workers, 10)
    assert workers["slow"].fetched < 1.5 * RATE
    assert workers["slow"].fetched + workers["fast"].fetched == pytest.approx(10 * RATE, rel=0.1)


def test_silent_worker_leaves_its_part_to_the_others() -> None:
    shared: SharedRate[str] = SharedRate(RATE, 0.0)
    run({"silent": Worker()}, 1, shared)
    other = Worker()
    run({"other": other}, 10, shared)
    assert other.fetched == pytest.approx(10 * RATE, rel=0.1)


def test_idle_time_saves_less_than_half_a_second() -> None:
    shared: SharedRate[str] = SharedRate(RATE, 0.0)
    shared.ask("late", 1, 0, 3600.0)
    assert shared.grants(3600.0)["late"] <= RATE * 0.4 + 1


def test_debt_is_paid_before_the_next_grant() -> None:
    shared: SharedRate[str] = SharedRate(RATE, 0.0)
    shared.ask("one", 1, 2 * RATE, 0.0)
    assert not shared.grants(1.9)
    assert shared.grants(2.1)["one"] == pytest.approx(2.1 * RATE, abs=2)


def test_debt_of_an_ended_worker_is_paid_by_the_others() -> None:
    shared: SharedRate[str] = SharedRate(RATE, 0.0)
    shared.ask("ended", 1, 2 * RATE, 0.0)
    shared.forget("ended")
    shared.ask("other", 1, 0, 0.0)
    assert not shared.grants(1.9)
    assert shared.grants(2.1)


def test_clock_that_goes_back_grants_nothing() -> None:
    shared: SharedRate[str] = SharedRate(RATE, 100.0)
    shared.ask("one", 1, 0, 50.0)
    assert not shared.grants(60.0)


def test_sum_never_exceeds_the_rate_whatever_workers_do() -> None:
    dice = random.Random(5)
    shared: SharedRate[str] = SharedRate(RATE, 0.0)
    granted: Counter[str] = Counter()
    for tick in range(1, 5_000):
        now = tick / 100
        key = str(dice.randrange(8))
        match dice.randrange(4):
            case 0:
                shared.ask(key, dice.randrange(50), 0, now)
            case 1 if dice.random() < 0.1:
                shared.forget(key)
            case _:
                granted.update(shared.grants(now))
        assert sum(granted.values()) <= RATE * now + 10_000
