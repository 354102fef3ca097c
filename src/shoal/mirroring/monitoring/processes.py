"""
CPU, memory and garbage collection of the driver and its JVMs; tasks report their own.

HotSpot publishes its counters in a memory-mapped file, ``/tmp/hsperfdata_USER/PID``, unless it runs with
``-XX:-UsePerfData`` or ``-XX:+PerfDisableSharedMem``. A read of the file takes 0.1 ms and no work of the JVM.
It does not wait while the JVM pauses, and works for an executor's JVM too. A call through Py4J has none of
these properties.

The file begins with a header of 32 bytes::

    magic (4, 0xcafec0c0)  byte order (1)  major version (1)  minor version (1)  accessible (1)
    used (4)  overflow (4)  time of change (8)  offset of the first entry (4)  number of entries (4)

An entry begins with 20 bytes, and its name and data follow at offsets from its start::

    length (4)  offset of name (4)  length of vector (4)  type (1)  flags (1)  units (1)  variability (1)
    offset of data (4)

A counter has type ``J`` and 8 bytes of data. ``sun.gc.collector.N.*`` count the pauses of one collector each,
in ticks of ``sun.os.hrt.frequency`` a second. The concurrent work of G1 and ZGC is no pause.
"""

from __future__ import annotations

import functools
import getpass
import os
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from ...timing import DEFAULT_TIMING, Timing
from ..control.protocol import process_name
from ..model.progress import GarbageCollection, ProcessRole, ProcessUsage

__all__ = ["CollectionCounter", "LocalProcesses"]

_MAGIC = bytes.fromhex("cafec0c0")
_FREQUENCY = "sun.os.hrt.frequency"
_COLLECTOR = "sun.gc.collector."


class CollectionCounter:
    """
    Counts the garbage collections of one JVM.

    Args:
        process_id: The process id of the JVM.
        from_now: Count from now on; else since the JVM's start.
        directory: The directory of the JVM's file; None for that of this process' user.

    """

    def __init__(self, process_id: int, *, from_now: bool, directory: Path | None = None) -> None:
        self._process_id = process_id
        self._directory = directory
        self._before = (self._read() if from_now else None) or GarbageCollection(0, 0.0)

    def __call__(self) -> GarbageCollection | None:
        """Return the counts; None if the JVM publishes no counters."""
        now, before = self._read(), self._before
        return now and GarbageCollection(now.pauses - before.pauses, now.time_s - before.time_s)

    def _read(self) -> GarbageCollection | None:
        try:
            # HotSpot does not follow TMPDIR, and refuses a directory that another user has made, as we do.
            directory = self._directory or Path("/tmp") / f"hsperfdata_{getpass.getuser()}"  # noqa: S108
            if directory.lstat().st_uid != os.geteuid():
                return None  # another user's file may be a pipe without a writer
            return _counted(_counters((directory / str(self._process_id)).read_bytes()))
        except (OSError, KeyError, IndexError, ValueError, struct.error):
            return None  # the file is missing, half written, or not HotSpot's


def _counted(counters: Mapping[str, int]) -> GarbageCollection | None:
    ticks_per_s = counters.get(_FREQUENCY)
    collectors = [name.removesuffix(".time") for name in counters if name.endswith(".time")]
    if not ticks_per_s or not collectors:
        return None
    return GarbageCollection(
        sum(counters[f"{each}.invocations"] for each in collectors),
        sum(counters[f"{each}.time"] for each in collectors) / ticks_per_s,
    )


def _counters(data: bytes) -> dict[str, int]:
    """Return the frequency and the collectors' counters."""
    if data[:4] != _MAGIC:
        return {}
    order = "<" if data[4] else ">"
    offset, entries = struct.unpack_from(f"{order}ii", data, 24)
    counters = {}
    for _ in range(entries):
        length, name_at, kind, data_at = struct.unpack_from(f"{order}ii4xc3xi", data, offset)
        name = data[offset + name_at : data.index(b"\0", offset + name_at)].decode("latin-1")
        if kind == b"J" and name.startswith((_COLLECTOR, _FREQUENCY)):
            (counters[name],) = struct.unpack_from(f"{order}q", data, offset + data_at)
        offset += length
    return counters


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
