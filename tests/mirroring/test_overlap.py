"""The tasks of two windows that overlap: partitions pass from one to the other, and no one is in between."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from shoal.client.coordinator import MemberId
from shoal.errors import BrokerError, Stopped
from shoal.mirroring.control import ControlConnection
from shoal.mirroring.model.handover import Handover
from shoal.mirroring.model.reports import TaskReport
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.clocks import Time
from tests.two_brokers import History, RunningTask, TwoBrokers, wait_until
from tests.window_driver import Driver

PARTITION = TopicPartition("topic", 0)
LENGTH_S = 600.0


class Overlap:
    """A driver whose clock stands still, and a window that is nearly over."""

    def __init__(self, brokers: TwoBrokers) -> None:
        self._time = Time()
        self.driver = Driver(brokers, LENGTH_S, self._time)
        self.server = self.driver.server
        self.server.plan()

    @property
    def window(self) -> int:
        return self.server.current_window

    def prepare(self) -> int:
        """Come to the last seconds of the window, and plan the next one; return its number."""
        self._time.now += LENGTH_S - 5
        assert self.server.plan_ahead() is not None
        return self.server.planned_window

    def end_window(self, lease_s: float = 60.0) -> None:
        """Let the time of the window be over: it waits for its successor as long as it lasts itself."""
        self._time.now += 5 + LENGTH_S
        self.server.renew(MemberId(), lease_s)  # all tasks receive the remaining time

    def has_begun(self) -> bool:
        """Whether the window that was planned last is the current one, and has a task."""
        windows = self.server.windows
        return windows is not None and windows.current == windows.planned and windows.has_begun

    def ready(self) -> int:
        return len(self.server.ready)

    def connected(self) -> int:
        return len(self.server.tasks)


@pytest.fixture
def overlap(brokers: TwoBrokers) -> Iterator[Overlap]:
    found = Overlap(brokers.with_timing(shortest_window_s=0.0))
    yield found
    found.server.close()


@pytest.fixture
def tasks(overlap: Overlap) -> Iterator[tuple[ControlConnection, ControlConnection]]:
    """The connections of a task of the current window that copies, and of one of the next."""
    with overlap.driver.connect(overlap.window) as present, contextlib.ExitStack() as stack:
        present.take([PARTITION])
        yield present, stack.enter_context(overlap.driver.connect(overlap.prepare()))


def taking(control: ControlConnection) -> Future[Handover]:
    """Ask for the partition in a thread: the driver lets the task wait."""
    outcome: Future[Handover] = Future()

    def take() -> None:
        try:
            outcome.set_result(control.take([PARTITION]))
        except Stopped as error:
            outcome.set_exception(error)

    threading.Thread(target=take, daemon=True).start()
    return outcome


def test_next_task_waits_for_the_end_of_the_window_and_then_for_the_present_task(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    present, following = tasks
    taken = taking(following)
    wait_until(lambda: overlap.ready() == 1)
    overlap.server.renew(MemberId(), 60.0)
    assert not present.stop_requested
    assert not taken.done()
    overlap.end_window()
    wait_until(lambda: present.stop_requested)
    present.check_lease()  # it ends in good order
    assert not taken.done()
    present.close()
    assert taken.result(20).given_up == frozenset()
    assert not following.stop_requested
    assert overlap.window == overlap.server.planned_window


def test_window_ends_once_all_tasks_of_the_next_one_are_ready(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    present, first = tasks
    overlap.server.await_next(2)
    taking(first)
    wait_until(lambda: overlap.ready() == 1)
    assert present.remaining_s > 1
    with overlap.driver.connect(overlap.server.planned_window) as second:
        taking(second)
        wait_until(lambda: present.remaining_s <= 0.5)


def test_next_task_has_the_partition_before_the_present_task_has_ended(
    brokers: TwoBrokers, history: History, overlap: Overlap
) -> None:
    history.plain(2, 3)
    with overlap.driver.connect(overlap.window) as first:
        copying = overlap.driver.start(first)
        wait_until(lambda: brokers.copied() == history.committed)
        with overlap.driver.connect(overlap.prepare()) as second:
            waiting = overlap.driver.start(second)
            wait_until(lambda: overlap.ready() == 1)
            history.plain(4)
            wait_until(lambda: brokers.copied() == history.committed)  # by the first
            ends = brokers.destination.faults.add(ApiKey.OFFSET_FOR_LEADER_EPOCH, times=None)
            positions = brokers.source.faults.add(ApiKey.OFFSET_FETCH, times=None)
            overlap.end_window()
            assert not copying.result().complete
            history.plain(1)
            wait_until(lambda: brokers.copied() == history.committed)  # by the second
            assert overlap.connected() == 2  # the first has not closed its connection
            assert (ends.hits, positions.hits) == (0, 0)
            overlap.server.request_stop()
            waiting.result()
    assert brokers.position().source_offset == history.next_offset
    assert overlap.driver.waits_for() is None


def test_windows_that_overlap_copy_every_record_once(
    brokers: TwoBrokers, history: History, overlap: Overlap
) -> None:
    over = threading.Event()

    def produce() -> None:
        while not over.wait(0.002):
            history.plain(1)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        with contextlib.ExitStack() as connections:
            control = connections.enter_context(overlap.driver.connect(overlap.window))
            running = overlap.driver.start(control)
            for _ in range(6):
                copied = len(brokers.copied())
                wait_until(lambda least=copied: len(brokers.copied()) > least)  # type: ignore[misc]
                following = connections.enter_context(overlap.driver.connect(overlap.prepare()))
                waiting = overlap.driver.start(following)
                overlap.end_window()
                running.result()
                control.close()
                control, running = following, waiting
            over.set()
            producer.join()
            wait_until(lambda: len(brokers.copied()) == len(history.committed))
            overlap.server.request_stop()
            running.result()
    finally:
        over.set()
        producer.join()
    assert brokers.copied() == history.committed
    assert brokers.position().source_offset == history.next_offset


class Spark:
    """Starts the tasks of windows that overlap, and kills and repeats them."""

    def __init__(self, overlap: Overlap) -> None:
        self._overlap = overlap
        self._tasks: list[tuple[ControlConnection, RunningTask]] = []

    def start(self, window: int) -> None:
        control = self._overlap.driver.connect(window)
        self._tasks.append((control, self._overlap.driver.start(control)))

    def kill(self, number: int) -> None:
        """Kill a task by its connection: 0 is the oldest. Its last requests may still arrive."""
        control, running = self._tasks.pop(number)
        control.close()
        with contextlib.suppress(Stopped, BrokerError):
            running.result()

    def finish(self, number: int) -> None:
        control, running = self._tasks.pop(number)
        running.result()
        control.close()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_windows_that_overlap_copy_every_record_once_whatever_ends_their_tasks(
    brokers: TwoBrokers, history: History, overlap: Overlap, seed: int
) -> None:
    dice = random.Random(seed)
    over = threading.Event()
    brokers.destination.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.002)

    def produce() -> None:
        while not over.wait(0.002):
            history.plain(dice.randint(1, 3))

    producer = threading.Thread(target=produce)
    producer.start()
    spark = Spark(overlap)
    server = overlap.server
    try:
        spark.start(overlap.window)
        for _ in range(8):
            wait_until(overlap.has_begun)
            copied = len(brokers.copied())
            wait_until(lambda least=copied: len(brokers.copied()) > least)  # type: ignore[misc]
            following = overlap.prepare()
            spark.start(following)
            match dice.choice(["nothing", "old", "new", "both", "late", "soon", "news"]):
                case "nothing":
                    overlap.end_window()
                    spark.finish(0)
                case "old":
                    present = overlap.window
                    spark.kill(0)
                    overlap.end_window()
                    spark.start(present)  # repeated, and too late
                    spark.finish(1)
                case "new":
                    spark.kill(1)
                    spark.start(following)
                    overlap.end_window()
                    spark.finish(0)
                case "both":
                    spark.kill(1)
                    spark.kill(0)
                    spark.start(following)
                    overlap.end_window()
                case "late":
                    overlap.end_window()
                    spark.kill(0)
                case "soon":
                    overlap.end_window()
                    spark.finish(0)
                    spark.kill(0)
                    spark.start(following)
                case "news":
                    server.end_window()
                    spark.finish(1)
                    spark.finish(0)
                    server.plan()
                    spark.start(overlap.window)
        over.set()
        producer.join()
        wait_until(lambda: len(brokers.copied()) == len(history.committed))
        server.request_stop()
        spark.finish(0)
    finally:
        over.set()
        producer.join()
    assert brokers.copied() == history.committed
    assert brokers.position().source_offset == history.next_offset


def news(overlap: Overlap) -> None:
    overlap.server.end_window()


def alignment(overlap: Overlap) -> None:
    with overlap.driver.connect(overlap.window) as task:
        task.report(TaskReport(aligns=True))
        wait_until(lambda: overlap.server.windows is not None and overlap.server.windows.remaining_s > 5)


def tasks_that_have_to_end(overlap: Overlap) -> None:
    overlap.server.end_tasks(0.0)


def stop(overlap: Overlap) -> None:
    overlap.server.request_stop()


@pytest.mark.parametrize("cause", [news, alignment, tasks_that_have_to_end, stop])
def test_next_task_that_is_dismissed_gets_no_partition(
    overlap: Overlap,
    tasks: tuple[ControlConnection, ControlConnection],
    cause: Callable[[Overlap], None],
) -> None:
    _, following = tasks
    taken = taking(following)
    assert not following.stop_requested
    cause(overlap)
    if cause is tasks_that_have_to_end:  # the driver has closed the connection
        with contextlib.suppress(Stopped):
            assert taken.result(20).given_up == {PARTITION}
        return
    assert taken.result(20).given_up == {PARTITION}
    assert following.stop_requested


def test_alignment_in_the_overlap_lets_the_present_task_go_on(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    present, following = tasks
    taken = taking(following)
    present.report(TaskReport(aligns=True))
    assert taken.result(20).given_up == {PARTITION}
    assert not present.stop_requested
    assert present.remaining_s > 5


def test_task_of_a_dismissed_window_that_comes_late_does_not_fence_the_present_task(overlap: Overlap) -> None:
    with overlap.driver.connect(overlap.window) as present:
        present.take([PARTITION])
        number = overlap.prepare()
        overlap.server.dismiss_next()
        with overlap.driver.connect(number) as late:
            assert late.stop_requested
            assert taking(late).result(20).given_up == {PARTITION}
        assert not present.stop_requested


def test_second_attempt_of_the_next_task_waits_as_the_first(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    present, first = tasks
    killed = taking(first)
    wait_until(lambda: overlap.ready() == 1)
    first.close()
    with pytest.raises(Stopped):
        killed.result(20)
    wait_until(lambda: overlap.connected() == 1)
    with overlap.driver.connect(overlap.server.planned_window) as second:
        taken = taking(second)
        overlap.end_window()
        present.close()
        assert taken.result(20).given_up == frozenset()


def test_second_attempt_of_the_present_task_copies_until_the_window_is_over(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    killed, following = tasks
    taken = taking(following)
    wait_until(lambda: overlap.ready() == 1)
    killed.close()
    wait_until(lambda: overlap.connected() == 1)
    with overlap.driver.connect(overlap.window) as second:
        assert taking(second).result(20).given_up == frozenset()
        assert not second.stop_requested
        assert not taken.done()
        overlap.end_window()
        wait_until(lambda: second.stop_requested)
        assert not taken.done()
    assert taken.result(20).given_up == frozenset()


def test_late_attempt_of_the_former_window_gets_no_partition_of_the_present_one(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    killed, following = tasks
    former = overlap.window
    taken = taking(following)
    overlap.end_window()
    killed.close()
    taken.result(20)
    with overlap.driver.connect(former) as late:
        assert late.stop_requested
        assert taking(late).result(20).given_up == {PARTITION}
        assert not following.stop_requested


def test_window_begins_with_a_task_that_connected_before_and_asks_after_the_end_of_the_last(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    killed, following = tasks
    former = overlap.window
    overlap.end_window()
    killed.close()
    with overlap.driver.connect(former):  # Spark repeats the task that was killed: too late
        assert not overlap.has_begun()
        assert taking(following).result(20).given_up == frozenset()
        assert overlap.has_begun()


def test_next_task_waits_for_the_lease_of_a_silent_present_task(overlap: Overlap) -> None:
    overlap.server.renew(MemberId(), 1.0)
    with overlap.driver.connect(overlap.window) as silent:
        silent.take([PARTITION])
        until = time.monotonic() + 0.9
        with overlap.driver.connect(overlap.prepare()) as following:
            taken = taking(following)
            overlap.end_window(lease_s=1.0)
            wait_until(lambda: any(each.is_fenced for each in overlap.server.tasks))
            for _ in range(10):
                overlap.server.renew(MemberId(), 60.0)  # not for the silent task
            assert taken.result(20).given_up == frozenset()
            assert time.monotonic() >= until
            with pytest.raises(BrokerError):
                silent.check_lease()


def test_next_task_without_driver_is_an_orphan(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    _, following = tasks
    taken = taking(following)
    overlap.server.close()
    with pytest.raises(Stopped):
        taken.result(20)


def test_next_task_follows_a_job_that_ended_before_its_time(
    overlap: Overlap, tasks: tuple[ControlConnection, ControlConnection]
) -> None:
    present, following = tasks
    taken = taking(following)
    present.close()
    wait_until(lambda: overlap.connected() == 1)
    assert not taken.done()
    assert overlap.server.follow(overlap.window, overlap.server.planned_window)
    assert taken.result(20).given_up == frozenset()
