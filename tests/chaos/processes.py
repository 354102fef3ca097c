"""The mirror as processes to kill: the product with its JVM and workers, or the engine alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from rig.shoal import is_python_worker
from rig.wait import TimedOut, wait_until

from .plan import EventKind

__all__ = ["Ended", "MirrorRun", "end_orphans"]

#: Timeout until there is a JVM, or a Python worker, to kill.
_APPEARS_WITHIN_S = 60

#: Tasks that connect so long after the first belong to the next window: those of a job start together.
_LATER_S = 2.0


class Ended(Exception):
    """There is no process (any more) to kill."""


class MirrorRun:
    """One process, from its start to its end, which writes to two files.

    Attributes:
        killed: Whether the trial is the cause if the process ends without success.
        orphans: Processes that survived the kill of their parent.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: dict[str, str] | None = None
    ) -> None:
        """Start a process.

        Args:
            arguments: Arguments for this Python.
            log: A path without suffix; gets ``.out`` and ``.err``.
            environment: Variables over this process's own.
        """
        self.killed = False
        self.orphans: list[psutil.Process] = []
        self._output = log.with_suffix(".out")
        self.errors = log.with_suffix(".err")
        with self._output.open("wb") as output, self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, **(environment or {})},
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def suffer(self, kind: EventKind, paused_s: float = 0.0) -> None:
        """Kill the process or a part of it, or pause it for some seconds.

        Raises:
            Ended: There is no such part, and none appears.
        """
        match kind:
            case EventKind.KILL_TASK | EventKind.KILL_DRIVER:
                self._kill_first()
            case EventKind.SIGTERM:
                self.killed = True
                self.terminate()
            case EventKind.KILL_JVM:
                jvm = self._await_any(_is_jvm)
                self.killed = True
                self.orphans += self._children()
                _kill(jvm[0])
            case EventKind.KILL_DRIVER_AND_JVM:
                jvm = self._await_any(_is_jvm)
                self._kill_first()
                _kill(jvm[0])
            case EventKind.KILL_WORKER:
                # The driver survives it: if the mirror ends without success, the trial is not the cause.
                killed = 0
                while not killed:  # they may have just ended by themselves, with their window
                    killed = sum(map(_kill, self._await_any(is_python_worker)))
            case EventKind.KILL_OLD_WORKER | EventKind.KILL_NEW_WORKER:
                old, new = self._await_overlap()
                _kill(old if kind is EventKind.KILL_OLD_WORKER else new)
            case EventKind.KILL_DRIVER_IN_OVERLAP:
                self._await_overlap()
                self._kill_first()
            case (
                EventKind.PAUSE_TASK | EventKind.PAUSE_DRIVER | EventKind.PAUSE_WORKERS | EventKind.PAUSE_ALL
            ):
                with self.paused(kind):
                    time.sleep(paused_s)  # the length of the pause, not a wait for a condition
            case _:
                raise ValueError(f"{kind} does not happen to a process")

    @contextlib.contextmanager
    def paused(self, kind: EventKind) -> Iterator[None]:
        """Pause the process, or a part of it, within the block.

        Raises:
            Ended: There is no such part, and none appears.
        """
        match kind:
            case EventKind.PAUSE_WORKERS:
                processes = self._await_any(is_python_worker)
            case EventKind.PAUSE_ALL:
                processes = [self._itself(), *self._children()]
            case _:
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
            return psutil.Process(self._process.pid)
        except psutil.NoSuchProcess as error:
            raise Ended("the mirror has ended") from error

    def _kill_first(self) -> None:
        self.killed = True
        self.orphans += self._children()
        self._process.kill()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        self.orphans += self._children()
        self._process.kill()

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit code; None if it does not end in time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def last_line(self) -> dict[str, Any]:
        """Return its last JSON object; an empty one if it wrote none."""
        for line in reversed(self._output.read_text(errors="replace").splitlines()):
            try:
                found = json.loads(line)
            except ValueError:
                continue  # it was killed during the write
            if isinstance(found, dict):
                return found
        return {}

    def last_error(self) -> str:
        """Return the last line that it wrote to stderr."""
        lines = self.errors.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "nothing was said"

    def _children(self) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self._process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def _await_overlap(self) -> tuple[psutil.Process, psutil.Process]:
        """Wait until tasks of two windows are connected to the driver; return one of each."""
        since: dict[psutil.Process, float] = {}

        def overlap() -> bool:
            now = time.monotonic()
            connected = self._connected_workers()
            for each in since.keys() - connected:
                del since[each]
            for each in connected:
                since.setdefault(each, now)
            spread_s = max(since.values()) - min(since.values()) if since else 0.0
            return spread_s >= _LATER_S or not self.is_running

        try:
            wait_until(overlap, "two windows that overlap", _APPEARS_WITHIN_S, 0.02)
        except TimedOut as error:
            raise Ended(str(error)) from error
        if not self.is_running:
            raise Ended("the mirror has ended")
        return min(since, key=lambda each: since[each]), max(since, key=lambda each: since[each])

    def _connected_workers(self) -> set[psutil.Process]:
        """Return the Python workers with a connection to the driver: each has a task."""
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self._process.pid).net_connections("tcp")
            ports = {each.laddr.port for each in own if each.status == psutil.CONN_LISTEN}
            return {
                each for each in self._children() if is_python_worker(each) and _is_connected(each, ports)
            }
        return set()

    def _await_any(self, is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        found: list[psutil.Process] = []

        def appears() -> bool:
            found[:] = [each for each in self._children() if is_wanted(each)]
            return bool(found) or not self.is_running

        try:
            wait_until(appears, "something to kill", _APPEARS_WITHIN_S, 0.01)
        except TimedOut as error:
            raise Ended(str(error)) from error
        if not found:
            raise Ended("the mirror has ended")
        return found


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


def _is_connected(process: psutil.Process, ports: set[int]) -> bool:
    """Whether it has a connection to one of these ports."""
    try:
        return any(each.raddr and each.raddr.port in ports for each in process.net_connections("tcp"))
    except psutil.Error:
        return False
