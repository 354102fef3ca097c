"""The one place that starts ``shoal`` as a process, as an operator runs it: any verb, or another program.

    with Shoal("mirror", "--json", *options, state=directory) as mirror:
        mirror.wait_for(lambda report: report.get("records", 0) == 1_000)
        mirror.send_signal(signal.SIGTERM)
        summary = mirror.wait()
    assert mirror.exit_code == 0, mirror.stderr

Output goes to files and not to pipes: a process that outlives its killed parent keeps a pipe open.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from rig.process import spawn
from rig.wait import TimedOut, wait_until

__all__ = [
    "BROKER",
    "DEMO",
    "SHOAL",
    "Shoal",
    "installed_in",
    "is_python_worker",
    "run_shoal",
    "run_until_closed",
    "serve_broker",
    "serve_gateway",
    "shoal_command",
    "state_in",
]

#: The arguments of Python that select a program: the embedded broker, and the command itself.
BROKER = ("-m", "shoal_broker")
SHOAL = ("-m", "shoal")

#: The command line of ``shoal-demo``.
DEMO = (sys.executable, "-c", "import sys; from shoal_broker.cli.demo import main; sys.exit(main())")

_Found = TypeVar("_Found")

#: PySpark's daemon, and that of a mirror on one machine. A worker is forked, so its command line is the same.
_DAEMONS = ("pyspark.daemon", "shoal.spark.launch.daemon")


def shoal_command(*arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command line of ``shoal`` with these arguments."""
    return [python, *SHOAL, *arguments]


def installed_in(directory: Path) -> tuple[Path]:
    """Return the command line of the ``shoal`` that an installer has put into a directory."""
    return (directory / "shoal",)


def state_in(directory: Path) -> dict[str, str]:
    """Return the variables of a process with this state directory."""
    return {"XDG_STATE_HOME": str(directory)}


def run_shoal(
    *arguments: str,
    state: Path | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    program: Sequence[str | Path] = (sys.executable, *SHOAL),
    timeout_s: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Run ``shoal`` to its end; it is killed if it does not end in time.

    Args:
        state: State directory; None for the user's own.
        environment: Variables added to this process's own.
        directory: Working directory; None for this process's own.
        program: The command line before the arguments, of another installation.
    """
    return subprocess.run(
        [*program, *arguments],
        env={**os.environ, **(state_in(state) if state else {}), **(environment or {})},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run_until_closed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``shoal`` to its end, and close its stdout behind the first line; the result has only stderr."""
    command, pipe = shoal_command(*arguments), subprocess.PIPE  # only a pipe can be closed
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    return subprocess.CompletedProcess(command, process.returncode, stderr=errors)


def serve_broker() -> AbstractContextManager[Shoal]:
    """Run an embedded broker, and require a clean end."""
    return Shoal("--listen", "127.0.0.1:0", program=BROKER).serving()


def serve_gateway(upstream: str, *options: str) -> AbstractContextManager[Shoal]:
    """Run a gateway before a cluster, and require a clean end."""
    return Shoal("gateway", "--listen", "127.0.0.1:0", "--upstream", upstream, *options).serving()


class Shoal:
    """A running ``shoal``; killed at the end of the ``with`` block if it still runs.

    Attributes:
        address: Of a server, after `await_address`; empty before.
        errors: The file of its stderr.
    """

    def __init__(
        self,
        *arguments: str,
        state: Path | None = None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        program: Sequence[str] = SHOAL,
        python: str = sys.executable,
    ) -> None:
        """Start a process.

        Args:
            arguments: Arguments of the program.
            state: State directory; None for the user's own.
            environment: Variables added to this process's own.
            log: A path without suffix: its output goes to ``.out`` and ``.err``, which remain. None for
                files that the end of the block deletes.
            program: Arguments of Python that select the program.
            python: The interpreter.
        """
        self._room = None if log else tempfile.TemporaryDirectory(prefix="rig-shoal-")
        log = log or Path(self._room.name if self._room else "") / "log"
        self.errors = log.with_suffix(".err")
        self._output, self._errors = _Text(log.with_suffix(".out")), _Text(self.errors)
        self._objects: list[dict[str, Any]] = []
        self.address = ""
        self._process = spawn(
            [python, *program, *arguments],
            self._output.path,
            {**(state_in(state) if state else {}), **(environment or {})},
            errors=self.errors,
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def stdout(self) -> str:
        return self._output.all()

    @property
    def stderr(self) -> str:
        return self._errors.all()

    def objects(self) -> list[dict[str, Any]]:
        """Return the JSON objects that it has printed, one on each line; other lines are left out."""
        for line in self._output.new_lines():
            try:
                found = json.loads(line)
            except ValueError:  # text for people, or a line that a kill cut off
                continue
            if isinstance(found, dict):
                self._objects.append(found)
        return self._objects

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 240) -> dict[str, Any]:
        """Wait for a JSON object that fulfils a condition, the last one or a later one, and return it."""
        begin = max(0, len(self.objects()) - 1)

        def find() -> dict[str, Any] | None:
            nonlocal begin
            objects = self.objects()[begin:]  # each of them: several may come between two looks
            begin += len(objects)
            return next((each for each in objects if condition(each)), None)

        return self._await(find, timeout_s)

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """Wait for a line of stdout or stderr that contains a regular expression, and return its match."""
        return self._await(lambda: re.search(pattern, f"{self.stdout}\n{self.stderr}"), 120)

    def _await(self, find: Callable[[], _Found | None], timeout_s: float) -> _Found:
        found: _Found | None = None

        def is_over() -> bool:
            nonlocal found
            has_ended = self.exit_code is not None
            found = find()  # after the look at its end, so that the last line counts
            return found is not None or has_ended

        try:
            wait_until(is_over, "a line of its output", timeout_s)
        except TimedOut as error:
            raise AssertionError(f"{error}; {self._last_words()}") from error
        if found is None:
            raise AssertionError(f"ended with {self.exit_code} before that; {self._last_words()}")
        return found

    def _last_words(self) -> str:
        return f"its output ends with {self.stdout[-2000:]!r}, its errors with {self.stderr[-5000:]!r}"

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it by SIGKILL; its children live on until they notice."""
        self._process.kill()
        self._process.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop it by SIGSTOP within the block."""
        self.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float = 240) -> dict[str, Any]:
        """Wait for the end; return the last JSON object, a mirror's summary, or an empty one.

        Raises:
            subprocess.TimeoutExpired: The process still runs.
        """
        self._process.wait(timeout_s)
        return (self.objects() or [{}])[-1]

    def children(self) -> list[psutil.Process]:
        """Return all its descendants; none after its end."""
        try:
            return list(psutil.Process(self.process_id).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def await_address(self) -> str:
        """Wait until a server listens, and return its address for clients."""
        self.address = self.wait_for_line(r"listening on (\S+:\d+)")[1]
        return self.address

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Wait until a server listens; stop it at the end of the block, and require a clean end."""
        with self:
            self.await_address()
            yield self
            assert self.exit_code is None, f"ended with {self.exit_code}; {self._last_words()}"
            self.send_signal(signal.SIGTERM)
            self.wait()
        assert self.exit_code == 0, f"ended with {self.exit_code}; {self._last_words()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self.objects()
        for text in (self._output, self._errors):
            text.keep()
        if self._room is not None:
            self._room.cleanup()


class _Text:
    """The file of an output."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(b"")  # an earlier process of the same log is over
        self._kept: str | None = None
        self._begin = 0

    def all(self) -> str:
        return self.path.read_text(errors="replace") if self._kept is None else self._kept

    def new_lines(self) -> list[bytes]:
        """Return the whole lines since the last call."""
        if self._kept is not None:
            return []
        with self.path.open("rb") as file:
            file.seek(self._begin)
            lines = [line for line in file if line.endswith(b"\n")]
        self._begin += sum(map(len, lines))
        return lines

    def keep(self) -> None:
        """Read the file for the last time."""
        self._kept = self.all()


def is_python_worker(process: psutil.Process) -> bool:
    """Whether the process runs Spark's Python tasks: a child of a daemon of workers."""
    try:
        parent = process.parent()
        return parent is not None and _is_of_daemon(process) and _is_of_daemon(parent)
    except psutil.Error:
        return False


def _is_of_daemon(process: psutil.Process) -> bool:
    return any(daemon in process.cmdline() for daemon in _DAEMONS)
