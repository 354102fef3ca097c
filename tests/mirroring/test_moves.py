"""Partitions move from task to task, with what one leaves to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.timing import DEFAULT_TIMING
from shoal.topic_partition import TopicPartition
from tests.world.batches import batch
from tests.world.clusters import TwoBrokers
from tests.world.driver import Driver, Following
from tests.world.faults import Held
from tests.world.history import NOW_MS, History
from tests.world.waiting import wait_until

PARTITION = TopicPartition("topic", 0)

#: A wait for a stalled answer would take so long. A task has to end before.
STALL_S = 600.0


@pytest.fixture
def driver(brokers: TwoBrokers) -> Iterator[Driver]:
    started = Driver(brokers)
    started.want(0)
    yield started
    started.close()


def started_and_copied(brokers: TwoBrokers, history: History, driver: Driver) -> Following:
    """Start a task, and wait until it has copied what there is."""
    task = driver.start()
    wait_until(lambda: brokers.copied() == history.committed)
    return task


def stop(driver: Driver, task: Following) -> None:
    driver.server.request_stop()
    task.finish()


def test_partition_that_moves_delays_no_other(brokers: TwoBrokers, driver: Driver) -> None:
    """Both tasks live: the first leaves one partition, and copies the other."""
    for cluster in (brokers.source, brokers.destination):
        cluster.create_topic("topic", 2)
    histories = [History(brokers.source.log("topic", number)) for number in range(2)]
    driver.want(0, 1, weights=(10, 10))
    for each in histories:
        each.plain(2)

    def copied() -> list[int]:
        return [brokers.destination.log("topic", number).log_end_offset for number in range(2)]

    first = driver.start()
    wait_until(lambda: copied() == [2, 2])
    second = driver.start()
    wait_until(lambda: bool(second.control.assignment))
    assert len(first.control.assignment) == 1
    for each in histories:
        each.plain(3)
    wait_until(lambda: copied() == [5, 5])
    assert driver.waits_for() is None
    driver.server.request_stop()
    first.finish()
    second.finish()


def test_late_commit_is_refused(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    """Read by a coordinator that was paused then, and handled after newer ones: its sender is gone."""
    driver.brokers = brokers = brokers.going_on(IncidentKind.SOURCE_RESET)
    driver.join_group()
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    task = driver.replace(task)
    late = Held(brokers.source, ApiKey.OFFSET_COMMIT, times=1)
    history.plain(3)
    wait_until(lambda: brokers.copied() == history.committed)
    driver.end(task)
    late.wait_for_one()
    # A position of the topic that is deleted now comes after those of the one that takes its place.
    brokers.source.topics.delete(brokers.source.topics.topic("topic"))
    brokers.source.create_topic("topic", 1)
    History(brokers.source.log("topic")).plain(1, 1, 1)
    task = driver.start()
    wait_until(lambda: len(brokers.copied()) == 8)
    stop(driver, task)
    newest = brokers.position()
    late.release()
    assert brokers.position() == newest
    assert newest.source_offset == 3


def test_partition_whose_copy_is_compared_does_not_move(brokers: TwoBrokers) -> None:
    """Another task would begin the comparison again."""
    for cluster in (brokers.source, brokers.destination):
        cluster.create_topic("topic", 2)
    other = History(brokers.source.log("topic", 0))
    history = History(brokers.source.log("topic", 1))
    for _ in range(24):
        history.store(batch([bytes(900_000)], base_offset=history.next_offset, base_timestamp=NOW_MS))
    assert brokers.run().complete
    brokers.forget_pairs()
    other.plain(1)
    history.plain(1)
    brokers = brokers.with_settings(adopt=True)
    driver = Driver(brokers)
    slow = brokers.source.faults.add(ApiKey.FETCH, delay_s=0.7, times=None)
    driver.want(0, 1, weights=(1, 1000))
    first = driver.start()
    wait_until(lambda: driver.waits_for() is not None)
    second = driver.start()
    assert brokers.source.faults.wait_for(slow, slow.hits + 3)
    assert TopicPartition("topic", 1) in first.control.assignment
    brokers.source.faults.remove(slow)
    wait_until(lambda: brokers.destination.log("topic", 1).log_end_offset > 24)
    driver.server.request_stop()
    first.finish()
    second.finish()
    driver.close()


def test_partition_of_a_silent_broker_is_left_in_time(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    brokers = brokers.with_timing(stalled_s=0.2, end_patience_s=0.5)
    # Its client would wait longer.
    driver.brokers = brokers = brokers.with_clients("destination", request_timeout_ms=120_000)
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    brokers.destination.faults.add(ApiKey.PRODUCE, drop="before", delay_s=STALL_S, times=None)
    history.plain(1)
    wait_until(lambda: bool(driver.waits_for()))
    driver.server.withdraw([PARTITION])
    # Before the broker answers, and before the driver takes the lease away.
    assert driver.server.await_left([PARTITION], DEFAULT_TIMING.leaving_patience_s)
    stop(driver, task)


def test_partition_is_left_while_the_coordinator_does_not_answer(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    driver.brokers = brokers = brokers.with_timing(commit_interval_s=0.02)
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    stall = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop="before", delay_s=STALL_S, times=None)
    history.plain(3)
    wait_until(lambda: brokers.copied() == history.committed)
    assert brokers.source.faults.wait_for(stall)
    driver.server.withdraw([PARTITION])
    assert driver.server.await_left([PARTITION], 10.0)
    driver.want(0)
    history.plain(1)
    brokers.source.faults.remove(stall)
    wait_until(lambda: brokers.copied() == history.committed)
    stop(driver, task)
