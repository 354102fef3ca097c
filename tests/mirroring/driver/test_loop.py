"""The driver's loop: reports from the first phase on, and an answer to a stop within half a second."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from shoal.errors import ShoalError
from shoal.mirroring.control import ControlServer
from shoal.mirroring.driver.loop import AtWork, DriverLoop
from shoal.mirroring.driver.retrying import StoppedRetries
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.driver.signals import Signals
from shoal.mirroring.model.progress import Phase, Progress
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.timing import DEFAULT_TIMING, Timing
from shoal.topic_partition import TopicPartition
from tests.driver_events import Events
from tests.metrics_fed import report
from tests.two_brokers import wait_until


@dataclass
class Group:
    """A place in a group."""

    failure: ShoalError | None = None


class Mirror:
    """A loop, and its reports."""

    def __init__(self, timing: Timing = DEFAULT_TIMING) -> None:
        self.stop = threading.Event()
        self.signals = Signals(self.stop, on_retry=lambda: None)
        self.metrics = Metrics()
        self.retries = StoppedRetries(self.metrics, 0)
        self.work = PartitionSchedule(
            {"topic": PreparedTopic("topic", "copy", 2, created=False)}, self.metrics
        )
        self.group = Group()
        self.reported: list[Progress] = []
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self.loop = DriverLoop(
            self.stop,
            self.signals,
            self.metrics,
            self.reported.append,
            self.notices.append,
            self.warnings.append,
            timing,
        )

    def begin_work(self, control: ControlServer, *, ends_when_stopped: bool = False) -> None:
        self.loop.begin_work(AtWork(control, self.group, self.work, self.retries, ends_when_stopped))


@pytest.fixture
def control() -> Iterator[ControlServer]:
    server = ControlServer("127.0.0.1", "token", Events())
    yield server
    server.close()


def test_progress_is_reported_from_the_first_phase() -> None:
    mirror = Mirror()
    with mirror.loop:
        wait_until(lambda: bool(mirror.reported))
        mirror.metrics.enter(Phase.STARTING_SPARK)
        wait_until(lambda: mirror.reported[-1].phase == "starting Java and Spark")
        mirror.metrics.apply(report())
        wait_until(lambda: mirror.reported[-1].phase == "copying")
    assert mirror.reported[0].phase == "checking the clusters"


@pytest.mark.parametrize(
    ("phase", "answer"),
    [
        (Phase.CHECKING, "nothing was copied"),
        (Phase.STARTING_SPARK, "nothing was copied"),
        (Phase.STARTING_TASKS, "nothing was copied, but Spark has to start before it can end"),
        (Phase.COPYING, "finishing and committing the batches in flight"),
    ],
)
def test_stop_is_answered_before_the_second_report(control: ControlServer, phase: Phase, answer: str) -> None:
    mirror = Mirror()
    mirror.metrics.enter(phase)
    mirror.begin_work(control)
    with mirror.loop:
        mirror.signals.received = "SIGTERM"
        reports = len(mirror.reported)
        mirror.stop.set()
        wait_until(lambda: bool(mirror.reported) and mirror.reported[-1].phase == "stopping")
        # One report may have been under way.
        assert "stopping" in {each.phase for each in mirror.reported[reports : reports + 2]}
        wait_until(lambda: control.stop_requested)
    assert mirror.notices == [f"stopping on SIGTERM: {answer}"]


def test_lost_group_ends_the_mirror(control: ControlServer) -> None:
    mirror = Mirror()
    mirror.group.failure = ShoalError("lost")
    mirror.begin_work(control)
    with mirror.loop:
        wait_until(mirror.stop.is_set)


def test_stopped_partition_ends_a_mirror_that_ends_when_stopped(control: ControlServer) -> None:
    mirror = Mirror()
    mirror.metrics.apply(report(stopped=[5, "because"]))
    mirror.metrics.enter(Phase.COPYING)
    mirror.begin_work(control, ends_when_stopped=True)
    with mirror.loop:
        wait_until(lambda: bool(mirror.notices))
    assert mirror.loop.ended_by_stopped
    (notice,) = mirror.notices
    assert "partition is stopped" in notice


def test_due_partitions_are_planned_again_and_named(control: ControlServer) -> None:
    mirror = Mirror()
    mirror.metrics.apply(report(stopped=[5, "because"]))
    mirror.begin_work(control)
    with mirror.loop:
        mirror.retries.request()
        wait_until(lambda: not mirror.work.plan().excluded)
    assert mirror.notices == ["trying topic-0 again"]


def test_error_of_the_caller_ends_the_mirror_and_is_raised() -> None:
    mirror = Mirror()

    def fail(progress: Progress) -> None:
        raise ValueError("the caller's")

    loop = DriverLoop(
        mirror.stop, mirror.signals, mirror.metrics, fail, mirror.notices.append, mirror.warnings.append
    )
    with pytest.raises(ValueError, match="the caller's"), loop:
        wait_until(mirror.stop.is_set)


def test_silent_tasks_warn_and_partitions_wait_for_a_report(control: ControlServer) -> None:
    mirror = Mirror(Timing(silence_s=0.3))
    partition = TopicPartition("topic", 0)
    mirror.metrics.expect({partition: 0}, {partition: 5})
    mirror.begin_work(control)
    with mirror.loop:
        wait_until(lambda: bool(mirror.reported and mirror.reported[-1].waiting))
        assert mirror.reported[-1].waiting == {"topic-0": "a task"}
        assert len(mirror.warnings) == 1
        assert re.search(r"no task .* \d", mirror.warnings[0])
        mirror.metrics.apply(report())
        wait_until(lambda: not mirror.reported[-1].waiting)
