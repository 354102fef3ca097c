"""
A task's session with its driver: one for the copy task, and one for a MirrorMaker task with a handler.

The session sends the task's reports, with the resources of its process.
"""

from __future__ import annotations

import math
import resource
import threading
import time
from dataclasses import replace

import psutil

from ...errors import ShoalError
from ...native import NATIVE
from ...timing import Timing
from ..control import ControlConnection
from ..control.protocol import process_name
from ..model.reports import ProcessReport, TaskReport

__all__ = ["Interval", "TaskSession"]


class Interval:
    """A time span that passes again and again, for the first time at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began_at = -math.inf

    def has_passed(self, now: float) -> bool:
        """Whether it has passed at this monotonic time; then it begins again."""
        if now - self._began_at < self._seconds:
            return False
        self._began_at = now
        return True


class TaskSession:
    """The reports of one task; any thread may send one."""

    def __init__(self, control: ControlConnection, timing: Timing) -> None:
        self.control = control
        self._timing = timing
        self._process = psutil.Process()
        self._name = process_name()
        self._cpu_s = _cpu_seconds()
        self._reported_at = 0.0
        self._measuring = threading.Lock()

    def report(self, report: TaskReport | None = None) -> None:
        """Add this process to a report, and send it; without one, only the process."""
        with self._measuring:
            self._reported_at = time.monotonic()
            process = self._use()
        self.control.report(replace(report or TaskReport(), process=process))

    def show_life(self) -> None:
        """Send a report without news if there was none for a while."""
        if time.monotonic() - self._reported_at >= self._timing.sign_of_life_s:
            self.report()

    @property
    def may_produce(self) -> bool:
        """Whether the task still has its lease."""
        try:
            self.control.check_lease()
        except ShoalError:
            return False
        return True

    def _use(self) -> ProcessReport:
        cpu_s = _cpu_seconds()
        used, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        rss_bytes = self._process.memory_info().rss
        return ProcessReport(self._name, used, rss_bytes, is_native=NATIVE is not None)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
