"""Start Spark, cheaply and silently, by PySpark's own launcher.

A plain ``SparkSession.builder.getOrCreate()`` uses 11 CPU-seconds up to its first Python task (on 2 cores,
with PySpark 4.3 and Java 17). With the settings of this module it is about 6:

1. **Workers are forked from a daemon** that has shoal's modules (:mod:`shoal.spark.launch.daemon`).
2. **The JVM compiles only quickly** (``-XX:TieredStopAtLevel=1``), since it only starts and then sends
   references.

**The heap stays small**, with the serial collector and a young generation of fixed size. In that JVM, a
service that has run for months has about 60 MB. After 250 jobs, the JVM had used 424 MB in all and 21
CPU-seconds. With G1, it had used 475 MB and 23 CPU-seconds, and grew further towards its limit: G1 sizes the
heap for short pauses, which do not matter here.

Everything here runs on the driver.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.core.context import SparkContext

from ...errors import ConfigError, ShoalError, Stopped
from ..trust import is_on_this_machine
from .java import find_java
from .jvm import Abort, conf_dir, during, slim_java, start_jvm

__all__ = ["driver_host", "spark_context"]

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

#: Of Spark's own launcher, which lives for a tenth of a second.
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_context(
    master: str,
    conf: Mapping[str, str],
    log_file: Path,
    state_dir: Path,
    *,
    daemon: str | None = None,
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

    In the main thread, the call installs PySpark's own SIGINT handler. Install yours after it.

    Args:
        master: A Spark master. ``local``, ``local[N]`` and ``local[*]`` become ``local[…,4]``, so that
            Spark repeats the task of a Python worker that was killed.
        conf: ``spark.*`` settings, which take precedence over every default. They must have no secrets, since
            Spark shows settings in its UI and logs.
        log_file: The file to append the output to. A missing directory is created.
        state_dir: The directory of the script that runs Java.
        daemon: The module of the daemon that forks Python workers, on this machine alone: on a cluster, the
            executors' Python may not have it. None for PySpark's.
        abort: Ends the start of a new JVM, and of Spark in it.

    Raises:
        ConfigError: No Java, an invalid master or setting, or a directory that cannot be used.
        Stopped: The start was aborted.
        ShoalError: Spark's JVM died. This error and ConfigError name the log file if it has details.

    """
    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    master = retrying(master)
    local = is_on_this_machine(master)
    environ = _environment(local, conf)
    settings = {**_defaults(local, daemon, environ), **conf, "spark.master": master}
    if local:
        settings = {**authentication_settings(settings), **settings}
    abort = abort or Abort()
    try:
        return start(settings, environ, log_file, state_dir, abort)
    except Exception as error:
        if abort.requested:
            raise Stopped("the start of Spark was aborted") from error
        raise


def start(
    settings: Mapping[str, str],
    environ: dict[str, str],
    log_file: Path,
    state_dir: Path,
    abort: Abort,
) -> SparkContext:
    with contextlib.ExitStack() as started:
        gateway = None
        if SparkContext._gateway is None:
            java = find_java(environ).executable
            environ["JAVA_HOME"] = str(slim_java(java, state_dir.resolve()))
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


def _environment(local: bool, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the JVM and of the Python workers on this machine."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent).resolve()
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
        return SparkContext(conf=conf)
    except Exception as error:
        reason = _reason(error, settings["spark.master"])
        _abandon(gateway)
        if isinstance(error, Py4JJavaError):
            raise ConfigError(f"Spark does not start: {reason}. See {log_file}") from error
        raise ShoalError(f"Spark does not start: {reason}. See {log_file}") from error
    except BaseException:
        _abandon(gateway)
        raise


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
