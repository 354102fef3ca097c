"""The engine of a mirror's jobs, on a fake Spark whose jobs fail or do not end."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkException

from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.errors import ShoalError
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import WindowClock, WindowPlan
from shoal.mirroring.prepare.create import Prepared
from shoal.spark import engine
from shoal.spark.engine import SparkEngine
from shoal.timing import Timing
from tests.clocks import Time
from tests.driver_events import Events
from tests.two_brokers import wait_until

TASKS = [[CopyRange("topic", 0, "topic", 0, 5)]]

CRASHED = PySparkException("Job aborted due to stage failure: Python worker exited unexpectedly (crashed)")


class Context:
    """Stands for a SparkContext; its jobs do what the test chooses."""

    master = "local[2,4]"
    defaultParallelism = 2  # noqa: N815

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self.cancelled: list[str] = []

    def getConf(self) -> SparkConf:  # noqa: N802
        return SparkConf(loadDefaults=False, _jvm=None)

    def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802
        self.group = group

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(group)

    def parallelize(self, tasks: Any, slices: int) -> Context:
        return self

    def mapPartitions(self, function: Any) -> Context:  # noqa: N802
        return self

    def collect(self) -> list[Any]:
        self._run()
        return []

    def stop(self) -> None:
        """End with the process."""


class Planner:
    """Plans the same tasks for a number of windows."""

    def __init__(self, windows: int) -> None:
        self._left = windows

    def next_tasks(self, stop: threading.Event) -> list[list[CopyRange]]:
        self._left -= 1
        return TASKS if self._left >= 0 and not stop.is_set() else []

    def close(self) -> None:
        """Close nothing."""


@pytest.fixture
def job() -> Iterator[CopyJob]:
    clusters = [ClientConfig.from_properties(name, {"bootstrap.servers": "localhost:1"})[0] for name in "sd"]
    options = MirrorOptions(clusters[0], clusters[1], TopicSelection("topic"))
    control = ControlServer("127.0.0.1", "secret", Events())
    prepared = Prepared("group", None, None, {}, (), 0)
    yield CopyJob(options, prepared, control, FirstStart.now(), is_first_start=True)
    control.close()


def timed(job: CopyJob, **times: float) -> CopyJob:
    return replace(job, options=replace(job.options, timing=Timing(**times)))  # type: ignore[arg-type]


def engine_on(
    context: Context, job: CopyJob, windows: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[SparkEngine, list[str]]:
    warnings: list[str] = []
    monkeypatch.setattr(engine, "spark_context", lambda *_, **__: context)
    monkeypatch.setattr(engine, "WindowPlanner", lambda *_: Planner(windows))
    monkeypatch.setattr(SparkEngine, "run_nothing", lambda _: None)
    started = SparkEngine(job.options, warnings.append)
    started.start(tmp_path)
    return started, warnings


def test_job_that_crashes_after_a_while_is_started_again(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = timed(job, sound_s=0.0)
    outcomes: Iterator[Exception | None] = iter([CRASHED, None])
    runs = 0

    def run() -> None:
        nonlocal runs
        runs += 1
        if (error := next(outcomes)) is not None:
            raise error

    started, warnings = engine_on(Context(run), job, 2, monkeypatch, tmp_path)
    started.run(job, threading.Event())
    assert runs == 2
    (warning,) = warnings
    assert re.search(r"started.*aborted", warning)


@pytest.mark.parametrize(
    ("error", "sound_s", "text"),
    [
        (CRASHED, 60.0, "^Spark failed: Job aborted .*. See .*spark.log"),
        (PySparkException("Traceback\nshoal.errors.Disconnected: host:1: away\n"), 0.0, "^host:1: away$"),
    ],
    ids=["at once", "with an error of shoal's"],
)
def test_job_that_fails_for_good_ends_the_mirror(
    job: CopyJob,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception,
    sound_s: float,
    text: str,
) -> None:
    job = timed(job, sound_s=sound_s)

    def run() -> None:
        raise error

    started, _ = engine_on(Context(run), job, 2, monkeypatch, tmp_path)
    with pytest.raises(ShoalError, match=text):
        started.run(job, threading.Event())


def test_job_without_a_core_is_cancelled_at_a_stop(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = timed(job, job_end_patience_s=0.05)
    begun, free, stop = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        free.wait(30)

    context = Context(run)
    started, _ = engine_on(context, job, 2, monkeypatch, tmp_path)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(started.run, job, stop)
        wait_until(begun.is_set)
        stop.set()
        running.result(30)
        free.set()
    assert context.cancelled == ["shoal group"]
    assert job.control.stop_requested


def test_first_task_does_nothing_and_its_failure_is_no_error(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = threading.Event()

    def run() -> None:
        ran.set()
        raise CRASHED

    monkeypatch.setattr(engine, "spark_context", lambda *_, **__: Context(run))
    started = SparkEngine(job.options, lambda _: None)
    started.start(tmp_path)
    assert ran.wait(20)
    started.stop()


# Windows that overlap


class Windows(Context):
    """A Spark whose jobs say when they have begun, and end when the test lets them; and their planner."""

    def __init__(self, control: ControlServer) -> None:
        super().__init__(lambda: None)
        self.begun: list[int] = []
        self._control = control
        self._ends: dict[int, Future[None]] = defaultdict(Future)
        self._left = 3

    def mapPartitions(self, function: Any) -> Any:  # noqa: N802
        return SimpleNamespace(collect=lambda: self._collect(function.window))

    def _collect(self, window: int) -> list[Any]:
        with ControlConnection(self._control.address, "secret", window):  # its first task
            self.begun.append(window)
            self._ends[window].result(30)
        return []

    def end(self, window: int, error: Exception | None = None) -> None:
        if error is None:
            self._ends[window].set_result(None)
        else:
            self._ends[window].set_exception(error)

    def next_tasks(self, stop: threading.Event) -> list[list[CopyRange]]:
        self._control.plan()
        return self._tasks()

    def tasks_ahead(self) -> list[list[CopyRange]]:
        return self._tasks() if self._control.plan_ahead() else []

    def _tasks(self) -> list[list[CopyRange]]:
        self._left -= 1
        return TASKS if self._left >= 0 else []

    def close(self) -> None:
        """Close nothing."""


@dataclass
class Overlap:
    time: Time
    spark: Windows
    control: ControlServer
    running: Future[None]

    def come_to_the_last_seconds(self) -> None:
        self.time.now += 55

    def stays(self, *begun: int) -> bool:
        """Whether no other job begins."""
        return not wait([self.running], 0.3).done and self.spark.begun == list(begun)


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tasks that can run at a time."""
    found = [2]
    monkeypatch.setattr(engine, "slots_of", lambda context: found[0])
    return found


@pytest.fixture
def overlap(
    job: CopyJob, slots: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Overlap]:
    time, stop = Time(), threading.Event()
    events = Events(on_plan=lambda: WindowPlan({}))
    control = ControlServer("127.0.0.1", "secret", events, windows=WindowClock(60.0, time))
    control.renew(MemberId(), 60.0)
    spark = Windows(control)
    started, _ = engine_on(spark, job, 0, monkeypatch, tmp_path)
    monkeypatch.setattr(engine, "WindowPlanner", lambda *_: spark)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(started.run, replace(timed(job, sound_s=0.0), control=control), stop)
        wait_until(lambda: spark.begun == [1])
        yield Overlap(time, spark, control, running)
        stop.set()
        control.request_stop()
        for each in range(1, 9):
            with contextlib.suppress(InvalidStateError):
                spark.end(each)
        wait([running], 30)
    control.close()


def test_job_of_the_next_window_begins_before_the_present_one_ends(overlap: Overlap) -> None:
    assert overlap.stays(1)
    overlap.come_to_the_last_seconds()
    wait_until(lambda: overlap.spark.begun == [1, 2])
    assert not overlap.running.done()
    overlap.spark.end(1)
    assert overlap.stays(1, 2)
    wait_until(lambda: overlap.control.current_window == 2)


def test_window_without_slots_for_its_tasks_begins_after_the_present_one(
    overlap: Overlap, slots: list[int]
) -> None:
    slots[0] = 1
    overlap.come_to_the_last_seconds()
    assert overlap.stays(1)
    overlap.spark.end(1)
    wait_until(lambda: overlap.spark.begun == [1, 2])


def test_window_that_is_dismissed_is_planned_again(overlap: Overlap) -> None:
    overlap.come_to_the_last_seconds()
    wait_until(lambda: overlap.spark.begun == [1, 2])
    overlap.control.end_window()
    overlap.spark.end(2)
    overlap.spark.end(1)
    wait_until(lambda: overlap.spark.begun == [1, 2, 3])


def test_next_window_whose_job_fails_in_the_overlap_is_planned_again(overlap: Overlap) -> None:
    overlap.come_to_the_last_seconds()
    wait_until(lambda: overlap.spark.begun == [1, 2])
    overlap.spark.end(2, CRASHED)
    assert overlap.stays(1, 2)
    overlap.spark.end(1)
    wait_until(lambda: overlap.spark.begun == [1, 2, 3])


def test_job_that_fails_in_the_overlap_dismisses_the_next_window(overlap: Overlap) -> None:
    overlap.come_to_the_last_seconds()
    wait_until(lambda: overlap.spark.begun == [1, 2])
    overlap.spark.end(1, CRASHED)
    wait_until(lambda: overlap.control.windows is not None and not overlap.control.windows.is_prepared(2))
    overlap.spark.end(2)
    wait_until(lambda: overlap.spark.begun == [1, 2, 3])


def test_stop_in_the_overlap_ends_both_jobs(overlap: Overlap) -> None:
    overlap.come_to_the_last_seconds()
    wait_until(lambda: overlap.spark.begun == [1, 2])
    overlap.control.request_stop()
    overlap.spark.end(1)
    overlap.spark.end(2)
    overlap.running.result(30)
