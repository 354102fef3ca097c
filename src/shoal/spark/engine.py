"""
Spark as the engine of a mirror: plain jobs, one for each copy window.

Everything here runs on the driver, in the user's process. ``once`` is one job with bounded ranges. A mirror
without an end runs a job for each copy window (:mod:`.mirror_planning`). Spark moves only references of
partitions and offsets; tasks copy the batches (:mod:`.copy_task`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import psutil
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException

from shoal.errors import ShoalError
from shoal.mirroring.credentials import Credentials
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.model.acl_prefixes import prefixes_of
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.spark.authentication import key_for_tasks, refuse_unauthenticated
from shoal.spark.connections import is_on_this_machine
from shoal.spark.copy_task import ControlAddress, CopyTask
from shoal.spark.launch.jvm import Abort
from shoal.spark.launch.session import driver_host, spark_context
from shoal.spark.mirror_planning import WindowPlanner, plan_once
from shoal.spark.slots import slots_of
from shoal.spark.speculation import refuse_speculation
from shoal.state_directory import state_dir

__all__ = ["SparkEngine", "our_errors"]

#: The time for the tasks of a failed job to end. While they copy, a new job must not start.
_END_PATIENCE_S = 30.0

#: The interval at which the main thread handles signals, and looks for a stop.
_LOOK_INTERVAL_S = 0.1


class SparkEngine:
    """
    Starts a Spark session, or uses the one that this process has, and runs a mirror's tasks on it.

    Implements :class:`shoal.mirroring.driver.engine.Engine`.

    """

    def __init__(self, options: MirrorOptions, on_warning: Callable[[str], object]) -> None:
        """
        Prepare the engine; nothing starts.

        Args:
            on_warning: A function that receives warnings about Spark.

        """
        self._options = options
        self._on_warning = on_warning
        self._is_locked = bool(Credentials.of(options.source, options.destination))
        self._cpu_before = _cpu_seconds()
        self._context: SparkContext
        self._key: str | Path = ""
        self._resources = contextlib.ExitStack()
        self._abort = Abort()
        self._warm_up: threading.Thread | None = None

    @property
    def listening_host(self) -> str:
        """This machine alone if all of Spark runs here, else the address that Spark's driver listens on."""
        if is_on_this_machine(self._options.master):
            return "127.0.0.1"
        # As Spark itself does. The token and the limits of control/server.py protect the port.
        return dict(self._options.conf).get("spark.driver.bindAddress", "0.0.0.0")  # noqa: S104

    def start(self, directory: Path) -> Path:
        """Start Spark, and check that it is safe; see :meth:`.Engine.start`."""
        self._log_file = directory / "spark.log"
        is_ours = SparkContext._active_spark_context is None
        self._context = spark_context(
            self._options.master,
            dict(self._options.conf),
            self._log_file,
            state_dir(),
            daemon="shoal.spark.launch.daemon",
            on_warning=self._on_warning,
            overlapping=not self._options.once,
            abort=self._abort,
        )
        with contextlib.ExitStack() as resources:
            if is_ours:
                resources.callback(self._context.stop)
            with self._our_errors():
                refuse_speculation(self._context)
                if self._is_locked:
                    if not self._options.allow_unauthenticated_spark:
                        refuse_unauthenticated(self._context)
                    self._key = resources.enter_context(key_for_tasks(self._context, directory))
            self._resources = resources.pop_all()
        if is_ours and is_on_this_machine(self._options.master):
            self._warm_up = threading.Thread(target=self.run_nothing, name="shoal-warm-up", daemon=True)
            self._warm_up.start()
        return self._log_file

    def run_nothing(self) -> None:
        """
        Run a task that does nothing: its classes, the daemon and a worker are there for the first job.

        A stock broker delays the first job, since a new group is joined after 3 s. Without that delay the
        first job runs beside this one, and waits for the same daemon.

        """
        # The first job has the same error, unless the mirror has just been stopped.
        with contextlib.suppress(Exception):
            self._context.parallelize((0,), 1).mapPartitions(list).collect()

    def run(self, job: CopyJob, stop: threading.Event) -> None:
        """Run one job, or one for each window; see :meth:`.Engine.run`."""
        with self._our_errors(), _Jobs(self._context, self._task(job), job, stop) as jobs:
            if job.options.once:
                self._run_once(job, jobs)
            else:
                self._run_windows(job, jobs, stop)

    def _our_errors(self) -> contextlib.AbstractContextManager[None]:
        return our_errors(self._log_file)

    def cpu_used(self) -> tuple[float, float]:
        """Return the CPU seconds of our Python processes and of Spark's JVMs since this object was made."""
        python_s, jvm_s = _cpu_seconds()
        return python_s - self._cpu_before[0], jvm_s - self._cpu_before[1]

    def stop(self) -> None:
        """Delete the key of the tasks, and stop Spark if :meth:`start` started it."""
        self._abort.request()
        self._resources.close()
        if self._warm_up is not None:
            self._warm_up.join(self._options.timing.job_end_patience_s)  # it ends with Spark

    def _run_once(self, job: CopyJob, jobs: _Jobs) -> None:
        """Copy up to the present end offsets. Return when every task has ended."""
        if tasks := plan_once(job, self._context.defaultParallelism):
            jobs.finish(jobs.begin(tasks))

    def _run_windows(self, job: CopyJob, jobs: _Jobs, stop: threading.Event) -> None:
        """
        Copy in windows until ``stop`` is set and the current window has ended.

        The tasks of the next window start before those of the current one end, if Spark has slots for both.
        If a job fails for Spark's own reasons, for example because its processes were killed, another one is
        started. None is if the first had just been started, or if its tasks continue without it.
        """
        sound_since = time.monotonic()
        following: _Job | None = None
        with contextlib.closing(WindowPlanner(job, self._context.defaultParallelism)) as planner:
            while current := following or jobs.begin_unless_empty(planner.next_tasks(stop)):
                following = None
                try:
                    following = jobs.finish_window(current, planner)
                except (PySparkException, Py4JError) as error:
                    text = _text_of(error)
                    is_old = time.monotonic() - sound_since >= job.options.timing.sound_s
                    is_sound = is_old and not _our_sentences(text)
                    if stop.is_set() or not is_sound or not job.control.wait_until_idle(_END_PATIENCE_S):
                        raise
                    sound_since = time.monotonic()
                    self._on_warning(
                        f"Spark failed and was started again: {_first_line(text)}. See {self._log_file}"
                    )

    def _task(self, job: CopyJob) -> CopyTask:
        options = job.options
        settings = CopySettings.of(
            options.copy,
            options.source,
            options.destination,
            job.prepared.group,
            producer_id_expiration_ms=job.prepared.producer_id_expiration_ms,
            max_decompressed_bytes=job.prepared.max_decompressed_bytes,
            first_start=job.first_start,
            tries_again=not options.once,
            prefixes=tuple(prefixes_of(options.topics).items()),
            timing=options.timing,
        )
        host, port = job.control.address
        if not is_on_this_machine(options.master):
            host = driver_host(self._context)
        return CopyTask.of(
            settings, ControlAddress(host, port, job.control.token, self._is_locked, self._key)
        )


@dataclass(frozen=True, slots=True)
class _Job:
    """
    A Spark job, as of its start.

    Attributes:
        window: The number of its window; 0 without windows.
        tasks: The number of its tasks.
        outcome: Done when the job has ended.

    """

    window: int
    tasks: int
    outcome: Future[None]

    def is_over(self, timeout_s: float) -> bool:
        """Wait for the end of the job; return False after a timeout."""
        return bool(wait([self.outcome], timeout_s).done)


class _Jobs:
    """
    The Spark jobs of one mirror, each in a thread of its own, so that the main thread handles signals.

    A window's job and its successor may run at a time. A context manager: at its end no job runs.

    """

    def __init__(self, context: SparkContext, task: CopyTask, job: CopyJob, stop: threading.Event) -> None:
        self._context = context
        self._task = task
        self._control = job.control
        self._timing = job.options.timing
        self._stop = stop
        self._group = f"shoal {job.prepared.group}"
        # The threads stay: PySpark keeps a thread of the JVM for each thread of ours.
        self._threads = ThreadPoolExecutor(2, "shoal-job")

    def begin(self, tasks: Sequence[Sequence[CopyRange]]) -> _Job:
        """Start a job with one task for each list of ranges, which were planned last."""
        window = self._control.planned_window
        task = dataclasses.replace(self._task, window=window)
        return _Job(window, len(tasks), self._threads.submit(self._run, tasks, task))

    def begin_unless_empty(self, tasks: Sequence[Sequence[CopyRange]]) -> _Job | None:
        """Start a job; return None if it would have no task."""
        return self.begin(tasks) if tasks else None

    def _run(self, tasks: Sequence[Sequence[CopyRange]], task: CopyTask) -> None:
        self._context.setJobGroup(self._group, "copy")
        self._context.parallelize(tasks, len(tasks)).mapPartitions(task).collect()

    def finish_window(self, job: _Job, planner: WindowPlanner) -> _Job | None:
        """
        Wait for the end of a window's job, and start the next one's before; return that one if it continues.

        Raises:
            PySparkException: The job failed. No job runs any more.
            Py4JError: The job failed, or the JVM did.

        """
        following, was_due = None, False
        while not job.is_over(_LOOK_INTERVAL_S) and not self._stop.is_set():
            is_due = self._task.can_overlap and self._control.is_next_due
            if following is not None and following.is_over(0.0):
                # Its job failed, or the driver dismissed it: the next window is planned after this one.
                self._control.dismiss_next()
                following = None
            if following is None and is_due and not was_due:
                following = self._begin_ahead(job, planner)
            was_due = is_due
        try:
            self.finish(job)
        except (PySparkException, Py4JError):
            self._give_up(following)
            raise
        if following is None:
            return None
        if not self._control.follow(job.window, following.window):
            self._give_up(following)
            return None
        return following

    def _begin_ahead(self, job: _Job, planner: WindowPlanner) -> _Job | None:
        """Start the job of the next window if all of its tasks can run beside those of the current one."""
        free = slots_of(self._context) - job.tasks
        if free <= 0:
            return None
        tasks = planner.tasks_ahead()
        if len(tasks) > free:
            self._control.dismiss_next()
            return None
        if tasks:
            self._control.await_next(len(tasks))
        return self.begin_unless_empty(tasks)

    def _give_up(self, job: _Job | None) -> None:
        """End the job of a window that does not begin; its tasks find that they have no partition."""
        if job is None:
            return
        self._control.dismiss_next()
        # Why it failed, if it did, does not matter: the window is planned again.
        with contextlib.suppress(PySparkException, Py4JError):
            self.finish(job)

    def finish(self, job: _Job) -> None:
        """
        Wait for the end of a job; after a stop, end it.

        Raises:
            PySparkException: The job failed.
            Py4JError: The job failed, or the JVM did.

        """
        while not job.is_over(_LOOK_INTERVAL_S) and not self._stop.is_set():
            pass
        if not job.outcome.done():
            self._control.request_stop()
            self._control.wait_until_idle(_END_PATIENCE_S)
            if not job.is_over(self._timing.job_end_patience_s):
                # Its tasks have no core to run on, or do not end.
                self._context.cancelJobGroup(self._group)
                return
        job.outcome.result()

    def __enter__(self) -> _Jobs:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._threads.shutdown(wait=False)


_OUR_ERROR = re.compile(r"shoal\.errors\.\w+: (.*)")


@contextlib.contextmanager
def our_errors(log_file: Path) -> Iterator[None]:
    """
    Turn Spark's errors into shoal's; keep the message of a task's own error.

    Args:
        log_file: The file that the message names if the error is Spark's own.

    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = _text_of(error)
        sentences = _our_sentences(text)
        raise ShoalError(
            sentences[-1] if sentences else f"Spark failed: {_first_line(text)}. See {log_file}"
        ) from error


def _our_sentences(text: str) -> list[str]:
    """Return the messages of shoal's own errors in the traceback that Spark made of them."""
    return [each.strip() for each in _OUR_ERROR.findall(text)]


def _text_of(error: Exception) -> str:
    """Return the message of Spark's error, with the traceback of the task that failed."""
    try:
        text = str(error)
    except Py4JError:  # the JVM is gone, and had the message
        text = "its JVM is gone"
    # "An error occurred while calling z:org.apache.spark…", and then Java's class and message
    return text.partition("\n: ")[2] or text if isinstance(error, Py4JJavaError) else text


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _cpu_seconds() -> tuple[float, float]:
    """
    Return the CPU seconds of our Python processes and of Spark's JVM on this machine.

    A process that has ended counts with the parent that waited for it.

    """
    own = psutil.Process()
    python_s = _seconds(own, with_children=False)
    jvm_s = 0.0
    for child in own.children():
        with contextlib.suppress(psutil.Error):
            if child.name() == "java":
                jvm_s += _seconds(child, with_children=False)
                times = child.cpu_times()
                python_s += times.children_user + times.children_system
                for each in child.children(recursive=True):
                    if each.name() == "java":  # an executor of a local cluster
                        jvm_s += _seconds(each, with_children=False)
                    else:
                        python_s += _seconds(each, with_children=True)
    return python_s, jvm_s


def _seconds(process: psutil.Process, *, with_children: bool) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    own = times.user + times.system
    return float(own + times.children_user + times.children_system if with_children else own)
