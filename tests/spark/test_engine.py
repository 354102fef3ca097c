"""The engine of a mirror's jobs, on a fake Spark whose jobs fail or do not end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkException

from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.mirroring.control import ControlServer
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.create import Prepared
from shoal.spark import engine
from shoal.spark.engine import SparkEngine
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


def engine_on(
    context: Context, job: CopyJob, windows: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[SparkEngine, list[str]]:
    warnings: list[str] = []
    monkeypatch.setattr(engine, "spark_context", lambda *_, **__: context)
    monkeypatch.setattr(engine, "WindowPlanner", lambda *_: Planner(windows))
    started = SparkEngine(job.options, warnings.append)
    started.start(tmp_path)
    return started, warnings


def test_job_that_crashes_after_a_while_is_started_again(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "_SOUND_S", 0.0)
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
    assert warning.startswith("Spark failed and was started again: Job aborted")


@pytest.mark.parametrize(
    ("error", "sound_s", "text"),
    [
        (CRASHED, 60.0, "^Spark failed: Job aborted .*; see .*spark.log"),
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
    monkeypatch.setattr(engine, "_SOUND_S", sound_s)

    def run() -> None:
        raise error

    started, _ = engine_on(Context(run), job, 2, monkeypatch, tmp_path)
    with pytest.raises(ShoalError, match=text):
        started.run(job, threading.Event())


def test_job_without_a_core_is_cancelled_at_a_stop(
    job: CopyJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "_JOB_END_PATIENCE_S", 0.05)
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
