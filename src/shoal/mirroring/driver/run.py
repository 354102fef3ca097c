"""
One run of a mirror, from its signals to its summary: the part that all mirrors have in common.

A mirror composes a run with its own rules: which topics it prepares, how its driver is a member of the
consumer group, and which partitions follow from that. ``shoal mirror`` is :class:`.topic_mirror.TopicMirror`,
``shoal mirror-maker`` is :class:`shoal.mirrormaker.run.MirrorMaker`. The tasks run on an
:class:`~.engine.Engine`. In the order of a run:

1. :meth:`MirrorRun.run` handles signals, shows the metrics and the page, and calls the mirror. Meanwhile a
   thread reports the progress, answers a stop, and looks after the tasks (:mod:`.looking`).
2. The mirror takes its directory (:meth:`MirrorRun.take_directory`), and :meth:`MirrorRun.start_engine`
   begins to start the engine, which takes seconds. Meanwhile the mirror prepares topics.
3. :meth:`MirrorRun.listen` opens the control connection for tasks.
4. The mirror joins its group.
5. :meth:`MirrorRun.copy` finds where partitions begin (:mod:`.places`), runs the tasks, and sums up.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import reduce
from pathlib import Path
from typing import Protocol

from ...client.cluster import Cluster
from ...client.reachable import check_advertised
from ...errors import ConfigError, ShoalError, Stopped
from ...topic_partition import TopicPartition
from ..control import ControlServer
from ..credentials import PROCESS_KEY, Credentials
from ..model.acknowledged import AcknowledgedRun
from ..model.options import MirrorOptions
from ..model.progress import GarbageCollection, Phase, ProcessRole, ProcessUsage, Progress, Summary
from ..model.text import first_few
from ..model.window import Until
from ..monitoring.door import CommandAnswer, OnCommand
from ..monitoring.metrics import Metrics
from ..monitoring.page import About, MirrorPage
from ..monitoring.processes import LocalProcesses
from ..monitoring.shown import show
from ..prepare.changes import Prepared
from .engine import END_PATIENCE_S, CopyJob, Engine
from .group_lock import MirrorIdentity
from .looking import LOOK_INTERVAL_S, ClusterWatch, Looking, TaskWatch
from .places import Places
from .schedule import PartitionSchedule, Running
from .signals import Signals
from .starts import Starts

__all__ = ["START_PATIENCE_S", "GroupPlace", "MirrorRun"]

#: Patience at the start with brokers that do not respond.
START_PATIENCE_S = 30.0


class GroupPlace(Protocol):
    """A mirror's place in its group."""

    @property
    def failure(self) -> ShoalError | None:
        """The error that ends the mirror; None as long as it holds its place."""


def _is_starting(name: str, arguments: Mapping[str, str]) -> CommandAnswer:
    raise ConfigError("the mirror is starting. Try again in some seconds")


class MirrorRun:
    """
    One run of a mirror. The main thread runs it, and any thread may warn and notify.

    Attributes:
        about: The identity of the mirror for page and report; the mirror adds its group and its warnings.
        metrics: The counts of this run.
        signals: The handlers of SIGINT, SIGTERM and SIGUSR1.
        warn: A function for warnings; from any thread.
        notify: A function for sentences that are no problem.
        on_command: Carries out an operator's commands; refuses them until the mirror replaces it.

    """

    def __init__(
        self,
        options: MirrorOptions,
        engine: Engine,
        on_progress: Callable[[Progress], object] | None,
        on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None,
        on_warning: Callable[[str], object],
        on_notice: Callable[[str], object],
        stop: threading.Event,
    ) -> None:
        """
        Prepare a run; nothing begins.

        Args:
            engine: The engine for its tasks.
            on_progress: A function that receives the progress about twice a second, in a thread of its own.
            on_run: A function that receives each acknowledged run of offsets, in any thread.
            on_warning: A function that receives warnings, in any thread.
            on_notice: A function that receives other sentences, in any thread.
            stop: An event that ends the mirror once it is set.

        """
        self.options = options
        self.metrics = Metrics(on_run, once=options.once)
        self.signals = Signals(stop, self.retry_stopped)
        self.on_command: OnCommand = _is_starting
        self._engine = engine
        self._stop = stop
        self._processes = LocalProcesses(options.timing)
        self._starting: Future[Path] | None = None
        self._page: MirrorPage | None = None
        self.about = About(options.source.servers, options.destination.servers)
        self._started = time.monotonic()
        self._retry_requested = threading.Event()
        self._looking = Looking(self.metrics, self.signals, stop, on_notice, on_progress)
        self.warn = self._looking.guarded(on_warning)
        self.notify = self._looking.guarded(on_notice)

    def run(self, mirror: Callable[[contextlib.ExitStack], Summary]) -> Summary:
        """
        Run a mirror, and show it meanwhile.

        Args:
            mirror: The mirror's own part: steps 2 to 5 in the head of this module. The run closes the stack
                in reverse order, before the page.

        Raises:
            ShoalError: The mirror failed. The positions of acknowledged batches are committed.

        """
        options = self.options
        with self.signals, contextlib.ExitStack() as resources:
            if any((options.metrics, options.ui, options.control, options.report)):
                self._page = show(
                    options,
                    self.about,
                    self.metrics,
                    self._processes,
                    lambda name, given: self.on_command(name, given),
                    self.warn,
                    self.notify,
                    resources,
                )
                self._looking.show = self._page.look
            resources.enter_context(self._looking.until_the_end())
            try:
                summary = mirror(resources)
            except Stopped:
                summary = self._nothing_copied()
            if self._page is not None:
                self._page.end(summary)
        if self._page is not None and self._page.report is None:
            summary.report = None  # it could not be written
        return summary

    def retry_stopped(self) -> None:
        """Try all stopped partitions again: for SIGUSR1, and for an operator's command."""
        self._retry_requested.set()

    def _retry(self, mirror: Running) -> None:
        requested = self._retry_requested.is_set()
        self._retry_requested.clear()
        due = mirror.schedule.take_due(self.options.timing.retry_stopped_s, requested=requested)
        if due:
            self.notify(f"trying {first_few(sorted(due))} again")
            mirror.control.recall(due)

    # For the mirror

    def warn_in_report(self, sentence: str) -> None:
        """Warn, and keep the warning on the page and in the report."""
        self.about.warnings.append(sentence)
        self.warn(sentence)

    def warn_of_unreachable(self, *clusters: Cluster) -> None:
        """Warn of brokers whose advertised addresses cannot be reached."""
        for cluster in clusters:
            for warning in check_advertised(cluster):
                self.warn(warning)

    def take_directory(self, directory: Path, resources: contextlib.ExitStack) -> MirrorIdentity:
        """
        Lock the mirror's checkpoint directory until the end of the run.

        Raises:
            ConfigError: The directory cannot be used, or another process uses it.

        """
        identity = MirrorIdentity(directory, is_given=bool(self.options.checkpoint))
        resources.callback(identity.release)
        if identity.warning:
            self.warn(identity.warning)
        return identity

    def listen(self, schedule: PartitionSchedule, group: str, resources: contextlib.ExitStack) -> Running:
        """Open the control connection for tasks, until the end of the run."""
        options = self.options
        credentials = Credentials.of(options.source, options.destination)
        control = ControlServer(
            self._engine.listening_host,
            secrets.token_hex(16),
            schedule,
            credentials.seal(PROCESS_KEY) if credentials else "",
            timing=options.timing,
        )
        resources.callback(control.close)
        return Running(
            options, group, schedule, self.metrics, control, self.warn, self.warn_in_report, self.notify
        )

    def start_engine(self, directory: Path, resources: contextlib.ExitStack) -> None:
        """
        Begin to start the engine, in a thread: meanwhile the mirror creates topics and joins its group.

        Args:
            directory: The checkpoint, for the engine's files.
            resources: The engine ends with them.

        """
        thread = ThreadPoolExecutor(1, "shoal-engine")
        resources.callback(self._end_engine)  # first: a signal may come at any time
        self._starting = thread.submit(self._engine.start, directory)
        thread.shutdown(wait=False)

    def _end_engine(self) -> None:
        self._engine.stop()  # ends a start that is under way, unless it has just been done
        if self._starting is not None and self._starting.exception() is None:
            self._engine.stop()

    def _await_engine(self) -> Path:
        """Return the engine's log file when it has started; raise Stopped if the mirror ends before."""
        assert self._starting is not None  # the mirror has begun to start the engine
        while not wait([self._starting], LOOK_INTERVAL_S).done:
            if self._stop.is_set():
                raise Stopped("the mirror was stopped before it began")
        return self._starting.result()

    # Tasks

    def copy(
        self,
        mirror: Running,
        prepared: Prepared,
        starts: Starts,
        place: GroupPlace,
        *,
        ends_when_stopped: bool = False,
        streams: int | None = None,
        on_engine_started: Callable[[], object] = lambda: None,
    ) -> Summary:
        """
        Run tasks until the mirror ends.

        Args:
            prepared: The topics that the destination is ready for at the start.
            starts: Where partitions without a position begin.
            place: The mirror's place in its group; the mirror ends if it loses this place.
            ends_when_stopped: Whether the first stopped partition ends the mirror.
            streams: See :class:`.Places`.
            on_engine_started: Called between the engine's start, which takes seconds, and the first task.

        Raises:
            Stopped: The mirror was stopped before the engine had started.
            ShoalError: The mirror lost its place, or the engine failed.

        """
        metrics, control = self.metrics, mirror.control
        with Places(mirror, starts, streams) as places:
            with self.signals.interrupting():
                places.begin()
            metrics.enter(Phase.STARTING_SPARK)
            log_file = self._await_engine()
            with ClusterWatch(mirror) as clusters:
                try:
                    metrics.enter(Phase.STARTING_TASKS)
                    self._looking.end_tasks = control.request_stop
                    self._looking.look_after = self._look_after(mirror, clusters, place, ends_when_stopped)
                    on_engine_started()
                    if not self._stop.is_set():
                        job = CopyJob(self.options, prepared, control, places, starts.first_start)
                        self._engine.run(job, self._stop)
                except ShoalError as error:
                    if place.failure is None:
                        raise
                    raise place.failure from error  # the tasks failed because of it
                finally:
                    self._looking.answer_stop()
                    metrics.enter(Phase.STOPPING)
                    # Tasks end, and commit, before the engine stops and the mirror leaves its group.
                    control.request_stop()
                    control.wait_until_idle(END_PATIENCE_S)
                    usages = self._processes()
                    self._engine.stop()
        if place.failure is not None:
            raise place.failure
        return self._summary(prepared, mirror.schedule.names, usages, str(log_file))

    def _look_after(
        self, mirror: Running, clusters: ClusterWatch, place: GroupPlace, ends_when_stopped: bool
    ) -> Callable[[], None]:
        """Return what to do about twice a second while tasks may run."""
        tasks = TaskWatch(mirror)

        def look_after() -> None:
            mirror.control.look()
            clusters.look()
            if place.failure is not None:
                self._stop.set()  # no task may go on; the mirror gives the reason when it has ended
            if self._stop.is_set():
                return
            if ends_when_stopped and self.metrics.stopped():
                self._looking.ended_by_stopped = True
                self._stop.set()
            elif not self.options.once:
                self._retry(mirror)
            tasks.look()

        return look_after

    # Summary

    def _summary(
        self, prepared: Prepared, names: dict[str, str], usages: Sequence[ProcessUsage], log_file: str
    ) -> Summary:
        done = self.metrics.progress()
        python = [each for each in usages if each.role is not ProcessRole.JVM]
        jvms = [each for each in usages if each.role is ProcessRole.JVM]
        collected = [each.gc for each in jvms if each.gc is not None]
        partitions = self.metrics.partitions().values()
        unfinished = any(each.lag_records != 0 and not each.stopped for each in partitions)
        return Summary.of(
            done,
            elapsed_s=time.monotonic() - self._started,
            group=prepared.group,
            topics=names,
            python_cpu_s=sum(each.cpu_s for each in python) + self.metrics.task_cpu_s,
            jvm_cpu_s=sum(each.cpu_s for each in jvms),
            jvm_gc=reduce(GarbageCollection.beside, collected) if collected else None,
            log_file=log_file,
            warnings=prepared.warnings,
            interrupted=self.options.once and unfinished,
            copying_s=self.metrics.copying_s if done.batches else None,
            report=self.options.report,
            engines=tuple(sorted(self.metrics.engines)),
            ended=self._why_it_ended(unfinished=unfinished),
        )

    def _why_it_ended(self, *, unfinished: bool) -> str:
        if self.signals.received is not None:
            return f"stopped by {self.signals.received}"
        if self._looking.ended_by_stopped:
            return "a partition is stopped"
        if self._stop.is_set():
            return "stopped by the calling program"
        if unfinished:
            return "the tasks ended before everything was copied"
        until = self.options.until
        what = "that was there at the start" if until is None or until == Until() else until.phrase
        return f"everything {what} is copied{', but for what is stopped' if self.metrics.stopped() else ''}"

    def _nothing_copied(self) -> Summary:
        """Return the summary of a mirror that was stopped before it began."""
        ended = f"{self._why_it_ended(unfinished=True)} before anything was copied"
        elapsed_s = time.monotonic() - self._started
        return Summary.of_nothing(self.options.group, elapsed_s, ended, once=self.options.once)
