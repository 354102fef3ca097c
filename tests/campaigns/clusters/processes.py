"""The mirror as processes to kill: the product with its JVM and workers, or the engine alone."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from rig.shoal import Shoal, is_python_worker
from rig.wait import TimedOut, wait_until

from .movers import Started
from .plan import EventKind

__all__ = ["Ended", "MirrorRun", "end_orphans"]

#: Timeout until there is a JVM, or a Python worker, to kill.
_APPEARS_WITHIN_S = 60

#: Tasks that connect so long after the first belong to the next window: those of a job start together.
_LATER_S = 2.0


class Ended(Exception):
    """There is no process (any more) to kill."""


class MirrorRun(Shoal):
    """A mirror of a trial, which writes to two files.

    Attributes:
        killed: Whether the trial is the cause if the process ends without success.
        orphans: Processes that survived the kill of their parent.
    """

    killed = False

    def __init__(self, mirror: Started, log: Path, environment: Mapping[str, str] | None = None) -> None:
        """Start a process.

        Args:
            mirror: Its program and its arguments.
            log: A path without suffix; gets ``.out`` and ``.err``.
            environment: Variables over this process's own.
        """
        self.orphans: list[psutil.Process] = []
        super().__init__(*mirror.arguments, program=mirror.program, log=log, environment=environment)

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

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
                self.send_signal(signal.SIGTERM)
            case EventKind.KILL_JVM:
                jvm = self._await_any(_is_jvm)
                self.killed = True
                self.orphans += self.children()
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
                with self.paused_part(kind):
                    time.sleep(paused_s)  # the length of the pause, not a wait for a condition
            case _:
                raise ValueError(f"{kind} does not happen to a process")

    @contextlib.contextmanager
    def paused_part(self, kind: EventKind) -> Iterator[None]:
        """Pause the process, or a part of it, within the block.

        Raises:
            Ended: There is no such part, and none appears.
        """
        match kind:
            case EventKind.PAUSE_WORKERS:
                processes = self._await_any(is_python_worker)
            case EventKind.PAUSE_ALL:
                processes = [self._itself(), *self.children()]
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
            return psutil.Process(self.process_id)
        except psutil.NoSuchProcess as error:
            raise Ended("the mirror has ended") from error

    def _kill_first(self) -> None:
        self.killed = True
        self.kill()

    def kill(self) -> None:
        """Kill the process; its descendants become orphans."""
        self.orphans += self.children()
        super().kill()

    def end(self, timeout_s: float) -> int | None:
        """Return its exit code; None if it does not end in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout_s)
        return self.exit_code

    def last_line(self) -> dict[str, Any]:
        """Return its last JSON object; an empty one if it wrote none."""
        return (self.objects() or [{}])[-1]

    def last_error(self) -> str:
        """Return the last line that it wrote to stderr."""
        lines = self.stderr.splitlines()
        return lines[-1] if lines else "nothing was said"

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
            own = psutil.Process(self.process_id).net_connections("tcp")
            ports = {each.laddr.port for each in own if each.status == psutil.CONN_LISTEN}
            return {each for each in self.children() if is_python_worker(each) and _is_connected(each, ports)}
        return set()

    def _await_any(self, is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        found: list[psutil.Process] = []

        def appears() -> bool:
            found[:] = [each for each in self.children() if is_wanted(each)]
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
