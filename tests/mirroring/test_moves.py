"""Partitions move from task to task, with what one leaves to the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.timing import DEFAULT_TIMING
from shoal.topic_partition import TopicPartition
from tests.world.batches import batch
from tests.world.clusters import TwoBrokers
from tests.world.control import incidents_of, partitions_of
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


def asked(brokers: TwoBrokers, api: ApiKey) -> Any:
    """Count requests, and let them pass."""
    return brokers.destination.faults.add(api, times=None)


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


def test_position_not_committed_in_time_is_committed_by_the_next_task(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    task = driver.replace(task)
    history.plain(1)
    wait_until(lambda: brokers.copied() == history.committed)
    stall = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop="before", delay_s=STALL_S, times=None)
    history.plain(3)
    wait_until(lambda: brokers.copied() == history.committed)
    driver.end(task)
    assert brokers.position().source_offset == 2
    brokers.source.faults.remove(stall)
    seen = len(driver.reports)
    task = driver.start()
    wait_until(lambda: any(each["partitions"] for each in driver.reports[seen:]))
    stop(driver, task)
    brokers.assert_exact(history)
    assert brokers.position().source_offset == history.next_offset


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


def test_partition_of_a_task_that_died_begins_in_a_new_generation(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    driver.join_group()
    history.plain(2, 3)
    task = started_and_copied(brokers, history, driver)
    before = task.control.membership()
    ends = asked(brokers, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    task.kill()
    history.plain(1)
    task = started_and_copied(brokers, history, driver)
    assert ends.hits >= 1
    assert task.control.membership().generation > before.generation
    stop(driver, task)
    assert brokers.position().source_offset == history.next_offset


def test_incident_is_reported_if_the_task_ends_during_its_commit(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    driver.brokers = brokers = brokers.with_settings(
        continue_after=frozenset({IncidentKind.SOURCE_RETENTION})
    )
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    driver.end(task)
    history.plain(3, 1)
    history.log.delete_records(5)
    slow = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, delay_s=1.5, times=1)
    task = driver.start()
    wait_until(lambda: slow.hits == 1)
    task = driver.replace(task)
    wait_until(lambda: len(brokers.copied()) == 3)
    stop(driver, task)
    (incident,) = incidents_of(driver)
    assert (incident[0], incident[2]) == ("source-retention", 3)


def test_commit_at_the_end_waits_for_the_coordinator(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    task = driver.start()
    history.plain(2)
    wait_until(lambda: len(brokers.copied()) == 2)
    brokers.destination.faults.add(ApiKey.PRODUCE, times=None, error=ErrorCode.NOT_ENOUGH_REPLICAS)
    history.plain(1)
    wait_until(lambda: bool(driver.waits_for()))
    away = brokers.source.faults.add(
        ApiKey.OFFSET_COMMIT, times=None, error=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    threading.Timer(1.5, lambda: brokers.source.faults.remove(away)).start()
    stop(driver, task)
    assert brokers.position().source_offset == 2


def test_idle_partition_stops_waiting_once_answered(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    brokers.source.faults.add(ApiKey.FETCH, drop="before", times=1)
    wait_until(lambda: any(each["retries"] for each in partitions_of(driver)))
    wait_until(lambda: driver.waits_for() is None)
    stop(driver, task)


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


def test_task_after_an_interruption_asks_both_clusters(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    driver.end(task)
    driver.server.renew(MemberId("another", 2), 60.0)
    ends = asked(brokers, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    history.plain(1)
    task = driver.start()
    wait_until(lambda: ends.hits == 1)
    task.kill()  # no coordinator knows that member


def test_partition_that_was_recalled_is_aligned_again(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    task = started_and_copied(brokers, history, driver)
    ends = asked(brokers, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    driver.server.recall([PARTITION])
    wait_until(lambda: ends.hits == 1)
    history.plain(1)
    wait_until(lambda: brokers.copied() == history.committed)
    stop(driver, task)


def test_partition_of_a_silent_broker_is_left_in_time(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    driver.brokers = brokers = brokers.with_timing(stalled_s=0.2, end_patience_s=0.5)
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
