"""The end of a time window, and the state that one task leaves to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.window import WindowClock
from shoal.mirroring.task.task import run_copy_task
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.batches import batch
from tests.clocks import Time
from tests.two_brokers import (
    DEADLINE_S,
    NOW_MS,
    Held,
    History,
    RunningTask,
    TwoBrokers,
    lose_tail,
    wait_until,
)
from tests.window_driver import Driver


class TestClock:
    def test_window_begins_with_its_first_task(self) -> None:
        time = Time()
        clock = WindowClock(15.0, time)
        clock.plan()
        time.now += 5
        clock.begin()
        assert clock.remaining_s == 15.0
        time.now += 4
        clock.begin()  # a second task, or the first one's second attempt
        assert clock.remaining_s == 11.0
        time.now += 12
        assert clock.remaining_s == 0.0

    def test_quiet_window_lasts_up_to_eight_times_its_length(self) -> None:
        time = Time()
        clock = WindowClock(15.0, time)
        clock.begin()
        lasted = 0.0
        while clock.remaining_s > 0:
            time.now += 0.5
            lasted += 0.5
            if clock.remaining_s < 1.0:
                clock.prolong()
        assert lasted == 8 * 15.0

    def test_ended_window_is_not_prolonged(self) -> None:
        time = Time()
        clock = WindowClock(15.0, time)
        assert not clock.prolong()
        clock.begin()
        time.now += 15
        assert not clock.prolong()

    def test_discovery_ends_a_window_early_but_not_at_once(self) -> None:
        time = Time()
        clock = WindowClock(15.0, time)
        clock.begin()
        time.now += 1
        assert clock.end()
        assert clock.remaining_s == 2.0
        assert not clock.end()  # no news
        time.now += 5
        assert clock.remaining_s == 0.0

    def test_discovery_between_plan_and_begin_ends_the_window(self) -> None:
        time = Time()
        clock = WindowClock(15.0, time)
        clock.plan()
        clock.end()
        clock.begin()
        assert clock.remaining_s == 3.0
        time.now += 2.5
        assert not clock.prolong()  # the plan has changed
        clock.plan()
        clock.begin()
        assert clock.remaining_s == 15.0


#: A wait for a stalled answer would take so long. A task has to end before.
STALL_S = 600.0


@pytest.fixture
def driver(brokers: TwoBrokers) -> Iterator[Driver]:
    started = Driver(brokers.with_timing(shortest_window_s=0.0))
    yield started
    started.server.close()


def test_window_copies_new_records_until_its_end(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    with driver.slice() as running:
        wait_until(lambda: brokers.copied() == history.committed)
        for _ in range(3):
            history.plain(1)
            wait_until(lambda: brokers.copied() == history.committed)
        assert running.is_running
    assert brokers.position().source_offset == history.next_offset


def test_tasks_end_with_their_window(brokers: TwoBrokers, history: History) -> None:
    driver = Driver(brokers, slice_s=0.5)
    history.plain(2)
    started = time.monotonic()
    with driver.connect() as control:
        ranges = [CopyRange("topic", 0, "topic", 0, OPEN_END)]
        result = RunningTask(lambda: run_copy_task(ranges, brokers.settings, control)).result()
    assert not result.complete
    assert time.monotonic() - started > 0.4
    assert brokers.copied() == history.committed
    driver.server.close()


def test_window_continues_only_while_all_tasks_are_idle(brokers: TwoBrokers) -> None:
    clock = Time()
    driver = Driver(brokers, slice_s=600.0, now=clock)
    with driver.connect() as first, driver.connect() as second:
        clock.now += 500

        def have(least_s: float, most_s: float) -> bool:
            return all(least_s < each.remaining_s <= most_s for each in (first, second))

        driver.server.renew(MemberId(), 60.0)  # all tasks receive the remaining time
        wait_until(lambda: have(0, 100))
        first.report(TaskReport(is_idle=True))
        wait_until(lambda: len(driver.reports) == 1)
        driver.server.renew(MemberId(), 60.0)
        assert driver.server.windows is not None
        assert driver.server.windows.remaining_s == 100

        def all_say_so() -> bool:
            for each in (first, second):
                each.report(TaskReport(is_idle=True))
            return have(300, 600)

        wait_until(all_say_so)
    driver.server.close()


def pass_by(driver: Driver, clock: Time, seconds: float) -> None:
    """Let a time be over, and tell all tasks how much is left."""
    clock.now += seconds
    driver.server.renew(MemberId(), 60.0)


def test_idle_task_reports_quiet_before_its_end(brokers: TwoBrokers, history: History) -> None:
    brokers = brokers.with_timing(quiet_s=0.2, last_moments_s=60.0, quiet_window_lengths=2)
    clock = Time()
    driver = Driver(brokers, slice_s=600.0, now=clock)
    history.plain(2)
    with driver.connect() as control:
        running = RunningTask(
            lambda: run_copy_task([CopyRange("topic", 0, "topic", 0, OPEN_END)], brokers.settings, control)
        )
        wait_until(lambda: brokers.copied() == history.committed)
        assert not any(report.get("idle") for report in list(driver.reports))
        pass_by(driver, clock, 570)
        wait_until(lambda: driver.windows.remaining_s == 600)
        pass_by(driver, clock, 570)
        wait_until(lambda: driver.windows.remaining_s == 60)  # until twice its length is over
        pass_by(driver, clock, 60)
        assert not running.result().complete
    driver.server.close()


def test_waiting_task_is_not_idle(brokers: TwoBrokers, history: History) -> None:
    brokers = brokers.with_timing(quiet_s=0.2, last_moments_s=60.0)
    clock = Time()
    driver = Driver(brokers, slice_s=600.0, now=clock)
    history.plain(2)
    faults = brokers.destination.faults
    refused = faults.add(ApiKey.PRODUCE, times=None, error=ErrorCode.NOT_ENOUGH_REPLICAS)
    with driver.connect() as control:
        running = RunningTask(
            lambda: run_copy_task([CopyRange("topic", 0, "topic", 0, OPEN_END)], brokers.settings, control)
        )
        assert faults.wait_for(refused)
        pass_by(driver, clock, 570)
        # A try takes 10 ms or more, and the task looks four times a second.
        assert faults.wait_for(refused, refused.hits + 50, DEADLINE_S)
        pass_by(driver, clock, 600)  # also after an alignment, which prolongs the window
        running.result()
    assert not any(report.get("idle") for report in driver.reports)
    driver.server.close()


def asked(brokers: TwoBrokers, api: ApiKey) -> Any:
    """Count requests, and let them pass."""
    return brokers.destination.faults.add(api, times=None)


def test_next_task_continues_without_destination_requests(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2, 3)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    ends = asked(brokers, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    positions = brokers.source.faults.add(ApiKey.OFFSET_FETCH, times=None)
    history.plain(1)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
        assert (ends.hits, positions.hits) == (0, 0)
    assert brokers.position().destination_offset == 6


def test_idle_partition_is_handed_over(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    history.plain(2)
    for _ in range(3):
        with driver.slice():
            wait_until(lambda: len(brokers.copied()) == 2)
            wait_until(lambda: any(report.get("partitions") for report in driver.reports))
        ends = asked(brokers, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    assert ends.hits == 0


def test_position_not_committed_in_time_is_committed_by_the_next_task(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    stall = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop="before", delay_s=STALL_S, times=None)
    history.plain(3)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    assert brokers.position().source_offset == 2
    brokers.source.faults.remove(stall)
    ends = asked(brokers, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    seen = len(driver.reports)
    with driver.slice():
        wait_until(lambda: any(each["partitions"] for each in driver.reports[seen:]))
    assert ends.hits == 0
    assert brokers.position().source_offset == history.next_offset


def test_position_not_committed_by_tasks_is_committed_by_the_driver(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    assert driver.server.uncommitted()[0] == {}
    stall = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop="before", delay_s=2.0, times=None)
    history.plain(3)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    brokers.source.faults.remove(stall)
    positions, _ = driver.server.uncommitted()
    assert {partition: position.source_offset for partition, position in positions.items()} == {
        TopicPartition("topic", 0): history.next_offset
    }


def test_late_commit_is_refused(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    """Read by a coordinator that was paused then, and handled after newer ones: its sender is gone."""
    brokers = brokers.with_settings(continue_after=frozenset({IncidentKind.SOURCE_RESET}))
    driver.brokers = brokers
    driver.join_group()
    history.plain(2)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    late = Held(brokers.source, ApiKey.OFFSET_COMMIT, times=1)
    history.plain(3)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    late.wait_for_one()
    # A position of the topic that is deleted now comes after those of the one that takes its place.
    brokers.source.topics.delete(brokers.source.topics.topic("topic"))
    brokers.source.create_topic("topic", 1)
    History(brokers.source.log("topic")).plain(1, 1, 1)
    with driver.slice():
        wait_until(lambda: len(brokers.copied()) == 8)
    newest = brokers.position()
    late.release()
    assert brokers.position() == newest
    assert newest.source_offset == 3


def test_incident_is_reported_if_the_window_ends_during_its_commit(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    brokers = brokers.with_settings(continue_after=frozenset({IncidentKind.SOURCE_RETENTION}))
    driver.brokers = brokers
    history.plain(2)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    history.plain(3, 1)
    history.log.delete_records(5)
    slow = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, delay_s=1.5, times=1)
    with driver.slice():
        wait_until(lambda: slow.hits == 1)
    with driver.slice():
        wait_until(lambda: len(brokers.copied()) == 3)
    (incident,) = [
        incident
        for report in driver.reports
        for each in report["partitions"]
        for incident in each["incidents"]
    ]
    assert incident[0] == "source-retention"
    assert incident[2] == 3


def test_commit_at_the_end_waits_for_the_coordinator(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    with driver.connect() as control:
        ranges = [CopyRange("topic", 0, "topic", 0, OPEN_END)]
        running = RunningTask(lambda: run_copy_task(ranges, brokers.settings, control))
        history.plain(2)
        wait_until(lambda: len(brokers.copied()) == 2)
        brokers.destination.faults.add(ApiKey.PRODUCE, times=None, error=ErrorCode.NOT_ENOUGH_REPLICAS)
        history.plain(1)
        wait_until(lambda: bool(driver.waits_for()))
        away = brokers.source.faults.add(
            ApiKey.OFFSET_COMMIT, times=None, error=ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        threading.Timer(1.5, lambda: brokers.source.faults.remove(away)).start()
        driver.server.request_stop()
        running.result()
    assert brokers.position().source_offset == 2


def test_idle_partition_stops_waiting_once_answered(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
        brokers.source.faults.add(ApiKey.FETCH, drop="before", times=1)
        wait_until(
            lambda: any(each["retries"] for report in list(driver.reports) for each in report["partitions"])
        )
        wait_until(lambda: driver.waits_for() is None)


def test_window_continues_while_a_copy_is_compared(brokers: TwoBrokers, history: History) -> None:
    """Each window would begin the comparison again, and none would complete it."""
    brokers = brokers.with_timing(quiet_window_lengths=1, last_moments_s=60.0, shortest_window_s=0.0)
    brokers = brokers.with_settings(adopt=True)
    clock = Time()
    driver = Driver(brokers, slice_s=600.0, now=clock)
    for _ in range(24):
        history.store(batch([bytes(900_000)], base_offset=history.next_offset, base_timestamp=NOW_MS))
    with driver.slice():
        wait_until(lambda: brokers.destination.log("topic").log_end_offset == 24)
    brokers.forget_pairs()
    with driver.connect() as control:
        control.take([TopicPartition("topic", 0)])  # nor is there a handover
    history.plain(1)
    slow = brokers.source.faults.add(ApiKey.FETCH, delay_s=0.7, times=None)
    with driver.slice():
        assert brokers.source.faults.wait_for(slow)
        for _ in range(3):
            pass_by(driver, clock, 570)
            wait_until(lambda: driver.windows.remaining_s == 600)
        assert brokers.destination.log("topic").log_end_offset == 24
        brokers.source.faults.remove(slow)
        wait_until(lambda: brokers.destination.log("topic").log_end_offset > 24)
    driver.server.close()


def test_repeated_task_resumes(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    """The first attempt took the state of the last window, copied, and died."""
    history.plain(2, 3)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    with driver.connect() as dying:
        assert dying.take([TopicPartition("topic", 0)]).left
    history.plain(1)
    ends = asked(brokers, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
        assert ends.hits == 1


def test_position_left_by_an_older_attempt_is_ignored(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    partition = TopicPartition("topic", 0)
    with driver.connect() as older, driver.connect() as younger:
        left = older.take([partition]).left
        assert not younger.take([partition]).left
        older.report(TaskReport(leaves=left))
        wait_until(lambda: "leaves" in driver.reports[-1])
        with driver.connect() as next_task:
            assert not next_task.take([partition]).left


def test_interrupted_task_hands_nothing_over(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    history.plain(2)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    driver.server.renew(MemberId("another", 2), 60.0)
    with driver.connect() as control:
        assert not control.take([TopicPartition("topic", 0)]).left


def test_task_begun_before_an_interruption_leaves_nothing(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    partition = TopicPartition("topic", 0)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    with driver.connect() as before:
        left = before.take([partition]).left
        driver.server.renew(MemberId("another", 2), 60.0)
        before.report(TaskReport(leaves=left))
        wait_until(lambda: "leaves" in driver.reports[-1])
    with driver.connect() as control:
        assert not control.take([partition]).left


def test_destination_after_an_election_is_checked(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2, 3)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    lose_tail(brokers.destination, "topic", 2)
    with driver.slice() as running:
        result = running.result()
    (stopped,) = result.stopped
    assert "lost its tail" in stopped.reason


def test_unclean_source_election_between_windows_is_detected(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(1, 1, 1, 1, 1)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    lose_tail(brokers.source, "topic", 3)
    # Others are at the offsets of those that were mirrored, and one comes behind them.
    History(brokers.source.log("topic")).plain(1, 1, 1)
    with driver.slice() as running:
        result = running.result()
    assert len(result.stopped) == 1
    assert brokers.copied() == history.committed


def test_recreated_destination_topic_is_detected(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2, 3)
    with driver.slice():
        wait_until(lambda: brokers.copied() == history.committed)
    brokers.destination.topics.delete(brokers.destination.topics.topic("topic"))
    brokers.destination.create_topic("topic")
    with driver.slice() as running:
        result = running.result()
    assert "created again" in result.stopped[0].reason


def test_stopping_driver_plans_nothing(driver: Driver) -> None:
    assert driver.server.plan() == driver.plan
    driver.server.request_stop()
    assert driver.server.plan() is None


def test_stop_ends_a_task_of_open_ranges_with_a_commit(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(2)
    with driver.connect() as control:
        ranges = [CopyRange("topic", 0, "topic", 0, OPEN_END)]
        running = RunningTask(lambda: run_copy_task(ranges, brokers.settings, control))
        wait_until(lambda: brokers.copied() == history.committed)
        threading.Thread(target=driver.server.request_stop).start()
        running.result()  # long before its window ends
    assert brokers.position().source_offset == 2
