"""Open ranges in a fetch session: the task copies new records, and its requests omit idle partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.protocol.apis import ApiKey
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched
from tests.world.faults import before_each_request
from tests.world.history import History
from tests.world.logs import lagging
from tests.world.task import TaskResult
from tests.world.waiting import wait_until

PARTITIONS = 8


@pytest.fixture
def histories(brokers: TwoBrokers) -> list[History]:
    return brokers.topic("topic", PARTITIONS)


class Mirror:
    """A task that runs until the test requests its end."""

    def __init__(self, brokers: TwoBrokers, histories: list[History]) -> None:
        self._brokers = brokers
        self._histories = histories
        self.control = Watched()
        self._running = brokers.start(brokers.open_ranges(), self.control)

    def wait_until_copied(self) -> None:
        wait_until(lambda: not self._running.is_running or self._is_copied())
        assert self._running.is_running, self._running.result()

    def _is_copied(self) -> bool:
        return all(
            self._brokers.copied("topic", number) == history.committed
            for number, history in enumerate(self._histories)
        )

    @property
    def is_running(self) -> bool:
        return self._running.is_running

    def end(self) -> TaskResult:
        self.control.request_stop()
        return self._running.result()


@pytest.fixture
def mirror(brokers: TwoBrokers, histories: list[History]) -> Iterator[Mirror]:
    running = Mirror(brokers, histories)
    yield running
    running.end()


@pytest.fixture
def listed(brokers: TwoBrokers) -> list[list[int]]:
    """The partitions that each Fetch request lists."""
    seen: list[list[int]] = []

    def see(request: Any) -> None:
        seen.append([each.partition for topic in request.topics for each in topic.partitions])

    before_each_request(brokers.source, ApiKey.FETCH, see)
    return seen


def test_fetch_requests_list_only_partitions_that_had_records(
    brokers: TwoBrokers, histories: list[History], listed: list[list[int]]
) -> None:
    mirror = Mirror(brokers, histories)
    wait_until(lambda: len(listed) > 3)
    for _ in range(20):
        histories[3].plain(1)
        mirror.wait_until_copied()
    mirror.end()
    full = [each for each in listed if len(each) > 1]
    assert len(full) == 1
    assert {tuple(each) for each in listed if each not in full} == {(), (3,)}


# Answers that leave records out


def test_end_that_the_source_withdraws_is_awaited_and_reported(
    brokers: TwoBrokers, histories: list[History]
) -> None:
    """A new leader's log has the records, and its high watermark lags behind."""
    histories[0].plain(2)
    histories[1].plain(2, 3)
    ranges = [each._replace(end_offset=5) if each.partition == 1 else each for each in brokers.open_ranges()]
    behind = lagging(brokers.source, "topic", 2, partition=1)
    control = Watched()
    running = brokers.start(ranges, control)
    wait_until(lambda: any("log ends at 2, before offset 5" in each for each in control.waited_for))
    behind.lag_ends()
    wait_until(lambda: brokers.copied("topic", 1) == histories[1].committed)
    control.request_stop()
    assert running.result().stopped == ()
