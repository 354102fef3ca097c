"""
Spark as the engine of a mirror: one job with long tasks, which the driver assigns partitions to.

Everything here runs on the driver, in the user's process. Spark runs tasks, and knows no partition: they
connect to the control server, which sends each its document (:mod:`.copy_task`). Another job adds tasks if
more are of use: executors have joined, or there are more partitions.

Spark gives a job up after four failures of one task, however long ago they were. So after the second one
another job begins with as many tasks, and those of the first end one by one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException

from shoal.errors import ShoalError
from shoal.mirroring.driver.engine import END_PATIENCE_S, CopyJob
from shoal.mirroring.model.acls import prefixes_of
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.options import MirrorOptions
from shoal.spark.copy_task import ControlAddress, CopyTask
from shoal.spark.launch.jvm import Abort
from shoal.spark.launch.session import driver_host, spark_context
from shoal.spark.trust import is_on_this_machine, key_for_tasks, refuse_speculation
from shoal.state_directory import state_dir

__all__ = ["SparkEngine", "our_errors"]

#: The interval at which the main thread handles signals, and looks for a stop.
_LOOK_INTERVAL_S = 0.1

#: The number of an attempt, from 0, after which a job is replaced: Spark gives it up after the fourth.
_WORN_ATTEMPT = 2

#: More jobs at a time would each have few tasks.
_MOST_JOBS = 32


class _OwnSpark:
    """The Spark that mirrors of this process have started, as in several threads: the last one stops it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._mirrors = 0

    def use(self, start: Callable[[], SparkContext]) -> tuple[SparkContext, bool]:
        """Return the process's context, started if there is none; and whether :meth:`leave` has to follow."""
        with self._lock:
            present = SparkContext._active_spark_context
            context = start()
            if present is not None and present is not self._context:
                return context, False
            self._context = context
            self._mirrors += 1
            return context, True

    def leave(self) -> None:
        """End the use of a context, and stop it with the last one."""
        with self._lock:
            self._mirrors -= 1
            if self._context is not None and not self._mirrors:
                self._context.stop()
                self._context = None


_OWN_SPARK = _OwnSpark()


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
        #: The process's, if it has one: then the options do not say where tasks run.
        self._session = SparkContext._active_spark_context
        # One that another mirror is just starting has no master yet: it is one for such options.
        self._master = str(getattr(self._session, "master", options.master))
        self._context: SparkContext
        self._key: str | Path = ""
        self._resources = contextlib.ExitStack()
        self._abort = Abort()
        self._warm_up: threading.Thread | None = None

    @property
    def listening_host(self) -> str:
        """This machine alone if all of Spark runs here, else the address that Spark's driver listens on."""
        if self._is_on_this_machine:
            return "127.0.0.1"
        conf = self._options.conf if self._session is None else self._session.getConf().getAll()
        # As Spark itself does. The token and the limits of control/server.py protect the port.
        return dict(conf).get("spark.driver.bindAddress", "0.0.0.0")  # noqa: S104

    @property
    def _is_on_this_machine(self) -> bool:
        return is_on_this_machine(self._master)

    def start(self, directory: Path) -> Path:
        """Start Spark, and check that it is safe; see :meth:`.Engine.start`."""
        self._log_file = directory / "spark.log"
        self._context, is_ours = _OWN_SPARK.use(
            lambda: spark_context(
                self._options.master,
                dict(self._options.conf),
                self._log_file,
                state_dir(),
                daemon="shoal.spark.launch.daemon",
                abort=self._abort,
            )
        )
        with contextlib.ExitStack() as resources:
            if is_ours:
                resources.callback(_OWN_SPARK.leave)
            with self._our_errors():
                refuse_speculation(self._context.getConf().get)
                self._key = resources.enter_context(
                    key_for_tasks(self._context, (self._options.source, self._options.destination), directory)
                )
            self._resources = resources.pop_all()
        if is_ours and self._is_on_this_machine:
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
        """Run tasks until all is copied, or a stop; see :meth:`.Engine.run`."""
        with self._our_errors(), _Jobs(self._context, self._task(job), job, stop) as jobs:
            sound_since = time.monotonic()
            while not stop.is_set() and not job.places.is_done:
                try:
                    jobs.look()
                except (PySparkException, Py4JError) as error:
                    text = _text_of(error)
                    is_old = time.monotonic() - sound_since >= job.options.timing.sound_s
                    if stop.is_set() or not is_old or _our_sentences(text):
                        raise
                    sound_since = time.monotonic()
                    self._on_warning(
                        f"Spark failed and was started again: {_first_line(text)}. See {self._log_file}"
                    )
                stop.wait(_LOOK_INTERVAL_S)
            jobs.finish()

    def _our_errors(self) -> contextlib.AbstractContextManager[None]:
        return our_errors(self._log_file)

    def stop(self) -> None:
        """Delete the key of the tasks, and stop Spark if :meth:`start` started it."""
        self._abort.request()
        self._resources.close()
        if self._warm_up is not None:
            self._warm_up.join(self._options.timing.job_end_patience_s)  # it ends with Spark

    def _task(self, job: CopyJob) -> CopyTask:
        options = job.options
        settings = CopySettings.of(
            options,
            options.source.with_id(job.prepared.source_cluster_id),
            options.destination.with_id(job.prepared.destination_cluster_id),
            job.prepared.group,
            producer_id_expiration_ms=job.prepared.producer_id_expiration_ms,
            max_decompressed_bytes=job.prepared.max_decompressed_bytes,
            first_start=job.first_start,
            tries_again=not options.once,
            prefixes=tuple(prefixes_of(options.topics).items()),
            timing=options.timing,
        )
        host, port = job.control.address
        if not self._is_on_this_machine:
            host = driver_host(self._context)
        return CopyTask.of(settings, ControlAddress(host, port, job.control.token, self._key))


@dataclass(slots=True)
class _Job:
    """
    A Spark job.

    Attributes:
        number: Its number in this run.
        tasks: The number of its tasks.
        outcome: Done when the job has ended.
        began_at: When it was started, on the monotonic clock.
        is_worn: Whether another job has to take its place.

    """

    number: int
    tasks: int
    outcome: Future[None]
    began_at: float
    is_worn: bool = False


class _Jobs:
    """
    The Spark jobs of one mirror, each in a thread of its own, so that the main thread handles signals.

    A context manager: at its end no job begins any more.

    """

    def __init__(self, context: SparkContext, task: CopyTask, job: CopyJob, stop: threading.Event) -> None:
        self._context = context
        self._task = task
        self._control = job.control
        self._places = job.places
        self._timing = job.options.timing
        self._stop = stop
        self._group = f"shoal {job.prepared.group}"
        self._description = _described(job)
        self._jobs: list[_Job] = []
        self._numbers = itertools.count(1)
        self._looked_at = self._ended_at = -math.inf
        # The threads stay: PySpark keeps a thread of the JVM for each thread of ours.
        self._threads = ThreadPoolExecutor(_MOST_JOBS, "shoal-job")

    def look(self) -> None:
        """
        Start the jobs that are needed.

        Raises:
            PySparkException: A job failed.
            Py4JError: A job failed, or the JVM did.

        """
        for job in [each for each in self._jobs if each.outcome.done()]:
            self._jobs.remove(job)
            job.outcome.result()
        now = time.monotonic()
        if now - self._looked_at < self._timing.plan_look_s and self._jobs:
            return
        self._looked_at = now
        self._replace_worn(now)
        running = sum(each.tasks for each in self._jobs if not each.is_worn)
        missing = self._places.tasks_of_use(self._context.defaultParallelism) - running
        if missing > 0 and len(self._jobs) < _MOST_JOBS:
            self._begin(missing, now)

    def _replace_worn(self, now: float) -> None:
        """Have the tasks of a job end one by one that Spark would soon give up."""
        attempts = self._control.attempts
        for job in self._jobs:
            is_worn = attempts.get(job.number, 0) >= _WORN_ATTEMPT
            job.is_worn = job.is_worn or (is_worn and now - job.began_at >= self._timing.sound_s)
            # Each that ends may make room for one of the next job.
            if job.is_worn and now - self._ended_at >= self._timing.end_interval_s and len(self._jobs) > 1:
                self._ended_at = now
                self._control.end_one(job.number)

    def _begin(self, tasks: int, now: float) -> None:
        number = next(self._numbers)
        self._control.expect(tasks)
        task = dataclasses.replace(self._task, job=number)
        self._jobs.append(_Job(number, tasks, self._threads.submit(self._run, tasks, task), now))

    def _run(self, tasks: int, task: CopyTask) -> None:
        self._context.setJobGroup(self._group, self._description)
        self._context.parallelize(range(tasks), tasks).mapPartitions(task).collect()

    def finish(self) -> None:
        """
        Ask all tasks to end, and wait for the ends of their jobs.

        Raises:
            PySparkException: A job failed.
            Py4JError: A job failed, or the JVM did.

        """
        self._control.request_stop()
        self._control.wait_until_idle(END_PATIENCE_S)
        outcomes = [each.outcome for each in self._jobs]
        if wait(outcomes, self._timing.job_end_patience_s).not_done:
            # Its tasks have no core to run on, or do not end.
            self._context.cancelJobGroup(self._group)
            return
        for each in outcomes:
            each.result()

    def __enter__(self) -> _Jobs:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._threads.shutdown(wait=False)


def _described(job: CopyJob) -> str:
    """Return the description of a mirror's jobs in Spark's UI, whose tasks show no progress there."""
    options = job.options
    # The terminal has the port that the system took for port 0.
    served = {"the page": options.ui, "the metrics": options.metrics}
    named = (f"{what} at {address}" for what, address in served.items() if address and address.port)
    where = next(named, "the mirror's terminal")
    return (
        f"shoal mirrors {options.source.servers} to {options.destination.servers} as group "
        f"{job.prepared.group}. Its tasks run as long as the mirror. Look at {where}"
    )


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
