"""
One run of a mirror, from its signals to its summary: the part that all mirrors have in common.

A mirror composes a run with its own rules: which topics it prepares, how its driver is a member of the
consumer group, and which partitions follow from that. ``shoal mirror`` is :class:`.topic_mirror.TopicMirror`,
``shoal mirror-maker`` is :class:`shoal.mirrormaker.run.MirrorMaker`. The tasks run on an
:class:`~.engine.Engine`. In the order of a run:

1. :meth:`MirrorRun.run` handles signals, shows the metrics and the page, and calls the mirror.
2. The mirror takes its directory (:meth:`MirrorRun.take_directory`), and :meth:`MirrorRun.start_engine`
   begins to start the engine, which takes seconds. Meanwhile the mirror prepares topics.
3. :meth:`MirrorRun.listen` opens the control connection for tasks.
4. The mirror joins its group, and commits the start positions of new partitions
   (:meth:`MirrorRun.settle_beginnings`).
5. :meth:`MirrorRun.copy` runs the tasks to the end, and sums up.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId
from ...client.reachable import check_advertised
from ...errors import ShoalError, Stopped
from ...topic_partition import TopicPartition
from ..assignment import end_offsets
from ..control import ControlServer
from ..credentials import PROCESS_KEY, Credentials
from ..model.first_start import FirstStart
from ..model.offset_map import AcknowledgedRun
from ..model.options import MirrorOptions
from ..model.progress import Phase, Progress, Summary
from ..model.topics import TopicSelection
from ..model.window import Until
from ..monitoring.door import CommandAnswer, OnCommand
from ..monitoring.metrics import Metrics
from ..monitoring.page import MirrorPage
from ..monitoring.processes import LocalProcesses
from ..monitoring.shown import show
from ..positions import GroupPositions
from ..prepare.changes import Prepared
from .beginnings import Beginnings, find_beginnings
from .cluster_watch import ClusterWatch
from .engine import END_PATIENCE_S, CopyJob, Engine
from .group_lock import MirrorIdentity
from .loop import AtWork, DriverLoop, GroupPlace
from .places import Places
from .retrying import StoppedRetries
from .schedule import PartitionSchedule
from .signals import Signals

__all__ = ["START_PATIENCE_S", "MirrorRun"]

#: Patience at the start with brokers that do not respond.
START_PATIENCE_S = 30.0

#: Interval at which the wait for the engine looks for a stop.
_LOOK_INTERVAL_S = 0.1


def _is_starting(name: str, arguments: Mapping[str, str]) -> CommandAnswer:
    return CommandAnswer("the mirror is starting. Try again in some seconds", ok=False)


class MirrorRun:
    """
    One run of a mirror. The main thread runs it, and any thread may warn and notify.

    Attributes:
        metrics: The counts of this run.
        signals: The handlers of SIGINT, SIGTERM and SIGUSR1.
        notify: A function for sentences that are no problem.
        on_command: Carries out an operator's commands; refuses them until the mirror replaces it.
        first_start: The group's first start, as far as it is known.
        is_first_start: Whether this run is that start.

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
        self.notify = on_notice
        self.metrics = Metrics(on_run, once=options.once)
        self.signals = Signals(stop, self.retry_stopped)
        self.on_command: OnCommand = _is_starting
        self.first_start = FirstStart.now()
        self.is_first_start = True
        self._engine = engine
        self._on_warning = on_warning
        self._stop = stop
        self._retries = None if options.once else StoppedRetries(self.metrics, options.timing.retry_stopped_s)
        self._loop = DriverLoop(
            stop, self.signals, self.metrics, on_progress, on_notice, on_warning, options.timing
        )
        self._processes = LocalProcesses(options.timing)
        self._starting: Future[Path] | None = None
        self._page: MirrorPage | None = None
        self._group: str | None = None
        self._warnings: list[str] = []
        self._started = time.monotonic()

    def run(self, mirror: Callable[[contextlib.ExitStack], Summary]) -> Summary:
        """
        Run a mirror, and show it meanwhile.

        Args:
            mirror: The mirror's own part: steps 2 to 5 in the head of this module. The run closes the stack
                in reverse order, before the page.

        Raises:
            ShoalError: The mirror failed. The positions of acknowledged batches are committed.

        """
        with self.signals, contextlib.ExitStack() as resources:
            self._show(resources)
            resources.enter_context(self._loop)
            try:
                summary = mirror(resources)
            except Stopped:
                summary = self._nothing_copied()
            if self._page is not None:
                self._page.end(summary)
            return summary

    def _show(self, resources: contextlib.ExitStack) -> None:
        options = self.options
        if any((options.metrics, options.ui, options.control, options.report)):
            self._page = show(
                options,
                self.metrics,
                self._processes,
                lambda name, given: self.on_command(name, given),
                self.warn,
                self.notify,
                resources,
            )

    def retry_stopped(self) -> None:
        """Try all stopped partitions again: for SIGUSR1, and for an operator's command."""
        if self._retries is not None:
            self._retries.request()

    # For the mirror

    def warn(self, sentence: str) -> None:
        """Warn; from any thread."""
        self._on_warning(sentence)

    def warn_in_report(self, sentence: str) -> None:
        """Warn, and keep the warning on the page and in the report."""
        if self._group is not None:
            self.show_group(self._group, [sentence])
        self.warn(sentence)

    def show_group(self, group: str, warnings: Iterable[str] = ()) -> None:
        """Show the mirror's group, and further warnings, on the page and in the report."""
        self._group = group
        self._warnings += warnings
        if self._page is not None:
            self._page.show_group(group, self._warnings)

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

    def listen(self, schedule: PartitionSchedule, resources: contextlib.ExitStack) -> ControlServer:
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
        return control

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
        while not wait([self._starting], _LOOK_INTERVAL_S).done:
            if self._stop.is_set():
                raise Stopped("the mirror was stopped before it began")
        return self._starting.result()

    def set_first_start(self, first_start: FirstStart, *, is_this: bool) -> None:
        """Keep the group's first start for the tasks, and whether this run is that start."""
        self.first_start, self.is_first_start = first_start, is_this

    def settle_beginnings(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        selection: TopicSelection,
        membership: MemberId,
        seen_at_start: tuple[int, Collection[TopicPartition]] | None = None,
    ) -> Beginnings:
        """
        Decide and commit the start positions of partitions without one, before any task copies them.

        Args:
            group: The mirror's group, which this process is a member of.
            partitions: The partitions of this mirror.
            selection: The topics that are selected now.
            membership: The member that commits.
            seen_at_start: See :func:`~.beginnings.find_beginnings`.

        """
        options = self.options
        takes_over = options.takes_over_offsets
        with Cluster(options.source) as cluster:
            positions = GroupPositions(cluster, group, lambda: membership, takes_over_offsets=takes_over)

            def settle() -> Beginnings:
                cluster.refresh({each.topic for each in partitions})
                found = find_beginnings(
                    cluster,
                    group,
                    positions.read_state(),
                    selection,
                    partitions,
                    start_ms=options.start.timestamp_ms,
                    option="auto.offset.reset=latest" if takes_over else "start=latest",
                    seen_at_start=seen_at_start,
                    timing=options.timing,
                )
                positions.mark_starts(found.offsets, found.first_start)
                return found

            found = patiently(settle, patience_s=START_PATIENCE_S)
            level = cluster.config.isolation_level
            ends = end_offsets(cluster, list(found.offsets), level, all_of_them=False)
        self.metrics.expect(found.offsets, ends)
        for sentence in found.sentences:
            self.notify(sentence)
        return found

    # Tasks

    def copy(
        self,
        prepared: Prepared,
        schedule: PartitionSchedule,
        control: ControlServer,
        place: GroupPlace,
        *,
        ends_when_stopped: bool = False,
        on_engine_started: Callable[[], object] = lambda: None,
    ) -> Summary:
        """
        Run tasks until the mirror ends.

        Args:
            prepared: The topics that the destination is ready for at the start.
            control: The connection to the tasks.
            place: The mirror's place in its group; the mirror ends if it loses this place.
            ends_when_stopped: Whether the first stopped partition ends the mirror.
            on_engine_started: Called between the engine's start, which takes seconds, and the first task.

        Raises:
            Stopped: The mirror was stopped before the engine had started.
            ShoalError: The mirror lost its place, or the engine failed.

        """
        self.metrics.enter(Phase.STARTING_SPARK)
        log_file = self._await_engine()
        watch = ClusterWatch(self.options, self.metrics, self.warn, self.notify)
        with watch, self.signals:  # again: an engine may have installed handlers of its own
            try:
                self.metrics.enter(Phase.STARTING_TASKS)
                self._loop.begin_work(
                    AtWork(control, place, schedule, self._retries, ends_when_stopped, watch)
                )
                on_engine_started()
                if not self._stop.is_set():
                    self._run_tasks(prepared, schedule, control)
            except ShoalError as error:
                if place.failure is None:
                    raise
                raise place.failure from error  # the tasks failed because of it
            finally:
                self.metrics.enter(Phase.STOPPING)
                # Tasks end, and commit, before the engine stops and the mirror leaves its group.
                control.request_stop()
                control.wait_until_idle(END_PATIENCE_S)
                cpu_s = self._engine.cpu_used()
                jvm_gc = self._processes.garbage_collection()
                self._engine.stop()
        if place.failure is not None:
            raise place.failure
        summary = self._summary(prepared, schedule.names, cpu_s)
        return replace(summary, jvm_gc=jvm_gc, log_file=str(log_file))

    def _run_tasks(self, prepared: Prepared, schedule: PartitionSchedule, control: ControlServer) -> None:
        """Run tasks, as many as are of use, and tell them what to copy."""
        places = Places(self.options, prepared.group, schedule, control, is_first_start=self.is_first_start)
        with self.signals.interrupting():
            places.begin()
        with places:
            job = CopyJob(self.options, prepared, control, places, self.first_start)
            self._engine.run(job, self._stop)

    # Summary

    def _summary(self, prepared: Prepared, names: dict[str, str], cpu_s: tuple[float, float]) -> Summary:
        done = self.metrics.progress()
        partitions = self.metrics.partitions().values()
        unfinished = any(each.lag_records != 0 and not each.stopped for each in partitions)
        return Summary.of(
            done,
            elapsed_s=time.monotonic() - self._started,
            group=prepared.group,
            topics=names,
            python_cpu_s=cpu_s[0],
            jvm_cpu_s=cpu_s[1],
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
        if self._loop.ended_by_stopped:
            return "a partition is stopped"
        if self._stop.is_set():
            return "stopped by the calling program"
        if unfinished:
            return "the tasks ended before everything was copied"
        until = self.options.until
        if until is None or until == Until():
            return "everything that was there at the start is copied"
        return f"everything {until.phrase} is copied"

    def _nothing_copied(self) -> Summary:
        """Return the summary of a mirror that was stopped before it began."""
        ended = f"{self._why_it_ended(unfinished=True)} before anything was copied"
        elapsed_s = time.monotonic() - self._started
        return Summary.of_nothing(self.options.group, elapsed_s, ended, once=self.options.once)
