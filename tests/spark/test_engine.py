"""The engine of a mirror's jobs, on a fake Spark whose jobs fail or do not end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.changes import Prepared
from shoal.spark import engine
from shoal.spark.engine import SparkEngine
from shoal.timing import Timing
from tests.snapshots import Texts
from tests.world.driver import Events
from tests.world.waiting import wait_until

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


class Wanting:
    """Stands for the places: a number of tasks that is of use, until everything is copied."""

    def __init__(self, tasks: int = 2) -> None:
        self.tasks = tasks
        self.is_done = False

    def tasks_of_use(self, most: int) -> int:
        return min(self.tasks, most)


@pytest.fixture
def job() -> Iterator[CopyJob]:
    clusters = [ClientConfig.from_properties(name, {"bootstrap.servers": "localhost:1"})[0] for name in "sd"]
    options = MirrorOptions(clusters[0], clusters[1], TopicSelection("topic"))
    control = ControlServer("127.0.0.1", "secret", Events())
    prepared = Prepared("group", None, None, {}, (), 0)
    yield CopyJob(options, prepared, control, Wanting(), FirstStart.now())  # type: ignore[arg-type]
    control.close()


def timed(job: CopyJob, **times: float) -> CopyJob:
    return replace(job, options=replace(job.options, timing=Timing(**times)))  # type: ignore[arg-type]


def engine_on(
    context: Context, job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[SparkEngine, list[str]]:
    warnings: list[str] = []
    monkeypatch.setattr(engine, "spark_context", lambda *_, **__: context)
    monkeypatch.setattr(SparkEngine, "run_nothing", lambda _: None)
    started = SparkEngine(job.options, warnings.append)
    started.start(tmp_path)
    return started, warnings


@pytest.mark.parametrize(
    ("master", "listening", "told"),
    [("local[2,4]", "127.0.0.1", "127.0.0.1"), ("spark://head:7077", "10.0.0.1", "driver.example")],
)
def test_tasks_of_a_callers_session_reach_the_driver(
    master: str, listening: str, told: str, job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    addresses: list[str] = []
    stop = threading.Event()

    class Session(Context):
        def getConf(self) -> SparkConf:  # noqa: N802
            return (
                super()
                .getConf()
                .setAll([("spark.driver.host", "driver.example"), ("spark.driver.bindAddress", "10.0.0.1")])
            )

        def mapPartitions(self, function: Any) -> Context:  # noqa: N802
            addresses.append(function.control.host)
            return self

    session = Session(stop.set)
    monkeypatch.setattr(session, "master", master, raising=False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", session)
    started, _ = engine_on(session, job, monkeypatch, tmp_path)
    started.run(job, stop)
    assert started.listening_host == listening
    assert addresses == [told]


def test_mirrors_of_one_process_share_a_spark_that_the_last_one_stops(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stopped: list[str] = []

    class Own(Context):
        def stop(self) -> None:
            stopped.append("once")

    def start(*_: Any, **__: Any) -> Context:
        monkeypatch.setattr(SparkContext, "_active_spark_context", own)
        return own

    own = Own(lambda: None)
    monkeypatch.setattr(SparkEngine, "run_nothing", lambda _: None)
    monkeypatch.setattr(engine, "spark_context", start)
    first, second = (SparkEngine(job.options, lambda _: None) for _ in range(2))
    first.start(tmp_path)
    second.start(tmp_path)
    first.stop()
    assert not stopped
    second.stop()
    assert stopped == ["once"]


def test_job_that_crashes_after_a_while_is_started_again(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = timed(job, sound_s=0.0)
    stop = threading.Event()
    runs = 0

    def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise CRASHED
        stop.set()

    started, warnings = engine_on(Context(run), job, monkeypatch, tmp_path)
    started.run(job, stop)
    assert runs == 2
    (warning,) = warnings
    assert re.search(r"started.*aborted", warning)


@pytest.mark.parametrize(
    ("error", "sound_s"),
    [(CRASHED, 60.0), (PySparkException("Traceback\nshoal.errors.Disconnected: host:1: away\n"), 0.0)],
    ids=["at once", "with an error of shoal's"],
)
def test_job_that_fails_for_good_ends_the_mirror(
    job: CopyJob,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception,
    sound_s: float,
    texts: Texts,
) -> None:
    job = timed(job, sound_s=sound_s)

    def run() -> None:
        raise error

    started, _ = engine_on(Context(run), job, monkeypatch, tmp_path)
    with pytest.raises(ShoalError) as refused:
        started.run(job, threading.Event())
    texts(str(refused.value))


def test_job_without_a_core_is_cancelled_at_a_stop(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = timed(job, job_end_patience_s=0.05)
    begun, free, stop = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        free.wait(30)

    context = Context(run)
    started, _ = engine_on(context, job, monkeypatch, tmp_path)
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


# More jobs


class Tasks(Context):
    """A Spark whose tasks connect to the driver, and end when it asks them to."""

    def __init__(self, control: ControlServer) -> None:
        super().__init__(lambda: None)
        self.jobs: dict[int, int] = {}
        self.descriptions: list[str] = []
        self.attempt = 0
        self._control = control
        self._slices = 0

    def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802
        self.descriptions.append(description)

    def parallelize(self, tasks: Any, slices: int) -> Context:
        self._slices = slices
        return self

    def mapPartitions(self, function: Any) -> Any:  # noqa: N802
        slices = self._slices
        return SimpleNamespace(collect=lambda: self._collect(function.job, slices))

    def _collect(self, job: int, slices: int) -> list[Any]:
        self.jobs[job] = slices
        with ThreadPoolExecutor(slices) as tasks:
            list(tasks.map(lambda _: self._follow(job), range(slices)))
        return []

    def _follow(self, job: int) -> None:
        with ControlConnection(self._control.address, "secret", job, self.attempt if job == 1 else 0) as task:
            while not task.stop_requested:
                task.wait(1.0)


@pytest.fixture
def running(job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Tasks, CopyJob]]:
    spark = Tasks(job.control)
    job = timed(job, sound_s=0.0, plan_look_s=0.01, end_interval_s=0.05)
    started, _ = engine_on(spark, job, monkeypatch, tmp_path)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(started.run, job, stop)
        yield spark, job
        stop.set()
        ended.result(30)


def test_job_has_as_many_tasks_as_are_of_use_and_a_description(running: tuple[Tasks, CopyJob]) -> None:
    spark, job = running
    wait_until(lambda: job.control.tasks == 2)
    assert spark.jobs == {1: 2}
    assert "localhost:1" in spark.descriptions[0]
    assert "group" in spark.descriptions[0]


def test_executors_that_join_get_another_job(running: tuple[Tasks, CopyJob]) -> None:
    spark, job = running
    wait_until(lambda: job.control.tasks == 2)
    job.places.tasks = 5  # type: ignore[attr-defined]
    spark.defaultParallelism = 4
    wait_until(lambda: job.control.tasks == 4)
    assert spark.jobs == {1: 2, 2: 2}


def test_job_whose_task_failed_twice_is_replaced(running: tuple[Tasks, CopyJob]) -> None:
    spark, job = running
    wait_until(lambda: job.control.tasks == 2)
    with ControlConnection(job.control.address, "secret", 1, 2):
        wait_until(lambda: spark.jobs == {1: 2, 2: 2})
        wait_until(lambda: set(job.control.attempts) == {2} or job.control.tasks <= 3)
    wait_until(lambda: job.control.attempts == {2: 0} and job.control.tasks == 2)
    assert spark.jobs == {1: 2, 2: 2}


def test_mirror_ends_once_everything_is_copied(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark = Tasks(job.control)
    started, _ = engine_on(spark, job, monkeypatch, tmp_path)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(started.run, job, threading.Event())
        wait_until(lambda: job.control.tasks == 2)
        job.places.is_done = True  # type: ignore[misc]
        ended.result(30)
    assert job.control.tasks == 0
