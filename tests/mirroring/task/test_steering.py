"""A task obeys its driver's steering between embedded brokers: pauses and a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from shoal.client.coordinator import MemberId
from shoal.mirroring.assignment import Wanted
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.mirroring.task.test_recreated_topics import recreate
from tests.native_path import SENDERS, send_by
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.driver import Driver, Following
from tests.world.faults import list_by_name
from tests.world.history import History
from tests.world.waiting import wait_until

#: The size of a batch in the tests of limits, with one record.
BATCH_BYTES = 10_000

#: The topic of most tests.
PAUSED = frozenset({"topic"})

#: Looks at a copy during which a pause that did not hold would show.
_LOOKS, _LOOK_S = 30, 0.01


class LookingDriver(Driver):
    """A driver that looks after its tasks, as a mirror's does."""

    def __init__(self, brokers: TwoBrokers) -> None:
        super().__init__(brokers)
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.server.look()

    def want_more(self, ranges: Sequence[CopyRange]) -> None:
        """Have more partitions copied; those of one topic have the same leaders."""
        self._wanted |= {each.source: Wanted(each, (len(each.topic), 0)) for each in ranges}
        self.server.want(self._wanted)

    @contextmanager
    def running(self, ranges: Sequence[CopyRange]) -> Iterator[Following]:
        """Let a task copy ranges, until the end of the block."""
        task = self.start()
        self.want_more(ranges)
        yield task
        self.server.request_stop()
        task.finish()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        super().close()


@pytest.fixture
def driver(brokers: TwoBrokers) -> Iterator[LookingDriver]:
    with closing(LookingDriver(brokers)) as started:
        yield started


def open_ranges(*topics: str, partitions: int = 1) -> list[CopyRange]:
    return [CopyRange(each, number, each, 0, OPEN_END) for each in topics for number in range(partitions)]


def fill(history: History, count: int) -> None:
    for _ in range(count):
        history.store(batches.batch([bytes(BATCH_BYTES - 100)], base_offset=history.next_offset))


def records_in(broker: Broker, topic: str) -> int:
    return sum(log.log_end_offset for log in broker.topics.topic(topic).logs)


def stays(brokers: TwoBrokers, topic: str, records: int) -> bool:
    """Whether a copy keeps its number of records for a while."""
    for _ in range(_LOOKS):
        if records_in(brokers.destination, topic) != records:
            return False
        time.sleep(_LOOK_S)
    return True


# Pauses


def test_paused_task_ends_at_once_if_it_is_asked_to(brokers: TwoBrokers, driver: LookingDriver) -> None:
    brokers.topic()[0].plain(3)
    driver.server.steer(paused=PAUSED)
    with driver.running(open_ranges("topic")) as task:
        wait_until(lambda: task.control.steering.paused == PAUSED)
        driver.server.request_stop()
        task.running.result(timeout_s=10)


@pytest.mark.parametrize("is_by_name", [False, True], ids=["by id", "by name"])
@pytest.mark.parametrize("paused", [{"topic", "other"}, {"topic"}], ids=["all paused", "topic paused"])
def test_source_recreated_during_a_pause_is_not_mixed_with_the_former(
    brokers: TwoBrokers, driver: LookingDriver, is_by_name: bool, paused: set[str]
) -> None:
    driver.brokers = brokers = brokers.with_timing(recreated_after_s=0.05)
    if is_by_name:
        for broker in (brokers.source, brokers.destination):
            list_by_name(broker)
    (history,) = brokers.topic()
    (other,) = brokers.topic("other")
    history.plain(3)
    with driver.running(open_ranges("topic", "other")):
        wait_until(lambda: records_in(brokers.destination, "topic") == 3)
        driver.server.steer(paused=frozenset(paused))
        wait_until(lambda: stays(brokers, "topic", 3))
        recreate(brokers.source, 40)
        driver.server.steer()
        other.plain(1)  # for a fetch in any case
        wait_until(lambda: records_in(brokers.destination, "other") == 1)
        assert stays(brokers, "topic", 3)


# Limits


def copied_bytes(brokers: TwoBrokers, *topics: str) -> int:
    return BATCH_BYTES * sum(records_in(brokers.destination, each) for each in topics)


@pytest.mark.parametrize("sender", SENDERS)
def test_limit_of_the_mirror_holds_on_each_path(
    brokers: TwoBrokers, driver: LookingDriver, sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_by(sender, monkeypatch)
    for history in brokers.topic(partitions=4):
        fill(history, 200)
    driver.server.steer(limit=1_000_000)
    with driver.running(open_ranges("topic", partitions=4)):
        began_at = time.monotonic()
        wait_until(lambda: copied_bytes(brokers, "topic") >= 2_000_000, 60)
        took_s = time.monotonic() - began_at
        # Exactness is the token bucket's (test_allowance.py): a busy machine may only be slower.
        assert took_s > 1.5
        copied = [log.log_end_offset for log in brokers.destination.topics.topic("topic").logs]
        assert min(copied) > 0  # shares need not be equal
        driver.server.steer()
        wait_until(lambda: records_in(brokers.destination, "topic") == 800)


def test_limit_counts_each_slice_of_a_response_that_has_more_runs_than_a_commit(
    brokers: TwoBrokers, driver: LookingDriver
) -> None:
    (history,) = brokers.topic()
    for _ in range(6_000):
        history.plain(1).gap(1)
    driver.server.steer(limit=100_000)
    with driver.running(open_ranges("topic")):
        began_at = time.monotonic()
        # 200 KB
        wait_until(lambda: records_in(brokers.destination, "topic") >= 2_300, 60)
        assert time.monotonic() - began_at > 1.5
        driver.server.steer()


@pytest.mark.long
def test_limit_that_two_tasks_share_is_exact_within_ten_percent_over_ten_seconds(
    brokers: TwoBrokers, driver: LookingDriver
) -> None:
    limit = 1_000_000
    for history in (*brokers.topic("first", partitions=4), *brokers.topic("second", partitions=3)):
        fill(history, 500)
    driver.server.steer(limit=limit)
    first, second = open_ranges("first", partitions=4), open_ranges("second", partitions=3)
    with driver.running(first), driver.running(second):
        wait_until(lambda: min(_copied_of_each(brokers)) > 0)
        marks = []
        for _ in range(31):
            marks.append((time.monotonic(), copied_bytes(brokers, "first", "second")))
            time.sleep(0.5)
        for (began_at, before), (ended_at, after) in zip(marks, marks[20:], strict=False):
            assert 0.9 * limit < (after - before) / (ended_at - began_at) < 1.1 * limit
        copied = _copied_of_each(brokers)
        assert max(copied) < 1.1 * min(copied)  # the same for each partition, in both tasks
        driver.server.steer()


def _copied_of_each(brokers: TwoBrokers) -> list[int]:
    topics = brokers.destination.topics
    return [log.log_end_offset for name in ("first", "second") for log in topics.topic(name).logs]


def test_commits_go_on_while_a_limit_holds_the_fetch(brokers: TwoBrokers, driver: LookingDriver) -> None:
    driver.brokers = brokers = brokers.with_timing(commit_interval_s=0.02)
    (history,) = brokers.topic()
    fill(history, 300)
    driver.server.steer(limit=1_000)
    with driver.running(open_ranges("topic")):
        wait_until(lambda: records_in(brokers.destination, "topic") > 0)
        copied = records_in(brokers.destination, "topic")
        wait_until(lambda: brokers.position().source_offset >= copied)
        assert copied < 300


# The protocol


def test_task_that_sends_a_long_report_still_receives_its_lease(driver: LookingDriver) -> None:
    with driver.connect() as control:
        driver.want_more(open_ranges("topic"))
        with control.sending:  # as a report that the driver does not read
            driver.server.steer(paused=PAUSED)
            wait_until(lambda: control.steering.paused == PAUSED)
            driver.server.renew(MemberId("member", 9), 60.0)
            wait_until(lambda: control.membership() == MemberId("member", 9))
