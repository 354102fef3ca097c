"""Open ranges in a fetch session: the task copies new records, and its requests omit idle partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.protocol.apis import ApiKey
from shoal_broker.call import Call
from tests import batches
from tests.copying import TaskResult
from tests.two_brokers import (
    History,
    TwoBrokers,
    Watched,
    lagging,
    may_compact,
    wait_until,
)

PARTITIONS = 8


def open_ranges(brokers: TwoBrokers, topic: str = "topic") -> list[CopyRange]:
    return [each._replace(end_offset=OPEN_END) for each in brokers.ranges(topic)]


@pytest.fixture
def histories(brokers: TwoBrokers) -> list[History]:
    return brokers.topic("topic", PARTITIONS)


class Mirror:
    """A task that runs until the test requests its end."""

    def __init__(self, brokers: TwoBrokers, histories: list[History]) -> None:
        self._brokers = brokers
        self._histories = histories
        self.control = Watched()
        self._running = brokers.start(open_ranges(brokers), self.control)

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
def impatient_mirror(brokers: TwoBrokers, histories: list[History]) -> Iterator[Mirror]:
    may_compact(brokers.source)
    running = Mirror(brokers.impatient(), histories)
    yield running
    running.end()


@pytest.fixture
def listed(brokers: TwoBrokers) -> list[list[int]]:
    """The partitions that each Fetch request lists."""
    seen: list[list[int]] = []
    before = brokers.source.apis[ApiKey.FETCH]

    def handle(broker: Any, call: Call, request: Any) -> Any:
        seen.append([each.partition for topic in request.topics for each in topic.partitions])
        return before.handle(broker, call, request)

    brokers.source.apis = {**brokers.source.apis, ApiKey.FETCH: replace(before, handle=handle)}
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


def test_fetch_session_that_the_source_forgets_costs_one_full_request(
    brokers: TwoBrokers, histories: list[History], mirror: Mirror, listed: list[list[int]]
) -> None:
    for number in range(4):
        histories[number].plain(1, 2)
        mirror.wait_until_copied()
        before = len(listed)
        brokers.source.fetch_sessions.forget_all()
        wait_until(lambda: PARTITIONS in map(len, listed[before:]))  # noqa: B023
    mirror.end()
    assert mirror.control.total("retries") == 0


def test_source_that_restarts_is_copied_further(
    brokers: TwoBrokers, histories: list[History], mirror: Mirror
) -> None:
    for history in histories:
        history.plain(1)
    mirror.wait_until_copied()
    brokers.source.stop()
    for history in histories:
        history.plain(2)
    brokers.source.start()
    mirror.wait_until_copied()


@pytest.mark.parametrize(
    "fault",
    [
        {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"error": ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "effect": "after"},
        {"error": ErrorCode.CORRUPT_MESSAGE},
        {"drop": "before"},
        {"drop": "after"},
    ],
    ids=str,
)
def test_partition_refused_once_by_the_destination_continues(
    brokers: TwoBrokers, histories: list[History], mirror: Mirror, fault: dict[str, Any]
) -> None:
    for history in histories:
        history.plain(1)
    mirror.wait_until_copied()
    failure = brokers.destination.faults.add(ApiKey.PRODUCE, partition=2, **fault)
    for _ in range(3):
        for history in histories:
            history.plain(1, 2)
        mirror.wait_until_copied()
    assert failure.hits == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_NOT_AVAILABLE]
)
def test_partition_refused_once_by_the_source_continues(
    brokers: TwoBrokers, histories: list[History], mirror: Mirror, code: ErrorCode
) -> None:
    for history in histories:
        history.plain(1)
    mirror.wait_until_copied()
    failure = brokers.source.faults.add(ApiKey.FETCH, partition=2, error=code)
    wait_until(lambda: failure.hits == 1)
    for history in histories:
        history.plain(2)
    mirror.wait_until_copied()


# Answers that leave records out


def test_gap_at_the_end_is_passed_and_later_records_are_copied(
    brokers: TwoBrokers, histories: list[History], impatient_mirror: Mirror
) -> None:
    for history in histories[:3]:
        history.plain(3)
    impatient_mirror.wait_until_copied()
    for length in (4, 2):
        for history in histories[:2]:
            history.gap_at_the_end(length)
        for number, history in enumerate(histories[:2]):
            wait_until(lambda: position_of(impatient_mirror, number) == history.next_offset)  # noqa: B023
        histories[1].plain(2)
        impatient_mirror.wait_until_copied()
    histories[0].plain(2)
    impatient_mirror.wait_until_copied()
    assert impatient_mirror.end().stopped == ()
    assert brokers.position("topic", 0).source_offset == histories[0].next_offset


def position_of(mirror: Mirror, partition: int) -> int | None:
    """Return the source offset that was reported last."""
    offsets: list[int] = [
        each["source_offset"]
        for report in list(mirror.control.reports)
        for each in report["partitions"]
        if each["partition"] == partition and each["source_offset"] is not None
    ]
    return offsets[-1] if offsets else None


def test_gap_is_passed_while_others_are_busy(brokers: TwoBrokers, histories: list[History]) -> None:
    may_compact(brokers.source)
    mirror = Mirror(brokers.impatient().with_timing(longest_left_out_s=0.05), histories)
    histories[0].plain(3).gap_at_the_end(4)

    def passed() -> bool:
        histories[1].plain(1)
        return position_of(mirror, 0) == 7

    wait_until(passed)
    mirror.wait_until_copied()
    mirror.end()


def test_end_that_the_source_withdraws_is_awaited_and_reported(
    brokers: TwoBrokers, histories: list[History]
) -> None:
    """A new leader's log has the records, and its high watermark lags behind."""
    histories[0].plain(2)
    histories[1].plain(2, 3)
    ranges = [each._replace(end_offset=5) if each.partition == 1 else each for each in open_ranges(brokers)]
    behind = lagging(brokers.source, "topic", 2, partition=1)
    control = Watched()
    running = brokers.start(ranges, control)
    wait_until(lambda: any("log ends at 2, before offset 5" in each for each in control.waited_for))
    behind.lag_ends()
    wait_until(lambda: brokers.copied("topic", 1) == histories[1].committed)
    control.request_stop()
    assert running.result().stopped == ()


def test_records_of_an_open_transaction_are_reported_as_held_back(
    brokers: TwoBrokers, histories: list[History]
) -> None:
    mirror = Mirror(brokers, histories)
    mirror.wait_until_copied()
    open_one = {"flags": batches.TRANSACTIONAL, "producer_id": 77, "producer_epoch": 0}
    histories[2].store(histories[2].batch(3, **open_one))

    def held_back() -> set[int]:
        reports = (each for report in mirror.control.reports for each in report["partitions"])
        return {each["held_back"] for each in reports if each["partition"] == 2 and "held_back" in each}

    wait_until(lambda: 3 in held_back())
    assert mirror.end().stopped == ()
