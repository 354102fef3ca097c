"""CPU and memory of the driver and its JVMs; tasks report their own."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psutil

from ...timing import DEFAULT_TIMING, Timing
from ..control.protocol import process_name
from ..model.processes import GarbageCollection, ProcessRole, ProcessUsage
from .garbage_collection import CollectionCounter

__all__ = ["LocalProcesses"]


class LocalProcesses:
    """
    The driver and its JVMs: Spark's own, and with ``local-cluster`` the executors'.

    Their CPU time counts from the creation of this object, at the mirror's start. A call takes microseconds,
    and any thread may call.
    """

    def __init__(self, timing: Timing = DEFAULT_TIMING) -> None:
        self._timing = timing
        self._driver = psutil.Process()
        self._lock = threading.Lock()
        self._jvms: dict[int, psutil.Process] = {}
        self._collections: dict[int, CollectionCounter] = {}
        self._looked_at = time.monotonic()
        self._find_jvms(from_now=True)
        self._before_s: Mapping[int, float] = {
            each.pid: _cpu_s(each) for each in (self._driver, *self._jvms.values())
        }

    def __call__(self) -> list[ProcessUsage]:
        """Return the current usage of each process that has not ended."""
        with self._lock:
            timing = self._timing
            interval_s = timing.jvm_look_interval_s if self._jvms else timing.first_jvm_look_interval_s
            if time.monotonic() - self._looked_at >= interval_s:
                self._looked_at = time.monotonic()
                self._find_jvms(from_now=False)
            usages = [self._usage(self._driver, ProcessRole.DRIVER)]
            for pid, jvm in list(self._jvms.items()):
                try:
                    usages.append(replace(self._usage(jvm, ProcessRole.JVM), gc=self._collections[pid]()))
                except psutil.Error:
                    del self._jvms[pid], self._collections[pid]
        return usages

    def garbage_collection(self) -> GarbageCollection | None:
        """Return the garbage collections of all running JVMs; None if none publishes its counters."""
        known = [each.gc for each in self() if each.gc is not None]
        return functools.reduce(GarbageCollection.beside, known) if known else None

    def _find_jvms(self, *, from_now: bool) -> None:
        for child in self._driver.children(recursive=True):
            try:
                if child.name() == "java" and child.pid not in self._jvms:
                    self._jvms[child.pid] = child
                    self._collections[child.pid] = CollectionCounter(child.pid, from_now=from_now)
            except psutil.Error:
                pass  # the process has ended

    def _usage(self, process: Any, role: ProcessRole) -> ProcessUsage:
        with process.oneshot():
            return ProcessUsage(
                process_name(process.pid),
                role,
                _cpu_s(process) - self._before_s.get(process.pid, 0.0),
                process.memory_info().rss,
                time.time(),
            )


def _cpu_s(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
