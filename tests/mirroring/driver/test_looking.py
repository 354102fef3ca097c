"""While a mirror runs, it reports from the first phase on, and answers a stop within half a second."""

from __future__ import annotations

import contextlib
import errno
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.driver.places import Places
from shoal.mirroring.driver.run import MirrorRun
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.driver.starts import Starts
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.progress import Phase, Progress, Summary
from shoal.mirroring.prepare.changes import Prepared, PreparedTopic
from shoal.timing import DEFAULT_TIMING, Timing
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import report
from tests.snapshots import Texts
from tests.world.waiting import wait_until


@pytest.fixture(autouse=True)
def no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be found for the tasks."""
    monkeypatch.setattr(Places, "begin", lambda places: None)


@dataclass
class Group:
    """A place in a group."""

    failure: ShoalError | None = None


class Idle:
    """An engine with nothing to copy, until its tasks are asked to end."""

    listening_host = "127.0.0.1"

    def start(self, directory: Path) -> Path:
        return directory / "log"

    def run(self, job: CopyJob, stop: threading.Event) -> None:
        wait_until(lambda: job.control.stop_requested)

    def stop(self) -> None:
        """Nothing was started."""


class Mirror:
    """A run without clusters."""

    def __init__(
        self,
        timing: Timing = DEFAULT_TIMING,
        on_progress: Callable[[Progress], object] | None = None,
        on_sentence: Callable[[str], object] | None = None,
    ) -> None:
        self.stop = threading.Event()
        self.group = Group()
        self.reported: list[Progress] = []
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self.control: ControlServer
        self.run = MirrorRun(
            MirrorOptions("localhost:1", "localhost:1", "topic", timing=timing),  # type: ignore[arg-type]
            Idle(),
            on_progress or self.reported.append,
            None,
            on_sentence or self.warnings.append,
            on_sentence or self.notices.append,
            self.stop,
        )
        self.metrics = self.run.metrics
        topics = {"topic": PreparedTopic("topic", "copy", 2)}
        self.work = PartitionSchedule(topics, self.metrics)

    def prepare(self, _: contextlib.ExitStack) -> Summary:
        """Stand for a mirror that prepares until it is stopped."""
        self.stop.wait()
        return Summary.of_nothing(None, 0.0, "", once=False)

    def copy(self, resources: contextlib.ExitStack, *, ends_when_stopped: bool = False) -> Summary:
        prepared = Prepared("group", None, None, {}, (), 0)
        self.run.start_engine(Path(), resources)
        parts = self.run.listen(self.work, "group", resources)
        self.control = parts.control
        starts = Starts(self.run.options, "group", self.run.options.topics)
        return self.run.copy(parts, prepared, starts, self.group, ends_when_stopped=ends_when_stopped)

    @contextlib.contextmanager
    def running(self, body: Callable[[contextlib.ExitStack], Summary]) -> Iterator[Future[Summary]]:
        with ThreadPoolExecutor(1) as threads:
            outcome = threads.submit(self.run.run, body)
            try:
                yield outcome
            finally:
                self.stop.set()

    def begin(self, phase: Phase) -> None:
        """Wait until the tasks may begin; go on to a phase."""
        wait_until(lambda: self.metrics.phase is Phase.STARTING_TASKS)
        self.metrics.enter(phase)


def test_progress_is_reported_from_the_first_phase() -> None:
    mirror = Mirror()
    with mirror.running(mirror.prepare):
        wait_until(lambda: bool(mirror.reported))
        mirror.metrics.enter(Phase.STARTING_SPARK)
        wait_until(lambda: mirror.reported[-1].phase == "starting Java and Spark")
        mirror.metrics.apply(report())
        wait_until(lambda: mirror.reported[-1].phase == "copying")
    assert mirror.reported[0].phase == "checking the clusters"


@pytest.mark.parametrize("phase", [Phase.CHECKING, Phase.STARTING_SPARK, Phase.STARTING_TASKS, Phase.COPYING])
def test_stop_is_answered_before_the_second_report(phase: Phase, texts: Texts) -> None:
    mirror = Mirror()
    with mirror.running(mirror.copy):
        mirror.begin(phase)
        mirror.run.signals.received = "SIGTERM"
        reports = len(mirror.reported)
        mirror.stop.set()
        wait_until(lambda: bool(mirror.reported) and mirror.reported[-1].phase == "stopping")
        # One report may have been under way.
        assert "stopping" in {each.phase for each in mirror.reported[reports : reports + 2]}
        wait_until(lambda: mirror.control.stop_requested)
    texts(mirror.notices)


def test_stop_of_a_mirror_that_ends_at_once_is_answered() -> None:
    mirror = Mirror()

    def end(_: contextlib.ExitStack) -> Summary:
        mirror.run.signals.received = "SIGTERM"
        mirror.stop.set()
        return mirror.prepare(_)

    with mirror.running(end) as outcome:
        outcome.result(30)
    (notice,) = mirror.notices
    assert "SIGTERM" in notice
    assert mirror.reported[-1].phase == "stopping"


def test_lost_group_ends_the_mirror() -> None:
    mirror = Mirror()
    mirror.group.failure = ShoalError("lost")
    with mirror.running(mirror.copy) as outcome, pytest.raises(ShoalError, match="lost"):
        outcome.result(30)


def test_stopped_partition_ends_a_mirror_that_ends_when_stopped() -> None:
    mirror = Mirror()
    mirror.metrics.apply(report(stopped=[5, "because"]))
    with mirror.running(lambda resources: mirror.copy(resources, ends_when_stopped=True)) as outcome:
        summary = outcome.result(30)
    assert summary.ended == "a partition is stopped"
    (notice,) = mirror.notices
    assert "partition is stopped" in notice


def test_due_partitions_are_planned_again_and_named() -> None:
    mirror = Mirror()
    mirror.metrics.apply(report(stopped=[5, "because"]))
    stopped = TopicPartition("topic", 0)
    with mirror.running(mirror.copy):
        assert mirror.work.takeable([stopped]) == []
        mirror.run.retry_stopped()
        wait_until(lambda: mirror.work.takeable([stopped]) == [stopped])
    assert mirror.notices[0] == "trying topic-0 again"


def test_error_of_the_caller_ends_the_mirror_and_is_raised() -> None:
    def fail(progress: Progress) -> None:
        raise ValueError("the caller's")

    mirror = Mirror(on_progress=fail)
    with mirror.running(mirror.prepare) as outcome, pytest.raises(ValueError, match="the caller's"):
        outcome.result(30)


def fail_to_tell(sentence: str) -> None:
    raise OSError(errno.ENOSPC, "the disk of the log is full")


def test_error_of_a_warning_ends_the_mirror_and_is_raised() -> None:
    mirror = Mirror(Timing(silence_s=0.1), on_sentence=fail_to_tell)
    partition = TopicPartition("topic", 0)
    mirror.metrics.expect({partition: 0}, {partition: 5})
    with mirror.running(mirror.copy) as outcome, pytest.raises(OSError, match="disk of the log"):
        outcome.result(30)


def test_tasks_end_although_the_stop_cannot_be_printed() -> None:
    mirror = Mirror(on_sentence=fail_to_tell)
    with mirror.running(mirror.copy) as outcome:
        mirror.begin(Phase.COPYING)
        mirror.stop.set()
        wait_until(lambda: mirror.control.stop_requested)
        assert mirror.metrics.phase is Phase.STOPPING
        with pytest.raises(OSError, match="disk of the log"):
            outcome.result(30)


def test_error_of_a_look_ends_the_mirror_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(control: ControlServer) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(ControlServer, "look", fail)
    mirror = Mirror()
    with mirror.running(mirror.copy) as outcome, pytest.raises(ValueError, match="a mistake"):
        outcome.result(30)


def test_silent_tasks_warn_and_partitions_wait_for_a_report() -> None:
    mirror = Mirror(Timing(silence_s=1.5))
    partition = TopicPartition("topic", 0)
    mirror.metrics.expect({partition: 0}, {partition: 5})
    with mirror.running(mirror.copy):
        wait_until(lambda: bool(mirror.reported and mirror.reported[-1].waiting))
        assert mirror.reported[-1].waiting == {"topic-0": "a task"}
        assert len(mirror.warnings) == 1
        assert re.search(r"no task .* \d", mirror.warnings[0])
        with ControlConnection(mirror.control.address, mirror.control.token) as task:
            task.report(report())
            wait_until(lambda: not mirror.reported[-1].waiting)
