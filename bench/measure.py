"""Run a mover once and return its resource usage.

CPU is counted for the whole process tree. Since descendants come and go, the tree is sampled ten times a
second, and each process's last reading is kept. At the end, the operating system's own account (wait4) has
every descendant that was waited for, to the microsecond. If it is higher than the readings, the difference
is added to Python's share, since the JVMs are few and long-lived.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.mover import Command, Job, Mover
from rig import KafkaCluster, TimedOut, wait_until
from rig.process import adopting_orphans, peak_rss_of, spawn, tail

__all__ = [
    "MoverFailed",
    "ProcessTree",
    "Sample",
    "TreeCpu",
    "Usage",
    "all_copied",
    "end_offsets",
    "measure",
    "run_to_end",
    "run_until",
    "running",
    "sample_until",
]

_INTERVAL_S = 0.1
_READING_INTERVAL_S = 0.5
_SURVIVORS_TIMEOUT_S = 30
_TOPIC_IS_NEW = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class MoverFailed(Exception):
    """A mover ended with an error, or did not copy everything; the text has its output."""


@dataclass(frozen=True)
class Usage:
    """Resource usage of one run.

    Attributes:
        wall_s: Time from the start of the command to its end, or to the last record copied.
        jvm_cpu_s: User and system time of the mover's Java processes.
        python_cpu_s: User and system time of its other processes.
        source_cpu_s: User and system time of the source brokers during the run.
        destination_cpu_s: User and system time of the destination brokers during the run.
        jvm_peak_rss: Bytes; the highest sum over Java processes at one time.
        python_peak_rss: The same over the others. Pages that forked workers share count for each.
    """

    wall_s: float
    jvm_cpu_s: float
    python_cpu_s: float
    source_cpu_s: float
    destination_cpu_s: float
    jvm_peak_rss: int
    python_peak_rss: int


def measure(
    mover: Mover, job: Job, source: KafkaCluster, destination: KafkaCluster, timeout_s: float = 1800
) -> tuple[Usage, str | None]:
    """Let a mover copy a topic.

    Returns:
        Its usage, and the destination topic, None if there is none.

    Raises:
        MoverFailed: The mover failed, or the copy has another number of records than the source.
    """
    expected = sum(end_offsets(job.source, job.topic))
    log = job.directory / "mover.log"
    with mover.command(job) as command:
        source_before, destination_before = source.cpu_seconds(), destination.cpu_seconds()
        if command.ends_by_itself:
            wall_s, tree = run_to_end(command, log, timeout_s)
        else:
            wall_s, tree = run_until(
                all_copied(job.destination, command.copy, expected), command, log, timeout_s
            )
        usage = Usage(
            wall_s=wall_s,
            jvm_cpu_s=tree.jvm_cpu_s,
            python_cpu_s=tree.python_cpu_s,
            source_cpu_s=source.cpu_seconds() - source_before,
            destination_cpu_s=destination.cpu_seconds() - destination_before,
            jvm_peak_rss=tree.jvm_peak_rss,
            python_peak_rss=tree.python_peak_rss,
        )
        found = expected if command.copy is None else sum(end_offsets(job.destination, command.copy))
        if found != expected:
            raise MoverFailed(f"{mover.name} copied {found} of {expected} records:\n{tail(log)}")
        return usage, command.copy


def all_copied(bootstrap: str, copy: str | None, expected: int) -> Callable[[], bool]:
    """Return a check whether a topic has this many records; the topic need not exist yet."""
    assert copy is not None, "if a mover does not end by itself, it needs a copy whose records are counted"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def copied() -> bool:
        try:
            return sum(_end_offsets(admin, copy)) >= expected
        except KafkaException as error:
            if error.args[0].code() in _TOPIC_IS_NEW:
                return False
            raise

    return copied


def end_offsets(bootstrap: str, topic: str) -> list[int]:
    """Return the end offset of each partition; empty while the topic does not exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return _end_offsets(admin, topic)


def _end_offsets(admin: AdminClient, topic: str) -> list[int]:
    found = admin.list_topics(timeout=30).topics.get(topic)
    if found is None:
        return []
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in found.partitions}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30)
    return [answers[each].result().offset for each in sorted(asked, key=lambda each: each.partition)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a process tree.

    Attributes:
        at_s: Its time, by the monotonic clock.
        cpu_s: User and system time so far.
        rss_bytes: Resident memory; pages that forked workers share count for each.
    """

    at_s: float
    cpu_s: float
    rss_bytes: int


class ProcessTree:
    """CPU and memory of a process and all its descendants, including those that have ended.

    Use it inside `adopting_orphans`: if a descendant's parent ends, the descendant becomes a child of this
    process. The tree counts every child that this process did not have before, and waits for it.
    """

    def __init__(self, root: int) -> None:
        self.jvm_peak_rss = 0
        self.python_peak_rss = 0
        self.samples: list[Sample] = []
        self._root = root
        self._known = {root: psutil.Process(root)}
        self._others = {child.pid for child in psutil.Process().children()} - {root}
        self._adopted: set[int] = set()
        self._cpu_s: dict[int, float] = {}
        self._is_jvm: dict[int, bool] = {}
        self._at_end_s = 0.0

    @property
    def jvm_cpu_s(self) -> float:
        return sum(cpu for pid, cpu in self._cpu_s.items() if self._is_jvm[pid])

    @property
    def python_cpu_s(self) -> float:
        return max(self._at_end_s, sum(self._cpu_s.values())) - self.jvm_cpu_s

    def sample(self) -> None:
        """Sample every process of the tree, including those whose parent has ended."""
        self._find_descendants()
        rss, high_water = {True: 0, False: 0}, {True: 0, False: 0}
        for pid, process in self._known.items():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied), process.oneshot():
                times = process.cpu_times()
                self._cpu_s[pid] = times.user + times.system
                # Read at each sample: a process has another name before it execs.
                self._is_jvm[pid] = process.name() == "java"
                rss[self._is_jvm[pid]] += process.memory_info().rss
                # Between two samples a process may have been larger than the sum at either.
                high_water[self._is_jvm[pid]] = max(high_water[self._is_jvm[pid]], peak_rss_of(pid))
        self.jvm_peak_rss = max(self.jvm_peak_rss, rss[True], high_water[True])
        self.python_peak_rss = max(self.python_peak_rss, rss[False], high_water[False])
        self.samples.append(Sample(time.monotonic(), sum(self._cpu_s.values()), sum(rss.values())))

    def finish(self, cpu_at_end_s: float) -> None:
        """Add the operating system's account: CPU of the root and of every descendant it waited for."""
        self._at_end_s = cpu_at_end_s

    def survivors(self) -> list[int]:
        """Return the processes of the tree that still run."""
        self._find_descendants()
        return [pid for pid, process in self._known.items() if _runs(process)]

    def reap(self) -> None:
        """Wait for adopted processes that have ended; their CPU is already sampled."""
        for pid in list(self._adopted):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._adopted.discard(pid)

    def _find_descendants(self) -> None:
        children: dict[int, list[psutil.Process]] = {}
        for process in psutil.process_iter(["ppid"]):
            children.setdefault(process.info["ppid"], []).append(process)
        for child in children.get(os.getpid(), []):
            if child.pid not in self._others and child.pid != self._root:
                self._known.setdefault(child.pid, child)
                self._adopted.add(child.pid)
        unvisited = list(self._known)
        while unvisited:
            for child in children.get(unvisited.pop(), []):
                if child.pid not in self._known:
                    self._known[child.pid] = child
                    unvisited.append(child.pid)


class TreeCpu:
    """CPU-seconds of a process and all its descendants so far, read while they run.

    Each process is sampled twice a second, and its last reading kept. If a Spark worker is idle for a minute,
    Spark ends it, and its daemon does not wait for it: no account of the operating system has its time.
    CPU that a process uses after its last reading is not counted.
    """

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._readings_s: dict[psutil.Process, float] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()

    def __call__(self) -> float:
        with self._lock:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in [self._root, *self._root.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        times = process.cpu_times()
                        self._readings_s[process] = times.user + times.system
            return sum(self._readings_s.values())

    def _look_on(self) -> None:
        while not self._end.wait(_READING_INTERVAL_S):
            self()


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def run_to_end(command: Command, log: Path, timeout_s: float) -> tuple[float, ProcessTree]:
    """Run a command until the command and its descendants have ended; return wall time."""
    with running(command, log) as (process, tree):
        began = time.monotonic()
        exited = os.pidfd_open(process.pid)
        try:
            while not select.select([exited], [], [], _INTERVAL_S)[0]:
                tree.sample()
                _check_deadline(began, timeout_s, log)
        finally:
            os.close(exited)
        wall_s = time.monotonic() - began
        tree.sample()  # a zombie's times are still readable
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        tree.finish(usage.ru_utime + usage.ru_stime)
        if process.returncode != 0:
            raise MoverFailed(f"ended with {process.returncode}:\n{tail(log)}")
        sample_until(lambda: not tree.survivors(), tree, _SURVIVORS_TIMEOUT_S, log)
        return wall_s, tree


def run_until(
    is_done: Callable[[], bool], command: Command, log: Path, timeout_s: float
) -> tuple[float, ProcessTree]:
    """Run a command that never ends by itself until ``is_done()``, and kill it; return wall time."""
    with running(command, log) as (process, tree):
        began = time.monotonic()

        def is_done_and_alive() -> bool:
            if process.poll() is not None:
                raise MoverFailed(f"ended with {process.returncode}:\n{tail(log)}")
            return is_done()

        sample_until(is_done_and_alive, tree, timeout_s, log)
        return time.monotonic() - began, tree


def sample_until(condition: Callable[[], bool], tree: ProcessTree, timeout_s: float, log: Path) -> None:
    """Sample the tree ten times a second until the condition holds; raise `TimedOut` with the log's end."""
    began = time.monotonic()
    while not condition():
        tree.sample()
        _check_deadline(began, timeout_s, log)
        time.sleep(_INTERVAL_S)
    tree.sample()


def _check_deadline(began: float, timeout_s: float, log: Path) -> None:
    if time.monotonic() - began > timeout_s:
        raise TimedOut(f"the mover was still running after {timeout_s:g} s:\n{tail(log)}")


@contextlib.contextmanager
def running(command: Command, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], ProcessTree]]:
    """Run a command inside a ``with`` block, and end all its processes afterwards."""
    with adopting_orphans():
        process = spawn(command.arguments, log, command.environment)
        tree = ProcessTree(process.pid)
        try:
            yield process, tree
        finally:
            _end(process, tree)


def _end(process: subprocess.Popen[bytes], tree: ProcessTree) -> None:
    if process.returncode is None:
        process.kill()
        process.wait()

    def all_ended() -> bool:
        survivors = tree.survivors()
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        tree.reap()
        return not survivors

    wait_until(all_ended, "the end of the mover's descendants")
