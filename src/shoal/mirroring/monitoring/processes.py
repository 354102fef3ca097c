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

import contextlib
import getpass
import os
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from ...timing import DEFAULT_TIMING, Timing
from ..control.protocol import process_name
from ..model.progress import GarbageCollection, ProcessRole, ProcessUsage

__all__ = ["LocalProcesses", "collections_of"]

_MAGIC = bytes.fromhex("cafec0c0")
_FREQUENCY = "sun.os.hrt.frequency"
_COLLECTOR = "sun.gc.collector."
_NONE = GarbageCollection(0, 0.0)
_JVM = "java"


def collections_of(process_id: int, directory: Path | None = None) -> GarbageCollection | None:
    """
    Return the garbage collections of a JVM since its start; None if it publishes no counters.

    Args:
        process_id: The process id of the JVM.
        directory: The directory of its file; None for that of this process' user.

    """
    try:
        # HotSpot does not follow TMPDIR, and refuses a directory that another user has made, as we do.
        directory = directory or Path("/tmp") / f"hsperfdata_{getpass.getuser()}"  # noqa: S108
        if directory.lstat().st_uid != os.geteuid():
            return None  # another user's file may be a pipe without a writer
        counters = _counters((directory / str(process_id)).read_bytes())
        collectors = [name.removesuffix(".time") for name in counters if name.endswith(".time")]
        pauses = sum(counters[f"{each}.invocations"] for each in collectors)
        ticks = sum(counters[f"{each}.time"] for each in collectors)
        return GarbageCollection(pauses, ticks / counters[_FREQUENCY]) if collectors else None
    except (OSError, KeyError, IndexError, ValueError, ZeroDivisionError, struct.error):
        return None  # the file is missing, half written, or not HotSpot's


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
    The driver, its JVMs and their Python daemons: Spark's own, and with ``local-cluster`` the executors'.

    A daemon counts as a worker: it imports all that tasks need, and starts the other workers, which report
    themselves. CPU time and collections count from the creation of this object, at the mirror's start. A call
    takes microseconds, and any thread may call.
    """

    def __init__(self, timing: Timing = DEFAULT_TIMING) -> None:
        self._timing = timing
        self._driver = psutil.Process()
        self._lock = threading.Lock()
        self._jvms: set[int] = set()
        self._spark: dict[int, psutil.Process] = {}
        self._looked_at = time.monotonic()
        self._find_spark()
        processes = (self._driver, *self._spark.values())
        self._before: Mapping[int, ProcessUsage] = {each.pid: _usage(each) for each in processes}

    def __call__(self) -> list[ProcessUsage]:
        """Return the current usage of each process that has not ended."""
        with self._lock:
            timing = self._timing
            has_daemon = bool(self._spark.keys() - self._jvms)
            interval_s = timing.jvm_look_interval_s if has_daemon else timing.first_jvm_look_interval_s
            if time.monotonic() - self._looked_at >= interval_s:
                self._looked_at = time.monotonic()
                self._find_spark()
            usages = [self._since_the_start(self._driver)]
            for pid, process in list(self._spark.items()):
                try:
                    usages.append(self._since_the_start(process))
                except psutil.Error:
                    del self._spark[pid]
        return usages

    def _find_spark(self) -> None:
        for child in self._driver.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                is_jvm = child.name() == _JVM
                if is_jvm:
                    self._jvms.add(child.pid)
                if is_jvm or (child.ppid() in self._jvms and child.name().startswith("python")):
                    self._spark.setdefault(child.pid, child)

    def _since_the_start(self, process: psutil.Process) -> ProcessUsage:
        now, before = _usage(process), self._before.get(process.pid)
        if before is None:
            return now
        gc, gc_before = now.gc, before.gc or _NONE
        since = gc and GarbageCollection(gc.pauses - gc_before.pauses, gc.time_s - gc_before.time_s)
        return replace(now, cpu_s=now.cpu_s - before.cpu_s, gc=since)


def _usage(process: psutil.Process) -> ProcessUsage:
    with process.oneshot():
        role = ProcessRole.JVM if process.name() == _JVM else ProcessRole.WORKER
        if process.pid == os.getpid():
            role = ProcessRole.DRIVER
        times = process.cpu_times()
        return ProcessUsage(
            process_name(process.pid),
            role,
            times.user + times.system,
            process.memory_info().rss,
            time.time(),
            collections_of(process.pid) if role is ProcessRole.JVM else None,
        )
