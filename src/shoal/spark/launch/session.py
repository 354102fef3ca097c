"""Start Spark, cheaply and silently, by PySpark's own launcher.

A plain ``SparkSession.builder.getOrCreate()`` uses 11 CPU-seconds up to its first Python task (on 2 cores,
with PySpark 4.3 and Java 17). With the settings of this module it is about 5:

1. **Python starts in 0.25 s instead of 1.05.** Spark puts ``pyspark.zip`` first on the path of its Python
   processes, and each process compiles every module that it imports from the zip file. A SPARK_HOME of
   symbolic links with an empty ``python/lib`` has no zip file, so the processes import the driver's PySpark.
2. **Workers are forked from a daemon** that has shoal's modules (:mod:`shoal.spark.launch.daemon`).
3. **The JVM compiles only quickly** (``-XX:TieredStopAtLevel=1``), since it only starts and then sends
   references.
4. **Large jars are first on the class path**: the JVM searches the jars for a class one after the other, and
   ``jars/*`` has 280 jars in no order.

**The heap stays small**, with the serial collector and a young generation of fixed size. In that JVM, a
service that has run for months has about 60 MB. After 250 jobs, the JVM had used 424 MB in all and 21
CPU-seconds. With G1, it had used 475 MB and 23 CPU-seconds, and grew further towards its limit: G1 sizes the
heap for short pauses, which do not matter here.

Everything here runs on the driver.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from ...errors import ConfigError, ShoalError, Stopped
from ...state_directory import make_state_directory
from ..trust import is_on_this_machine
from .java import OLDEST_JAVA, find_java
from .jvm import Abort, conf_dir, during, slim_java, start_jvm, using_state_directory

__all__ = ["driver_host", "spark_context", "spark_session"]

_DEFAULTS = {
    "spark.app.name": "shoal",
    # The JVM has only references, so 512 MB is ample. Spark itself refuses less than 450.
    "spark.driver.memory": "512m",
    # The old generation begins with 64 MB, so that a collection comes before a mirror's garbage is larger.
    # The classes that a first start loads stay below the mark of Metaspace, which would cause collections.
    "spark.driver.defaultJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms160m -Xmn96m -XX:MetaspaceSize=64m"
    ),
    "spark.ui.enabled": "false",
    # Spark would draw the progress bar into the log file.
    "spark.ui.showConsoleProgress": "false",
}

_LOCAL_DEFAULTS = {
    # All of Spark is on this machine, and other machines must not be able to connect. With this address,
    # Spark also starts if the machine's own name does not resolve (laptops, containers, build machines).
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}

_AUTHENTICATED = {
    # Any user of this machine can connect to the ports of the driver and of its executors. Without
    # authentication, these ports serve the pickled tasks, and deserialize any data that they receive.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}

#: The number of jars that are first on the class path. They have most of the classes that a start loads.
_FIRST_JARS = 20

#: Of Spark's own launcher, which lives for a tenth of a second.
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_EXECUTORS_PATIENCE_S = 30.0

_EXECUTORS_SETTLE_S = 1.5
"""On an idle machine 0.3 s lie between two executors that were started together."""

_EXECUTORS_LOOK_S = 0.1


def spark_session(master: str, conf: Mapping[str, str], log_file: Path, state_dir: Path) -> SparkSession:
    """Start Spark with SQL as :func:`spark_context` does without, for ``format("shoal")``."""
    return SparkSession(spark_context(master, conf, log_file, state_dir))


def spark_context(
    master: str,
    conf: Mapping[str, str],
    log_file: Path,
    state_dir: Path,
    *,
    daemon: str | None = None,
    on_warning: Callable[[str], object] = lambda _: None,
    abort: Abort | None = None,
) -> SparkContext:
    """
    Start Spark, or return the context that this process already has.

    Spark never writes to stdout or stderr. The JVM and all Python workers on this machine write to
    ``log_file``.

    A process has one Spark. If it already runs, as in a notebook, this function returns its context, and the
    arguments have no effect. If you must not stop such a context, look at
    ``SparkContext._active_spark_context`` first. After a context has stopped, its JVM stays with the process,
    with its heap, Java options and log file.

    The call installs PySpark's own SIGINT handler. Install yours after it.

    Args:
        master: A Spark master. ``local``, ``local[N]`` and ``local[*]`` become ``local[…,4]``, so that
            Spark repeats the task of a Python worker that was killed.
        conf: ``spark.*`` settings, which take precedence over every default. They must have no secrets, since
            Spark shows settings in its UI and logs.
        log_file: The file to append the output to. A missing directory is created.
        state_dir: The directory of files that make the next start cheaper.
        daemon: The module of the daemon that forks Python workers, on this machine alone: on a cluster, the
            executors' Python may not have it. None for PySpark's.
        on_warning: A function that is called if ``JAVA_HOME`` cannot be used, and another Java is.
        abort: Ends the start of a new JVM, and of Spark in it.

    Raises:
        ConfigError: No Java, an invalid master or setting, or a directory that cannot be used.
        Stopped: The start was aborted.
        ShoalError: Spark's JVM died. This error and ConfigError name the log file if it has details.

    """
    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    _check(conf)
    master = retrying(master)
    local = is_on_this_machine(master)
    environ = _environment(local, conf, state_dir)
    settings = {**_defaults(local, daemon, environ), **conf, "spark.master": master}
    if local:
        settings = {**authentication_settings(settings), **settings}
    abort = abort or Abort()
    try:
        return _start(settings, environ, log_file, state_dir, on_warning, abort)
    except Exception as error:
        if abort.requested:
            raise Stopped("the start of Spark was aborted") from error
        raise


def _start(
    settings: Mapping[str, str],
    environ: dict[str, str],
    log_file: Path,
    state_dir: Path,
    on_warning: Callable[[str], object],
    abort: Abort,
) -> SparkContext:
    with contextlib.ExitStack() as started:
        gateway = None
        if SparkContext._gateway is None:
            java = find_java(environ)
            if java.instead_of is not None:
                on_warning(
                    f"{java.instead_of}, so Spark runs on Java {java.version} in {java.home}. "
                    f"Set JAVA_HOME to a Java {OLDEST_JAVA} or newer, or unset it"
                )
            environ["JAVA_HOME"] = str(slim_java(java.executable, state_dir.resolve()))
            gateway = started.enter_context(start_jvm(settings, environ, log_file, abort))
        started.enter_context(during(PYSPARK_PYTHON=environ["PYSPARK_PYTHON"]))
        return _context(gateway, settings, log_file)


def driver_host(context: SparkContext) -> str:
    """
    Return the address at which executors reach this machine.

    This is the address of Spark's own driver: ``spark.driver.host``, or the address that Spark found. On many
    machines the machine's own name resolves to another address, 127.0.1.1.
    """
    return str(context.getConf().get("spark.driver.host"))


def retrying(master: str) -> str:
    """
    Return ``master`` with four attempts per task, if it is a local one without a number of attempts.

    If a Python worker is killed, ``local[2]`` fails the query, and ``local[2,4]`` retries within a second.
    """
    match = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*\])?", master.strip())
    return f"local[{match[1] or 1},4]" if match else master


def slim_home(real: Path, state_dir: Path) -> Path:
    """
    Return a SPARK_HOME like ``real``, but with an empty ``python/lib``; create it if it is missing.

    Use it only for masters on this machine. On a cluster, Spark sends ``python/lib`` to the other machines.

    Raises:
        ConfigError: The state directory cannot be written to.

    """
    key = hashlib.sha256(f"{pyspark.__version__} {real}".encode()).hexdigest()[:12]
    home = state_dir / f"spark-{pyspark.__version__}-{key}"
    with using_state_directory(state_dir):
        make_state_directory(state_dir)
        if not home.exists():
            _make_slim_home(real, home)
    return home


def _make_slim_home(real: Path, home: Path) -> None:
    unfinished = Path(tempfile.mkdtemp(dir=home.parent, prefix="unfinished-"))
    try:
        make_state_directory(unfinished / "python" / "lib")
        for name in ("bin", "conf", "jars", "sbin"):
            if (real / name).exists():
                (unfinished / name).symlink_to(real / name)
        unfinished.rename(home)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        # Another process may have created the same home meanwhile.
        if not home.exists():
            raise


def _check(conf: Mapping[str, str]) -> None:
    for name in conf:
        if not name.startswith("spark."):
            raise ConfigError(f"invalid Spark setting {name!r}: the name must begin with 'spark.'")


def _environment(local: bool, conf: Mapping[str, str], state_dir: Path) -> dict[str, str]:
    """Return the environment of the JVM and of the Python workers on this machine."""
    real = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent).resolve()
    home = slim_home(real, state_dir.resolve()) if local else real
    # The driver's interpreter has all packages for local workers; a PYSPARK_PYTHON from a profile may not.
    # On a cluster, only the user knows the interpreters of the other machines.
    python = sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    return {
        **os.environ,
        **({"SPARK_LOCAL_IP": "127.0.0.1"} if local else {}),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": conf.get("spark.pyspark.python", python),
        # glibc has an arena of memory for each thread, and never returns all of it. Over days, a worker would
        # grow to hundreds of megabytes. Python's threads take turns, so they do not need the arenas.
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", _LAUNCHER_OPTIONS),
    }


def _defaults(local: bool, daemon: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return shoal's defaults, updated with the user's ``spark-defaults.conf`` if it exists."""
    try:
        theirs = javaproperties.loads((conf_dir(environ) / "spark-defaults.conf").read_text(encoding="utf-8"))
    except FileNotFoundError:
        theirs = {}
    ours = {**_DEFAULTS, **(_LOCAL_DEFAULTS if local else {})}
    if local and daemon is not None:
        ours["spark.python.daemon.module"] = daemon
    jars = sorted((Path(environ["SPARK_HOME"]) / "jars").glob("*.jar"), key=lambda jar: -jar.stat().st_size)
    ours["spark.driver.extraClassPath"] = ":".join(map(str, jars[:_FIRST_JARS]))
    return {**ours, **theirs}


def authentication_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings that authenticate and encrypt Spark's connections, unless the user disables both."""
    if settings.get("spark.authenticate", "true").strip().lower() != "true":
        # Spark refuses encryption without authentication, and the JVM of a stopped session still has that
        # session's settings.
        return {"spark.network.crypto.enabled": "false"}
    if not settings["spark.master"].startswith("local-cluster"):
        return _AUTHENTICATED  # Spark generates a secret, which stays in its only JVM.
    # Executors receive the secret in their environment, which only their own user can read.
    return {**_AUTHENTICATED, "spark.authenticate.secret": secrets.token_hex(32)}


def _context(gateway: Any, settings: Mapping[str, str], log_file: Path) -> SparkContext:
    """Start Spark in a new JVM, or without a gateway in the JVM of a stopped session."""
    try:
        SparkContext._ensure_initialized(gateway=gateway)
        conf = SparkConf(_jvm=SparkContext._jvm).setAll(list(settings.items()))
        context = SparkContext(conf=conf)
        if not settings["spark.master"].startswith("local["):
            _wait_for_executors(context)
        return context
    except Exception as error:
        reason = _reason(error, settings["spark.master"])
        _abandon(gateway)
        if isinstance(error, Py4JJavaError):
            raise ConfigError(f"Spark does not start: {reason}. See {log_file}") from error
        raise ShoalError(f"Spark does not start: {reason}. See {log_file}") from error
    except BaseException:
        _abandon(gateway)
        raise


def _wait_for_executors(context: SparkContext) -> None:
    """
    Wait for a cluster's executors, which register one by one and late.

    Until then Spark assumes 2 cores, and a mirror would have only 2 tasks to its end. The wait costs nothing,
    since no task can run before. If no executor registers, Spark itself continues to wait, and its log has
    the reason.
    """
    begin = changed_at = time.monotonic()
    cores, known = 0, False
    while (now := time.monotonic()) < begin + _EXECUTORS_PATIENCE_S:
        if (found := context.defaultParallelism) != cores:
            cores, changed_at = found, now
        # The driver counts as one executor.
        known = known or len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1
        if known and now >= changed_at + _EXECUTORS_SETTLE_S:
            return
        time.sleep(_EXECUTORS_LOOK_S)


def _abandon(gateway: Any) -> None:
    """Remove a half-started Spark, so that the next call begins with a new JVM."""
    if gateway is not None:
        SparkContext._gateway = None
        SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.kill()
        gateway.proc.wait()


def _reason(error: Exception, master: str) -> str:
    """Return the first line of an error's message, without the name of Java's exception class."""
    text = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    if "stopped SparkContext" in text:
        # Spark raises this after a minute without a connection to a standalone master.
        return f"the master {master} does not answer, or sent us away"
    return text.strip().partition("\n")[0].rstrip(".") or type(error).__name__
