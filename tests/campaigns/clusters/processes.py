"""The mirror as processes to kill: its driver, its JVM and its workers."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import psutil

from rig.shoal import Shoal, is_python_worker
from rig.wait import TimedOut, wait_until

from .movers import Started

__all__ = ["Ended", "MirrorRun", "Part", "end_orphans"]

#: Timeout until there is a JVM, or a Python worker, to kill.
_APPEARS_WITHIN_S = 60


class Part(Enum):
    """A part of a mirror's processes."""

    DRIVER = "driver"
    WORKERS = "Python workers"
    ALL = "all processes"


class Ended(Exception):
    """There is no process (any more) to kill."""


class MirrorRun(Shoal):
    """A mirror of a trial, which writes to two files.

    Attributes:
        killed: Whether the trial is the cause if the process ends without success.
        orphans: Processes that survived the kill of their parent.
    """

    killed = False

    def __init__(
        self,
        mirror: Started,
        log: Path,
        environment: Mapping[str, str] | None = None,
        is_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start a process.

        Args:
            mirror: Its program and its arguments.
            log: A path without suffix; gets ``.out`` and ``.err``.
            environment: Variables over this process's own.
            is_idle: Whether it has copied all, so that no part of it appears any more.
        """
        self._is_idle = is_idle
        self._reading = threading.RLock()
        self.orphans: list[psutil.Process] = []
        super().__init__(*mirror.arguments, program=mirror.program, log=log, environment=environment)

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    # Faults. Each raises `Ended` if there is no such part, and none appears.

    def stop(self) -> None:
        """Ask the process to end in good order."""
        self.killed = True
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process; its descendants become orphans."""
        self.killed = True
        self.orphans += self.children()
        super().kill()

    def kill_jvm(self) -> None:
        """Kill the JVM alone."""
        jvm = self._await_any(_is_jvm)
        self.killed = True
        self.orphans += self.children()
        _kill(jvm[0])

    def kill_with_jvm(self) -> None:
        """Kill the driver and its JVM."""
        jvm = self._await_any(_is_jvm)
        self.kill()
        _kill(jvm[0])

    def kill_all(self) -> None:
        """Kill the driver, its JVM and all Python workers."""
        self.kill()
        for each in self.orphans:
            _kill(each)

    def kill_workers(self) -> None:
        """Kill the Python workers. The driver survives it, so that its end is its own."""
        killed = 0
        while not killed:  # they may have just ended by themselves
            killed = sum(map(_kill, self._await_any(is_python_worker)))

    def kill_worker(self) -> None:
        """Kill one Python worker: the tasks in the others take its partitions."""
        _kill(self._await_any(is_python_worker)[0])

    def pause(self, part: Part, paused_s: float) -> None:
        """Pause a part for some seconds."""
        with self.paused_part(part):
            time.sleep(paused_s)  # the length of the pause, not a wait for a condition

    @contextlib.contextmanager
    def paused_part(self, part: Part) -> Iterator[None]:
        """Pause the process, or a part of it, within the block.

        Raises:
            Ended: There is no such part, and none appears.
        """
        match part:
            case Part.WORKERS:
                processes = self._await_any(is_python_worker)
            case Part.ALL:
                processes = [self._itself(), *self.children()]
            case Part.DRIVER:
                processes = [self._itself()]
        for each in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.suspend()
        try:
            yield
        finally:
            for each in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.resume()

    def _itself(self) -> psutil.Process:
        try:
            return psutil.Process(self.process_id)
        except psutil.NoSuchProcess as error:
            raise Ended("the mirror has ended") from error

    def end(self, timeout_s: float) -> int | None:
        """Return its exit code; None if it does not end in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout_s)
        return self.exit_code

    def objects(self) -> list[dict[str, Any]]:
        """Return the JSON objects that it has printed; any thread may call this."""
        with self._reading:
            return list(super().objects())

    def last_line(self) -> dict[str, Any]:
        """Return its last JSON object; an empty one if it wrote none."""
        return (self.objects() or [{}])[-1]

    def last_error(self) -> str:
        """Return the last line that it wrote to stderr."""
        lines = self.stderr.splitlines()
        return lines[-1] if lines else "nothing was said"

    def _await_any(self, is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        found: list[psutil.Process] = []

        def appears() -> bool:
            found[:] = [each for each in self.children() if is_wanted(each)]
            return bool(found) or self._has_no_more()

        try:
            wait_until(appears, "something to kill", _APPEARS_WITHIN_S, 0.01)
        except TimedOut as error:
            raise Ended(str(error)) from error
        if not found:
            raise Ended("the mirror has ended, or has nothing to do")
        return found

    def _has_no_more(self) -> bool:
        return not self.is_running or self._is_idle()


def end_orphans(orphans: Sequence[psutil.Process], within_s: float) -> list[str]:
    """Wait until orphans have ended by themselves; kill the others, and return their descriptions."""
    deadline = time.monotonic() + within_s
    left = []
    for each in orphans:
        try:
            if each.status() != psutil.STATUS_ZOMBIE:
                each.wait(max(0.0, deadline - time.monotonic()))
        except (psutil.NoSuchProcess, FileNotFoundError):
            continue  # if one is just being reaped, pidfd_open, by which psutil waits, returns ENOENT
        except psutil.TimeoutExpired:
            left.append(_command(each))
            each.kill()
    return left


def _kill(process: psutil.Process) -> bool:
    """Kill a process; return whether it existed."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def _command(process: psutil.Process) -> str:
    try:
        return str(" ".join(process.cmdline()))[:200]
    except psutil.Error:
        return "a process that is gone"


def _is_jvm(process: psutil.Process) -> bool:
    try:
        return bool(process.name() == "java")
    except psutil.Error:
        return False
