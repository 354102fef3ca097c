"""
Spark as the engine of a mirror: rows by reference, from one ``format("shoal")`` to another.

Everything here runs on the driver, in the user's process. ``once`` is one batch job. A mirror without an end
is one streaming query, whose micro-batches are copy windows (:mod:`.window_reader`). Spark moves only
references of partitions and offsets; tasks copy the batches (:mod:`.sink`).
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from py4j.protocol import Py4JError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shoal.client.config import ClientConfig
from shoal.client.offsets import EARLIEST, LATEST
from shoal.errors import ShoalError
from shoal.mirroring.credentials import Credentials
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.options import MirrorOptions, Start
from shoal.spark.authentication import key_for_tasks, refuse_unauthenticated
from shoal.spark.connections import is_on_this_machine
from shoal.spark.datasource import keyed_data_source
from shoal.spark.launch.session import driver_host, spark_session
from shoal.spark.options import ControlAddress
from shoal.spark.speculation import refuse_speculation
from shoal.state_directory import state_dir

__all__ = ["SparkEngine"]

#: The time for the tasks of a failed query to end. While they copy, a new query must not start.
_END_PATIENCE_S = 30.0

#: The interval between two checks for a query's failure. Each check is a call of the JVM.
_QUERY_LOOK_INTERVAL_S = 1.0

_ANY_TOPIC = {"subscribePattern": ".*"}

#: The minimum run time of a query that is started again. An error of the configuration ends it sooner.
_SOUND_S = 60.0


class SparkEngine:
    """
    Starts a Spark session, or uses the one that this process has, and runs a mirror's tasks on it.

    Implements :class:`shoal.mirroring.driver.engine.Engine`.

    """

    def __init__(self, options: MirrorOptions, on_warning: Callable[[str], object]) -> None:
        """
        Prepare the engine; nothing starts.

        Args:
            options: The options of the mirror.
            on_warning: A function that receives warnings about Spark.

        """
        self._options = options
        self._on_warning = on_warning
        self._is_locked = bool(Credentials.of(options.source, options.destination))
        self._cpu_before = _cpu_seconds()
        self._spark: SparkSession
        self._resources = contextlib.ExitStack()

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
        self._checkpoint = directory / "spark"
        is_ours = SparkContext._active_spark_context is None
        self._spark = spark_session(
            self._options.master,
            dict(self._options.conf),
            self._log_file,
            state_dir(),
            on_warning=self._on_warning,
        )
        with contextlib.ExitStack() as resources:
            if is_ours:
                resources.callback(self._spark.stop)
            with self._our_errors():
                refuse_speculation(self._spark)
                key: str | Path = ""
                if self._is_locked:
                    if not self._options.allow_unauthenticated_spark:
                        refuse_unauthenticated(self._spark)
                    key = resources.enter_context(key_for_tasks(self._spark, directory))
                self._spark.dataSource.register(keyed_data_source(key))
            self._resources = resources.pop_all()
        return self._log_file

    def run(self, job: CopyJob, stop: threading.Event) -> None:
        """Run a batch job, or a streaming query; see :meth:`.Engine.run`."""
        with self._our_errors():
            if job.options.once:
                self._run_batch(job)
            else:
                self._run_stream(job, stop)

    @contextlib.contextmanager
    def _our_errors(self) -> Iterator[None]:
        """Turn Spark's errors into shoal's; keep the message of a task's or planner's own error."""
        try:
            yield
        except (PySparkException, Py4JError) as error:
            sentences = _our_sentences(error)
            raise ShoalError(
                sentences[-1] if sentences else f"Spark failed: {_first_line(error)}; see {self._log_file}"
            ) from error

    def cpu_used(self) -> tuple[float, float]:
        """Return the CPU seconds of our Python processes and of Spark's JVMs since this object was made."""
        python_s, jvm_s = _cpu_seconds()
        return python_s - self._cpu_before[0], jvm_s - self._cpu_before[1]

    def stop(self) -> None:
        """Delete the key of the tasks, and stop Spark if :meth:`start` started it."""
        self._resources.close()

    def _run_batch(self, job: CopyJob) -> None:
        """Copy up to the present end offsets. Return when every task has ended."""
        if all(topic.deleted for topic in job.prepared.topics.values()):
            return
        control = self._control(job)
        rows = self._spark.read.format("shoal").options(**self._read_options(job, control)).load()
        rows.write.format("shoal").mode("append").options(**self._write_options(job, control)).save()

    def _run_stream(self, job: CopyJob, stop: threading.Event) -> None:
        """
        Copy in windows until ``stop`` is set and the current window has ended.

        If a query fails for Spark's own reasons, for example because one of its processes was killed, it is
        started again. It is not if it had just been started, or if its tasks continue without it.
        """
        control = self._control(job)
        rows = self._spark.readStream.format("shoal").options(**self._read_options(job, control)).load()
        writer = rows.writeStream.format("shoal").options(**self._write_options(job, control))
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        while True:
            started_at = time.monotonic()
            error = _run_query(writer.start(), job, stop)
            if error is None:
                return
            is_sound = time.monotonic() - started_at >= _SOUND_S and not _our_sentences(error)
            if stop.is_set() or not is_sound or not job.control.wait_until_idle(_END_PATIENCE_S):
                raise error
            self._on_warning(
                f"Spark failed and was started again: {_first_line(error)}; see {self._log_file}"
            )

    def _read_options(self, job: CopyJob, control: str) -> dict[str, str]:
        options = job.options
        # The other partitions have a position. If a partition's leader did not respond at the first start,
        # the partition must not skip records.
        is_settled = options.start.timestamp_ms == LATEST and not job.is_first_start
        start = Start(EARLIEST) if is_settled else options.start
        topics = [name for name, topic in job.prepared.topics.items() if topic.deleted is None]
        return {
            **_prefixed("kafka.", options.source),
            **_prefixed("destination.kafka.", options.destination),
            # A mirror that shares its group learns its topics from the group.
            **({"subscribe": ",".join(topics)} if topics else _ANY_TOPIC),
            **_rename(options),
            "takesOverOffsets": str(options.copy.takes_over_offsets).lower(),
            "startingTimestamp" if start.timestamp_ms >= 0 else "startingOffsets": str(start),
            "group": job.prepared.group,
            "minPartitions": str(self._spark.sparkContext.defaultParallelism),
            "control": control,
        }

    def _write_options(self, job: CopyJob, control: str) -> dict[str, str]:
        options = job.options
        settings = CopySettings.of(
            options.copy,
            options.source,
            options.destination,
            job.prepared.group,
            producer_id_expiration_ms=job.prepared.producer_id_expiration_ms,
            first_start=job.first_start,
        )
        return {
            **_prefixed("kafka.", options.destination),
            **_prefixed("source.kafka.", options.source),
            **_rename(options),
            "copy": settings.to_json(),
            "control": control,
        }

    def _control(self, job: CopyJob) -> str:
        host, port = job.control.address
        if not is_on_this_machine(job.options.master):
            host = driver_host(self._spark)
        return str(ControlAddress(host, port, job.control.token, self._is_locked))


def _run_query(query: StreamingQuery, job: CopyJob, stop: threading.Event) -> StreamingQueryException | None:
    """Wait until the query has ended, or end it once ``stop`` is set; return its error if it failed."""
    while query.isActive and not stop.wait(_QUERY_LOOK_INTERVAL_S):
        pass
    if stop.is_set():
        job.control.request_stop()
        # The tasks end now, and the source plans no new window. A query without an active trigger has no
        # tasks.
        while query.isActive and query.status["isTriggerActive"]:
            time.sleep(0.05)
    error = query.exception()
    query.stop()
    return error


def _prefixed(prefix: str, config: ClientConfig) -> dict[str, str]:
    return {prefix + key: value for key, value in config.to_properties().items()}


def _rename(options: MirrorOptions) -> dict[str, str]:
    return {"rename": options.topics.rename} if options.topics.rename else {}


_OUR_ERROR = re.compile(r"shoal\.errors\.\w+: (.*)")


def _our_sentences(error: Exception) -> list[str]:
    """Return the messages of shoal's own errors in the traceback that Spark made of them."""
    return [each.strip() for each in _OUR_ERROR.findall(str(error))]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


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
